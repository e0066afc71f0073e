"""Fires the hooks of a session: its start and end, each prompt, each stop, each compaction."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wieldy.core.errors import SessionError
from wieldy.core.threads import in_thread
from wieldy.core.tool import DEFAULT_MAX_RESULT_CHARS
from wieldy.engine.results import Spill, clean
from wieldy.policy.hooks.dispatch import Hooks
from wieldy.policy.hooks.events import HOOK_EVENTS

if TYPE_CHECKING:
    from wieldy.policy.hooks.reply import HookReplies

MAX_CONTINUATIONS = 10  # times in a row that stop hooks may make the model continue


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
        reply = await self._fire("SessionStart", source=source, model=model)
        return () if reply is None else await self._bounded(reply.context)

    async def on_prompt(self, prompt: str) -> tuple[str, ...]:
        """Fire UserPromptSubmit; returns context for the model. Raises `PromptBlocked`."""
        self._continuations = 0
        await self.stop_idle_timer()
        reply = await self._fire("UserPromptSubmit", prompt=prompt)
        if reply is None:
            return ()
        if reply.blocked is not None:
            [reason] = await self._bounded((reply.blocked,))
            raise PromptBlocked(f"a hook blocked the prompt: {reason}")
        return await self._bounded(reply.context)

    async def on_stop(self, last_text: str) -> str | None:
        """Fire Stop; returns why the model must continue, or None."""
        return await self._fire_stop("Stop", last_assistant_message=last_text)

    async def on_compact(self, trigger: str, instructions: str) -> bool:
        """Fire PreCompact; true when a hook blocks an automatic compaction. Raises `SessionError` for a manual one."""
        reply = await self._fire("PreCompact", trigger=trigger, custom_instructions=instructions)
        if reply is None or reply.blocked is None:
            return False
        if trigger == "manual":
            raise SessionError(f"a hook blocked the compaction: {reply.blocked}")
        return True

    async def on_end(self, reason: str) -> None:
        await self.stop_idle_timer()
        await self._fire("SessionEnd", reason=reason)

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
        await asyncio.sleep(self._idle_seconds)
        await self._fire("Notification", message="wieldy is waiting for your input", notification_type="idle_prompt")

    async def _fire(self, name: str, **fields: Any) -> HookReplies | None:
        """Fire the event of this name; None where no hook waits for it."""
        return (
            None
            if name not in self.hooks.event_names
            else await self.hooks.fire(HOOK_EVENTS[name](**self._fields(), **fields))
        )

    async def _fire_stop(self, name: str, **fields: Any) -> str | None:
        if self._continuations >= MAX_CONTINUATIONS:
            return None
        reply = await self._fire(name, stop_hook_active=self._continuations > 0, **fields)
        if reply is None or reply.blocked is None or reply.halt is not None:
            return None
        self._continuations += 1
        [reason] = await self._bounded((reply.blocked,))
        return reason

    async def _bounded(self, texts: Sequence[str]) -> tuple[str, ...]:
        """What hooks say to the model, cut and kept in a file like a result where it is too long."""
        if sum(map(len, texts)) <= DEFAULT_MAX_RESULT_CHARS:
            return tuple(map(clean, texts))
        spill = Spill(Path(self._fields()["transcript_path"]).parent / "tool-results")
        text = await in_thread(lambda: spill.save("hook", clean("\n".join(texts)), DEFAULT_MAX_RESULT_CHARS))
        return (f"From a hook: {text}",)

    def _fields(self) -> dict[str, Any]:
        return self.hooks.common_fields()


class SubagentHooks(SessionHooks):
    """The hooks of a subagent. Its task does not come from the user, so UserPromptSubmit does not fire."""

    def __init__(self, hooks: Hooks, transcript_path: str) -> None:
        super().__init__(hooks)
        self._transcript_path = transcript_path

    async def on_start(self, source: str, model: str) -> tuple[str, ...]:
        reply = await self._fire("SubagentStart")
        return () if reply is None else await self._bounded(reply.context)

    async def on_prompt(self, prompt: str) -> tuple[str, ...]:
        self._continuations = 0
        return ()

    async def on_stop(self, last_text: str) -> str | None:
        return await self._fire_stop(
            "SubagentStop", agent_transcript_path=self._transcript_path, last_assistant_message=last_text
        )
