"""SIGINT and SIGTERM during `wieldy -p`: the first ends the run in order, the second ends the process at once."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wieldy.agent.session import Session

EXIT_CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}


class SignalHandler:
    """Handles both signals while entered; `exit_code` belongs to the one that came. Keeps asyncio from adding its own."""

    def __init__(self) -> None:
        self.exit_code: int | None = None
        self._session: Session | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Any] | None = None
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> SignalHandler:
        for number in EXIT_CODES:
            self._previous[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *exc: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def interrupt_session(self, session: Session) -> None:
        """From now on abort this session's run, or cancel the current task while it waits between two runs."""
        self._session = session
        self._task = asyncio.current_task()
        self._loop = asyncio.get_running_loop()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        code = EXIT_CODES[signal.Signals(number)]
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._interrupt, code)
        elif number == signal.SIGINT:
            raise KeyboardInterrupt
        else:
            sys.exit(code)

    def _interrupt(self, code: int) -> None:
        if self.exit_code is not None:
            os._exit(code)
        self.exit_code = code
        if self._session is not None and self._session.running:
            self._session.abort()
        elif self._task is not None:
            self._task.cancel()
