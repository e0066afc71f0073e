"""Runs wieldy on an event loop whose clock counts what the program does, not how long it waits for a processor.

On a busy machine a callback can take long without doing much. This clock counts the processor time of the loop's thread and
the time spent waiting for events, so asyncio's debug mode reports what is slow by itself.
"""

from __future__ import annotations

import asyncio
import selectors
import sys
import time
import warnings


class TimedSelector(selectors.DefaultSelector):
    """A selector that knows how long it waited."""

    waited = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        start = time.monotonic()
        try:
            return super().select(timeout)
        finally:
            self.waited += time.monotonic() - start


class ProcessorTimeLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock stands still while its thread is not running."""

    def __init__(self) -> None:
        self._timed_selector = TimedSelector()
        super().__init__(self._timed_selector)

    def time(self) -> float:
        return time.thread_time() + self._timed_selector.waited


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # policies go away in Python 3.16

        class ProcessorTimePolicy(asyncio.DefaultEventLoopPolicy):
            def new_event_loop(self) -> asyncio.AbstractEventLoop:
                return ProcessorTimeLoop()

        asyncio.set_event_loop_policy(ProcessorTimePolicy())
    sys.path.pop(0)
    from wieldy.__main__ import program

    program()
