"""The way from threads back to a loop: through a counter in the kernel where there is one, at a third of what a socket costs."""

from __future__ import annotations

import asyncio
import contextvars
import os
from asyncio.selector_events import BaseSelectorEventLoop
from collections import deque
from collections.abc import Callable
from typing import TypeAlias
from weakref import WeakKeyDictionary, ref

Call: TypeAlias = Callable[[], object]


def homeward(loop: asyncio.AbstractEventLoop) -> Callable[[Call], object]:
    """What has functions called on a loop, from any thread: in the order in which they are sent, and behind whatever
    `call_soon_threadsafe` was given before. To be asked for on the loop itself."""
    known = _counters.get(loop)
    counter = None if known is None else known()
    if counter is None:
        counter = _counter_of(loop)
    return loop.call_soon_threadsafe if counter is None else counter.send


def _counter_of(loop: asyncio.AbstractEventLoop) -> _Counter | None:
    # Other loops may see a counter before they make the calls that they were given earlier.
    if not isinstance(loop, BaseSelectorEventLoop) or not hasattr(os, "eventfd") or loop.is_closed():
        return None
    try:
        counter = _Counter(loop, os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC))
    except OSError:  # no descriptor to be had
        return None
    _counters[loop] = ref(counter)
    return counter


class _Counter:
    """Calls on their way to one loop, which watches their number."""

    def __init__(self, loop: asyncio.AbstractEventLoop, number: int) -> None:
        self._calls: deque[Call] = deque()
        self._number = number
        # In a context of its own: whoever happens to come first has nothing to do with later calls.
        contextvars.Context().run(loop.add_reader, self._number, self._arrived)

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        close(self._number)

    def send(self, call: Call) -> None:
        """Have a function called. A loop that is closed does not hear of it."""
        self._calls.append(call)
        os.eventfd_write(self._number, 1)

    def _arrived(self) -> None:
        os.eventfd_read(self._number)  # there is something in it, and nobody else takes it out
        try:
            while self._calls:
                self._calls.popleft()()
        finally:
            if self._calls:
                os.eventfd_write(self._number, 1)


# A counter belongs to its loop alone, and goes when that is closed.
_counters: WeakKeyDictionary[asyncio.AbstractEventLoop, ref[_Counter]] = WeakKeyDictionary()
