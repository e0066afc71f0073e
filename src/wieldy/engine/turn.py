"""The calls of one turn: each starts when it is submitted, results come in the order of the requests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import cache
from types import TracebackType
from typing import Any, Self

from wieldy.core.call import ToolCall
from wieldy.core.outcome import ToolResult
from wieldy.engine.services import Services
from wieldy.engine.supervise import at_once


@cache
def handler() -> Callable[..., Coroutine[Any, Any, ToolResult]]:
    """The way of one call, loaded with the first; to look for a module takes longer than some of its stages."""
    from wieldy.engine.pipeline import handle

    return handle


class Turn:
    """Owns the tasks of its calls: leaving the block early cancels what is still running.

    With `durable` calls that do something `lasting` are begun only when it is known where it must not be forgotten.
    """

    def __init__(self, services: Services, message_id: str | None = None) -> None:
        self._services = services
        self._message_id = message_id
        self.submitted: list[ToolCall] = []
        self._ids: list[str] = []
        self._tasks: list[asyncio.Task[ToolResult] | ToolResult] = []
        self.durable: Callable[[], Awaitable[None]] | None = None
        self.lasting = False

    def submit(self, call: ToolCall) -> asyncio.Task[ToolResult] | ToolResult:
        """Start a call now, behind those that came before it: its result, if it need not wait for anything, else its task."""
        self.submitted.append(call)
        self._ids.append(call.id)
        kept = self._kept if self.durable is not None else None
        running = at_once(handler()(call, self._services, self._message_id, self._ids, kept))
        self._tasks.append(running)
        return running

    def answer(self, call: ToolCall, result: ToolResult) -> None:
        """Give a call its result without running anything."""
        self.submitted.append(call)
        self._ids.append(call.id)
        self._tasks.append(result)

    async def _kept(self) -> None:
        assert self.durable is not None
        self.lasting = True
        await self.durable()

    async def results(self) -> list[ToolResult]:
        """Every call's result, in order, once all have one."""
        return [task if isinstance(task, ToolResult) else await task for task in self._tasks]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        running = [task for task in self._tasks if isinstance(task, asyncio.Task) and not task.done()]
        if error is not None:
            for task in running:
                task.cancel()
        if running:
            await asyncio.wait(running)
