"""Tasks that take their first step at once: work that never has to wait costs no turn of the loop."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from contextvars import Context, copy_context
from typing import Any, TypeVar

T = TypeVar("T")

if sys.version_info >= (3, 12):

    def begun(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """A task for some work, which has done already what it could do without waiting."""
        return asyncio.Task(work, loop=asyncio.get_running_loop(), eager_start=True)

else:

    def begun(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """A task for some work, which has done already what it could do without waiting."""
        loop, context, first = asyncio.get_running_loop(), copy_context(), _FirstStep()
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
