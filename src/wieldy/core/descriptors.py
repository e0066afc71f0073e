"""File descriptors: raise the limit of this process, and let calls wait while none are left."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import cache

TARGET = 65_536
SPARE = 64
"""Descriptors that are never planned for: logs, locks, connections."""
PER_CALL = 10
"""What a call may open: a pipe or two, a pidfd, the files it works on."""
SETTLE_SECONDS = 0.25
"""How long after its start a call may still be opening them."""
MAX_WAIT = 30.0


@cache
def raise_descriptor_limit() -> int:
    """Raise the soft limit as far as is useful and allowed; returns it."""
    if sys.platform == "win32":
        return TARGET
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = TARGET if hard == resource.RLIM_INFINITY else min(TARGET, hard)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return TARGET if soft == resource.RLIM_INFINITY else soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError):
        return soft
    return wanted


class DescriptorGate:
    """Holds back calls while this process is short of descriptors, but never for good: others may hold them all."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._running = 0
        self._recent: deque[float] = deque()
        self._waiters: deque[asyncio.Future[None]] = deque()

    @asynccontextmanager
    async def call(self) -> AsyncIterator[None]:
        """Wait until a call can have what it needs. With no other call running there is nothing to wait for."""
        deadline = time.monotonic() + MAX_WAIT
        while self._running and self._is_short() and time.monotonic() < deadline:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await asyncio.wait((waiter,), timeout=SETTLE_SECONDS)
        self._recent.append(time.monotonic())
        self._running += 1
        try:
            yield
        finally:
            self._running -= 1
            if self._waiters:
                waiter = self._waiters.popleft()
                # Sessions in other threads have loops of their own.
                with suppress(RuntimeError):
                    waiter.get_loop().call_soon_threadsafe(_wake, waiter)

    def _is_short(self) -> bool:
        while self._recent and self._recent[0] < time.monotonic() - SETTLE_SECONDS:
            self._recent.popleft()
        return open_descriptors() + PER_CALL * (len(self._recent) + 1) + SPARE > self._limit


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def open_descriptors() -> int:
    """How many descriptors this process has open; 0 if the system does not tell."""
    try:
        return len(os.listdir("/dev/fd"))
    except OSError:
        return 0


@cache
def process_gate() -> DescriptorGate:
    """The gate that all sessions of this process share."""
    return DescriptorGate(raise_descriptor_limit())
