"""The mark of a socket: while fewer bytes than that have come, the kernel wakes nobody.

Where only words can come in so few bytes, nothing is late but words; and to be woken is most of what a piece costs.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable
from typing import Any

from wieldy.providers import leisure
from wieldy.providers.leisure import Leisure

AT_ONCE = 0.005  # seconds in which what lay below a mark is read once the mark is gone


class Watermark:
    """Of one connection. It is raised while what comes is calm; it falls when nothing was read for long: then `spill`.

    An ending may be shorter than its wire lets expect: then it is read when the mark falls, at most `LONGEST` too late.
    That happens once, and the mark of this connection is left alone from then on.
    """

    __slots__ = ("_fell", "_loop", "_read", "_socket", "_spill", "_timer", "_usable")

    def __init__(self, transport: asyncio.BaseTransport, spill: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._socket: Any = transport.get_extra_info("socket")
        self._spill = spill
        self._timer: asyncio.TimerHandle | None = None
        self._read = 0.0
        self._fell = float("-inf")
        # Elsewhere it is not promised that to lower a mark wakes who waits for what lies below it.
        self._usable = sys.platform == "linux"

    @property
    def raised(self) -> bool:
        """Whether something may have come that nobody was woken for."""
        return self._timer is not None

    def follow(self, judged: Leisure, data: bytes, now: float) -> None:
        """Stand where it may, after this was read and judged."""
        self._read = now
        if not judged.calm:
            if now - self._fell < AT_ONCE:
                self._usable = False
            self.lower()
        elif self._timer is None and self._usable and (least := judged.ending(data)) > 1 and self._set(least):
            self._timer = self._loop.call_at(now + leisure.LONGEST, self._look)

    def lower(self) -> None:
        """Wake for every byte again, and at once if there are any."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._set(1)

    def fall(self) -> None:
        """Nothing was read for long enough: give what lies below the mark."""
        self.lower()
        self._fell = self._loop.time()
        self._spill()

    def _look(self) -> None:
        """One timer looks now and then, instead of a new one for everything that is read."""
        until = self._read + leisure.LONGEST
        if self._loop.time() < until:
            self._timer = self._loop.call_at(until, self._look)
        else:
            self.fall()

    def _set(self, least: int) -> bool:
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, least)
        except (OSError, AttributeError):  # closed, or no socket of the kernel's
            self._usable = False
            return False
        return True
