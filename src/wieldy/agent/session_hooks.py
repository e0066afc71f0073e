"""What hooks are told of a session: its start and end, each prompt, each stop, each compaction; and what they make of it."""

from __future__ import annotations

import asyncio
from typing import Any

from wieldy.core.errors import SessionError
from wieldy.hooks.dispatch import Hooks

MOST_STOPS = 10  # times in a row that hooks may send the model on


class PromptBlocked(SessionError):
    """A hook did not let the prompt pass."""


class SessionHooks:
    """The hooks of one session. Where none are wanted, nothing is loaded and nothing is waited for."""

    def __init__(self, hooks: Hooks, idle_seconds: float = 60.0) -> None:
        self.hooks = hooks
        self.sent_on = 0
        self._idle_seconds = idle_seconds
        self._idle_timer: asyncio.Task[None] | None = None

    async def started(self, source: str, model: str) -> tuple[str, ...]:
        """Tell of the start; returns what hooks add to what the model knows."""
        if not self.hooks.has("SessionStart"):
            return ()
        from wieldy.hooks.events import SessionStart

        said = await self.hooks.fire(SessionStart(**self._common(), source=source, model=model))
        return said.context

    async def prompted(self, prompt: str) -> tuple[str, ...]:
        """Tell of a prompt; returns what hooks add to it. Raises `PromptBlocked`."""
        self.sent_on = 0
        if not self.hooks.has("UserPromptSubmit"):
            return ()
        from wieldy.hooks.events import UserPromptSubmit

        said = await self.hooks.fire(UserPromptSubmit(**self._common(), prompt=prompt))
        if said.blocked is not None:
            raise PromptBlocked(f"a hook blocked the prompt: {said.blocked}")
        return said.context

    async def stopping(self, last_words: str) -> str | None:
        """Tell that the model wants to stop; returns why it is to go on, or None."""
        if not self.hooks.has("Stop") or self.sent_on >= MOST_STOPS:
            return None
        from wieldy.hooks.events import Stop

        moment = Stop(**self._common(), stop_hook_active=self.sent_on > 0, last_assistant_message=last_words)
        said = await self.hooks.fire(moment)
        if said.blocked is None or said.halt is not None:
            return None
        self.sent_on += 1
        return said.blocked

    async def compacting(self, trigger: str, wish: str) -> bool:
        """Tell that the conversation is about to be shortened; true when a hook is against it."""
        if not self.hooks.has("PreCompact"):
            return False
        from wieldy.hooks.events import PreCompact

        said = await self.hooks.fire(PreCompact(**self._common(), trigger=trigger, custom_instructions=wish))
        if said.blocked is not None and trigger == "manual":
            raise SessionError(f"a hook blocked the compaction: {said.blocked}")
        return said.blocked is not None

    def start_idle_timer(self) -> None:
        """Run the Notification hooks if no prompt comes for a while."""
        if self.hooks.has("Notification"):
            self._idle_timer = asyncio.create_task(self._notify_idle())

    async def stop_idle_timer(self) -> None:
        if self._idle_timer is not None:
            timer, self._idle_timer = self._idle_timer, None
            timer.cancel()
            await asyncio.wait((timer,))

    async def _notify_idle(self) -> None:
        from wieldy.hooks.events import Notification

        await asyncio.sleep(self._idle_seconds)
        message = "wieldy is waiting for your input"
        await self.hooks.fire(Notification(**self._common(), message=message, notification_type="idle_prompt"))

    async def ended(self, reason: str) -> None:
        """Tell of the end."""
        await self.stop_idle_timer()
        if self.hooks.has("SessionEnd"):
            from wieldy.hooks.events import SessionEnd

            await self.hooks.fire(SessionEnd(**self._common(), reason=reason))

    def _common(self) -> dict[str, Any]:
        return self.hooks.common_fields()
