"""Work that takes its first step at once: if it never has to wait, it costs no turn of the loop."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine, Generator
from contextvars import Context, copy_context
from typing import Any, Generic, TypeVar

T = TypeVar("T")


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
