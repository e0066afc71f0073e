"""Signals that end a command."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


class SignalHandler:
    """Handles SIGINT, SIGTERM and SIGHUP: the first ends what runs in order, a second one ends the process at once.

    `exit_code` is that of the signal that came. Installed before the event loop, so that asyncio adds no handler of its own.
    """

    def __init__(self) -> None:
        self.exit_code: int | None = None
        self._end: Callable[[str], object] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> SignalHandler:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if number == signal.SIGINT or signal.getsignal(number) is not signal.SIG_IGN:  # ignored under nohup
                self._previous[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *exc: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def call_on_signal(self, end: Callable[[str], object]) -> None:
        """From now on call `end` on the running loop, with a reason."""
        self._end, self._loop = end, asyncio.get_running_loop()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        code = 128 + number
        if self.exit_code is not None:
            os._exit(code)
        if self._end is not None and self._loop is not None and not self._loop.is_closed():
            self.exit_code = code
            is_user = number == signal.SIGINT
            reason = "interrupted by the user" if is_user else f"ended by {signal.Signals(number).name}"
            self._loop.call_soon_threadsafe(self._end, reason)
        elif number == signal.SIGINT:
            raise KeyboardInterrupt
        else:
            sys.exit(code)
