"""Foreign code on a leash: run in a task of its own, so that it can be stopped on time whatever it does."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, copy_context
from typing import Any, Generic, TypeVar

from wieldy.core.abort import Abort
from wieldy.core.errors import WieldyError
from wieldy.core.logs import log

T = TypeVar("T")


class Deadlines:
    """One timer of the loop for each number of seconds in use, whatever the number of calls."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: dict[float, dict[Callable[[], None], float]] = {}
        self._timers: dict[float, asyncio.TimerHandle] = {}

    def add(self, loop: asyncio.AbstractEventLoop, seconds: float, wake: Callable[[], None]) -> None:
        """Have `wake` called after so many seconds, unless it is dropped before."""
        if loop is not self._loop:
            self._loop, self._waiting, self._timers = loop, {}, {}
        due = loop.time() + seconds
        self._waiting.setdefault(seconds, {})[wake] = due
        if seconds not in self._timers:
            self._timers[seconds] = loop.call_at(due, self._ring, seconds)

    def drop(self, seconds: float, wake: Callable[[], None]) -> None:
        """The work ended by itself."""
        self._waiting.get(seconds, {}).pop(wake, None)

    def _ring(self, seconds: float) -> None:
        assert self._loop is not None
        del self._timers[seconds]
        waiting, now = self._waiting[seconds], self._loop.time()
        while waiting:
            wake, due = next(iter(waiting.items()))
            if due > now:
                self._timers[seconds] = self._loop.call_at(due, self._ring, seconds)
                return
            del waiting[wake]
            wake()
        del self._waiting[seconds]


def at_once(work: Coroutine[Any, Any, T]) -> T | asyncio.Task[T]:
    """What some work comes to, if it need not wait for anything; else the task that goes on with it.

    Only for work that does not ask which task it is in before it first waits: it has none then.
    """
    context = copy_context()
    try:
        waits_for = context.run(work.send, None)
    except StopIteration as end:
        result: T = end.value
        return result
    except Exception as error:
        return begun(_failed(error))
    rest = _Rest(work, waits_for)
    task = begun(_gone_on(rest), context)
    if not rest.awaited:  # a task that is cancelled before its first step tells nobody
        task.add_done_callback(lambda _: work.close())
    return task


async def _gone_on(rest: _Rest[T]) -> T:
    return await rest


async def _failed(error: Exception) -> Any:
    raise error


class _Rest(Generic[T]):
    """Some work from the point on where it first waits."""

    __slots__ = ("_waits_for", "_work", "awaited")

    def __init__(self, work: Coroutine[Any, Any, T], waits_for: Any) -> None:
        self._work = work
        self._waits_for = waits_for
        self.awaited = False

    def __await__(self) -> Generator[Any, Any, T]:
        self.awaited, waits_for = True, self._waits_for
        while True:
            try:
                yield waits_for
            except BaseException as error:
                try:
                    waits_for = self._work.throw(error)
                except StopIteration as end:
                    result: T = end.value
                    return result
            else:
                return (yield from self._work.__await__())


if sys.version_info >= (3, 12):

    def begun(work: Coroutine[Any, Any, T], context: Context | None = None) -> asyncio.Task[T]:
        """A task for some work, which has done already what it could do without waiting."""
        return asyncio.Task(work, loop=asyncio.get_running_loop(), context=context, eager_start=True)

else:

    def begun(work: Coroutine[Any, Any, T], context: Context | None = None) -> asyncio.Task[T]:
        """A task for some work, which has done already what it could do without waiting."""
        loop, first = asyncio.get_running_loop(), _FirstStep()
        context = copy_context() if context is None else context  # an empty one counts as false
        try:
            loop.call_soon = first  # type: ignore[method-assign, assignment]
        except AttributeError:  # a loop that is not written in Python: the step is taken a little later
            return loop.create_task(work, context=context)
        try:
            task = asyncio.Task(work, loop=loop, context=context, name="wieldy")
        finally:
            del loop.call_soon
        outer = asyncio.tasks._current_tasks.get(loop)  # type: ignore[attr-defined]
        if outer is None:
            context.run(first.step)
            return task
        asyncio.tasks._leave_task(loop, outer)  # each is the current task while it runs
        try:
            context.run(first.step)
        finally:
            asyncio.tasks._enter_task(loop, outer)
        return task

    class _FirstStep:
        """Where a new task puts its first step instead of into the loop: Python 3.11 has no other way to have it now."""

        __slots__ = ("step",)

        def __call__(self, step: Any, *, context: Context | None = None) -> None:
            self.step = step


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


class Supervisor:
    """Holds work until it ends, is aborted or runs out of time. Work that will not stop is let go and reaped later."""

    def __init__(self, grace: float = GRACE_SECONDS) -> None:
        self.grace = grace
        self._strays: set[asyncio.Task[Any]] = set()
        self._deadlines = Deadlines()

    async def run(self, work: Coroutine[Any, Any, T], abort: Abort, seconds: float | None = None) -> T:
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
