"""Time limits of many pieces of work on few timers: work with the same number of seconds ends in the order it began."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


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
