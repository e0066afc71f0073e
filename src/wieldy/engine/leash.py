"""Foreign code on a leash: run in a task of its own, so that it can be stopped on time whatever it does."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from wieldy.core.abort import Abort
from wieldy.core.failure import WieldyError
from wieldy.core.log import log
from wieldy.engine.deadlines import Deadlines
from wieldy.engine.eager import begun

T = TypeVar("T")

GRACE_SECONDS = 0.9


class Aborted(WieldyError):
    """The person interrupted; `partial` is what the work gave back while it was being stopped."""

    def __init__(self, reason: str, partial: Any = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.partial = partial


class TimedOut(WieldyError):
    """The work did not end within its seconds; `partial` is what it gave back while it was being stopped."""

    def __init__(self, seconds: float, partial: Any = None) -> None:
        super().__init__(f"timed out after {seconds:g} s")
        self.seconds = seconds
        self.partial = partial


class Leash:
    """Holds work until it ends, is aborted or runs out of time. Work that will not stop is let go and reaped later."""

    def __init__(self, grace: float = GRACE_SECONDS) -> None:
        self.grace = grace
        self._strays: set[asyncio.Task[Any]] = set()
        self._deadlines = Deadlines()

    async def hold(self, work: Coroutine[Any, Any, T], abort: Abort, seconds: float | None = None) -> T:
        """The result of the work. Raises `Aborted`, `TimedOut`, or whatever the work raised."""
        if abort.aborted:
            work.close()
            raise Aborted(abort.reason)
        told = _Told()
        task = begun(_telling(work, told))
        if task.done():
            return self._result_of(task)
        loop = asyncio.get_running_loop()
        waiter = told.waiter = loop.create_future()
        wake = told.tell

        if seconds is not None:
            self._deadlines.add(loop, seconds, wake)
        key = abort.listen(wake)
        ended = False
        try:
            await waiter
            ended = task.done()
            if not ended:
                await self._stop(task)
        except asyncio.CancelledError:
            await self._stop(task)
            raise
        finally:
            abort.forget(key)
            if seconds is not None:
                self._deadlines.drop(seconds, wake)
            if task.cancelled() and work.cr_frame is not None:  # type: ignore[attr-defined]
                work.close()  # stopped before its first step: nobody else will tell it
        if ended:
            return self._result_of(task)
        partial = _what_it_gave(task)
        if abort.aborted:
            raise Aborted(abort.reason, partial)
        assert seconds is not None
        raise TimedOut(seconds, partial)

    async def wait(self, future: asyncio.Future[T], abort: Abort) -> T:
        """The result of a future of our own. Raises `Aborted`."""
        if abort.aborted:
            future.cancel()
            raise Aborted(abort.reason)
        key = abort.listen(future.cancel)  # type: ignore[arg-type]
        try:
            return await future
        except asyncio.CancelledError:
            if abort.aborted and not _cancelled_from_outside():
                raise Aborted(abort.reason) from None
            raise
        finally:
            abort.forget(key)

    async def aclose(self) -> None:
        """Cancel what was let go and is still running, and wait for it a moment."""
        strays = list(self._strays)
        for task in strays:
            task.cancel()
        if strays:
            await asyncio.wait(strays, timeout=self.grace)

    async def _stop(self, task: asyncio.Task[Any]) -> None:
        if task.done():
            return
        task.cancel()
        await asyncio.wait((task,), timeout=self.grace)
        if not task.done():
            self._strays.add(task)
            task.add_done_callback(self._reap)

    def _reap(self, task: asyncio.Task[Any]) -> None:
        self._strays.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("work that had been let go ended with an error", exc_info=error)

    @staticmethod
    def _result_of(task: asyncio.Task[T]) -> T:
        if task.cancelled():
            raise RuntimeError("it cancelled itself")
        return task.result()


class _Told:
    """Whoever waits for the end of some work, once somebody does."""

    __slots__ = ("waiter",)

    def __init__(self) -> None:
        self.waiter: asyncio.Future[None] | None = None

    def tell(self) -> None:
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)


async def _telling(work: Coroutine[Any, Any, T], told: _Told) -> T:
    """The work, telling of its end one turn of the loop earlier than a callback of the task would."""
    try:
        return await work
    finally:
        told.tell()


def _what_it_gave(task: asyncio.Task[Any]) -> Any:
    if not task.done() or task.cancelled() or task.exception() is not None:
        return None
    return task.result()


def _cancelled_from_outside() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
