"""The calls of one turn: each starts when it is submitted, results come in the order of the requests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self, TypeAlias

from msgspec.structs import replace

from wieldy.core.call import PlannedCall, ToolCall
from wieldy.core.decision import Adviser
from wieldy.core.effects import Effects, is_lasting
from wieldy.core.errors import ClosedError
from wieldy.core.outcome import ToolResult
from wieldy.core.tool import Replay
from wieldy.engine.loop_breaker import LoopBreaker
from wieldy.engine.services import Services

OnStart: TypeAlias = Callable[[str, Replay, bool], Awaitable[None]]
"""Hears of a call before it starts: its id, what becomes of it after a crash, and whether its effects last."""


class CallTurn:
    """Owns the tasks of its calls: leaving the block with an error cancels what is still running.

    Where there is `on_start`, it is awaited before a call starts that must not be made twice, so that the transcript on disk
    already says so; `lasting_calls` are the ids of those that do something that lasts. `waiting` is what calls touch whose
    questions are answered later.
    """

    def __init__(
        self,
        services: Services,
        message_id: str | None = None,
        *,
        on_start: OnStart | None = None,
        loop_breaker: LoopBreaker | None = None,
    ) -> None:
        self.message_id = message_id
        self.calls: list[ToolCall] = []
        self.call_ids: list[str] = []
        self.lasting_calls: set[str] = set()
        self.waiting: list[Effects] = []
        self.loop_breaker = loop_breaker
        self._on_start = on_start
        self._services = services
        self._tasks: list[asyncio.Task[ToolResult]] = []
        self._is_over = False

    def submit(self, call: ToolCall) -> asyncio.Task[ToolResult]:
        """Start a call, queued behind those that came before it. Raises `ClosedError` after the block was left."""
        from wieldy.engine.pipeline import handle  # a session sends its first request without it

        if self._is_over:
            raise ClosedError("this turn is over; begin another one with `async with box.turn()`")
        self.calls.append(call)
        self.call_ids.append(call.id)
        task = asyncio.get_running_loop().create_task(handle(call, self._services, self))
        self._tasks.append(task)
        return task

    def add_adviser(self, adviser: Adviser) -> None:
        """Have the calls from now on judged with one more opinion."""
        self._services = replace(self._services, advisers=(*self._services.advisers, adviser))

    async def begin(self, plan: PlannedCall) -> None:
        """Note that a call is about to start."""
        lasts = any(map(is_lasting, plan.effects))
        if lasts:
            self.lasting_calls.add(plan.call.id)
        if self._on_start is not None:
            replay = plan.tool.replay_of(plan.effects)
            if lasts or replay != "safe":
                await self._on_start(plan.call.id, replay, lasts)

    async def results(self) -> list[ToolResult]:
        """Every call's result, in order, once all have one."""
        return [await task for task in self._tasks]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over = True
        running = [task for task in self._tasks if not task.done()]
        if error is not None:
            for task in running:
                task.cancel()
        if running:
            await asyncio.wait(running)
