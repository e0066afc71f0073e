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
        loop, context = asyncio.get_running_loop(), copy_context()
        first = _FirstStep(loop)
        try:
            loop.call_soon = first.take  # type: ignore[method-assign, assignment]
        except AttributeError:  # a loop that is not written in Python: the step is taken a little later
            return loop.create_task(work, context=context)
        try:
            task = asyncio.Task(work, loop=loop, context=context)
        finally:
            del loop.call_soon
        _step_in_place(loop, first.step, context)
        return task

    class _FirstStep:
        """Where a new task puts its first step instead of into the loop: Python 3.11 has no other way to have it now."""

        __slots__ = ("loop", "step")

        def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
            self.loop = loop
            self.step: Any = None

        def take(self, step: Any, *args: Any, context: Context | None = None) -> None:
            self.step = step

    def _step_in_place(loop: asyncio.AbstractEventLoop, step: Any, context: Context) -> None:
        """Take a task's step inside that of another, each being the current task while it runs."""
        outer = asyncio.current_task(loop)
        if outer is not None:
            asyncio.tasks._leave_task(loop, outer)
        try:
            context.run(step)
        finally:
            if outer is not None:
                asyncio.tasks._enter_task(loop, outer)
