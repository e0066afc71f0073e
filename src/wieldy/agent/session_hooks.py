"""Fires the hooks of a session: its start and end, each prompt, each stop, each compaction."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from wieldy.core.errors import SessionError
from wieldy.core.threads import in_thread
from wieldy.core.tool import DEFAULT_MAX_RESULT_CHARS
from wieldy.engine.results import Spill, clean
from wieldy.policy.hooks.dispatch import Hooks

MAX_CONTINUATIONS = 10  # times in a row that stop hooks may make the model go on


class PromptBlocked(SessionError):
    """A hook blocked the prompt."""


class SessionHooks:
    """The hooks of one session."""

    def __init__(self, hooks: Hooks, idle_seconds: float = 60.0) -> None:
        self.hooks = hooks
        self._continuations = 0
        self._idle_seconds = idle_seconds
        self._idle_timer: asyncio.Task[None] | None = None

    async def on_start(self, source: str, model: str) -> tuple[str, ...]:
        """Fire SessionStart; returns context for the model."""
        if "SessionStart" not in self.hooks.event_names:
            return ()
        from wieldy.policy.hooks.events import SessionStart

        return await self._limit(
            (await self.hooks.fire(SessionStart(**self._fields(), source=source, model=model))).context
        )

    async def on_prompt(self, prompt: str) -> tuple[str, ...]:
        """Fire UserPromptSubmit; returns context for the model. Raises `PromptBlocked`."""
        self._continuations = 0
        await self.stop_idle_timer()
        if "UserPromptSubmit" not in self.hooks.event_names:
            return ()
        from wieldy.policy.hooks.events import UserPromptSubmit

        reply = await self.hooks.fire(UserPromptSubmit(**self._fields(), prompt=prompt))
        if reply.blocked is not None:
            raise PromptBlocked(f"a hook blocked the prompt: {reply.blocked}")
        return await self._limit(reply.context)

    async def on_stop(self, last_text: str) -> str | None:
        """Fire Stop; returns why the model must go on, or None."""
        if "Stop" not in self.hooks.event_names:
            return None
        from wieldy.policy.hooks.events import Stop

        return await self._fire_stop(Stop, last_assistant_message=last_text)

    async def on_compact(self, trigger: str, instructions: str) -> bool:
        """Fire PreCompact; true when a hook blocks an automatic compaction. Raises `SessionError` for a manual one."""
        if "PreCompact" not in self.hooks.event_names:
            return False
        from wieldy.policy.hooks.events import PreCompact

        event = PreCompact(**self._fields(), trigger=trigger, custom_instructions=instructions)
        reply = await self.hooks.fire(event)
        if reply.blocked is not None and trigger == "manual":
            raise SessionError(f"a hook blocked the compaction: {reply.blocked}")
        return reply.blocked is not None

    def start_idle_timer(self) -> None:
        """Fire Notification if no prompt comes for a while."""
        if "Notification" in self.hooks.event_names:
            self._idle_timer = asyncio.create_task(self._notify_idle())

    async def stop_idle_timer(self) -> None:
        if self._idle_timer is not None:
            timer, self._idle_timer = self._idle_timer, None
            timer.cancel()
            await asyncio.wait((timer,))

    async def _notify_idle(self) -> None:
        from wieldy.policy.hooks.events import Notification

        await asyncio.sleep(self._idle_seconds)
        message = "wieldy is waiting for your input"
        await self.hooks.fire(Notification(**self._fields(), message=message, notification_type="idle_prompt"))

    async def on_end(self, reason: str) -> None:
        """Fire SessionEnd."""
        await self.stop_idle_timer()
        if "SessionEnd" in self.hooks.event_names:
            from wieldy.policy.hooks.events import SessionEnd

            await self.hooks.fire(SessionEnd(**self._fields(), reason=reason))

    async def _fire_stop(self, make_event: Any, **fields: Any) -> str | None:
        if self._continuations >= MAX_CONTINUATIONS:
            return None
        active = self._continuations > 0
        reply = await self.hooks.fire(make_event(**self._fields(), stop_hook_active=active, **fields))
        if reply.blocked is None or reply.halt is not None:
            return None
        self._continuations += 1
        return reply.blocked

    async def _limit(self, context: tuple[str, ...]) -> tuple[str, ...]:
        """What hooks add for the model, cut and kept in a file like a result where it is too long."""
        if sum(map(len, context)) <= DEFAULT_MAX_RESULT_CHARS:
            return tuple(map(clean, context))
        spill = Spill(Path(self._fields()["transcript_path"]).parent / "tool-results")
        text = await in_thread(lambda: spill.save("hook", clean("\n".join(context)), DEFAULT_MAX_RESULT_CHARS))
        return (f"From a hook: {text}",)

    def _fields(self) -> dict[str, Any]:
        return self.hooks.common_fields()


class SubagentHooks(SessionHooks):
    """The hooks of a subagent. Its task does not come from the user, so UserPromptSubmit does not fire."""

    def __init__(self, hooks: Hooks, transcript_path: str) -> None:
        super().__init__(hooks)
        self._transcript_path = transcript_path

    async def on_start(self, source: str, model: str) -> tuple[str, ...]:
        """Fire SubagentStart; returns context for the agent."""
        if "SubagentStart" not in self.hooks.event_names:
            return ()
        from wieldy.policy.hooks.events import SubagentStart

        return await self._limit((await self.hooks.fire(SubagentStart(**self._fields()))).context)

    async def on_prompt(self, prompt: str) -> tuple[str, ...]:
        """Fire nothing."""
        self._continuations = 0
        return ()

    async def on_stop(self, last_text: str) -> str | None:
        """Fire SubagentStop; returns why the agent must go on, or None."""
        if "SubagentStop" not in self.hooks.event_names:
            return None
        from wieldy.policy.hooks.events import SubagentStop

        return await self._fire_stop(
            SubagentStop, agent_transcript_path=self._transcript_path, last_assistant_message=last_text
        )
