"""Ctrl-C and SIGTERM while nobody watches: the run ends in order, and a second signal ends the program at once."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wieldy.agent.session import Session

CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}


class Signals:
    """Caught from the outset, so that asyncio sets up none of its own; `code` is the exit code of the one that came."""

    def __init__(self) -> None:
        self.code: int | None = None
        self._session: Session | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: asyncio.Task[Any] | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Signals:
        for number in CODES:
            self._before[number] = signal.signal(number, self._arrived)
        return self

    def __exit__(self, *exc: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def attend(self, session: Session) -> None:
        """From now on signals interrupt this session, or whatever the current task waits for between two runs."""
        self._session = session
        self._waiting = asyncio.current_task()
        self._loop = asyncio.get_running_loop()

    def _arrived(self, number: int, frame: FrameType | None) -> None:
        code = CODES[signal.Signals(number)]
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._caught, code)
        elif number == signal.SIGINT:
            raise KeyboardInterrupt
        else:
            sys.exit(code)

    def _caught(self, code: int) -> None:
        if self.code is not None:
            os._exit(code)
        self.code = code
        if self._session is not None and self._session.running:
            self._session.abort()
        elif self._waiting is not None:
            self._waiting.cancel()
