"""Working time: wall time without the waits for rate limits and retries."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class WorkClock:
    """Measures an attempt on two clocks. Waits may overlap; each moment is counted once."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._started = now()
        self._waited = 0.0
        self._waits = 0
        self._wait_started = 0.0

    @property
    def wall(self) -> float:
        return self._now() - self._started

    @property
    def waited(self) -> float:
        return self._waited + (self._now() - self._wait_started if self._waits else 0.0)

    @property
    def working(self) -> float:
        return self.wall - self.waited

    @property
    def is_waiting(self) -> bool:
        return self._waits > 0

    def begin_wait(self) -> None:
        if self._waits == 0:
            self._wait_started = self._now()
        self._waits += 1

    def end_wait(self) -> None:
        self._waits -= 1
        if self._waits == 0:
            self._waited += self._now() - self._wait_started

    @contextmanager
    def waiting(self) -> Iterator[None]:
        self.begin_wait()
        try:
            yield
        finally:
            self.end_wait()
