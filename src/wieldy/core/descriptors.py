"""File descriptors of this process: the limit, those that are open only for speed, and calls that wait for some."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import cache
from typing import ClassVar, Protocol
from weakref import WeakSet

from wieldy.core.threads import in_thread

TARGET = 65_536
SPARE = 64
"""Descriptors that are never planned for: logs, locks, connections."""
PER_CALL = 10
"""What a call may open: a pipe or two, a pidfd, the files it works on."""
SETTLE_SECONDS = 2.0
"""How long after its start a call may still be opening them, on a busy machine."""
POLL_SECONDS = 0.25
PER_SESSION = 128
"""What a session with several calls at once may open. Where that leaves room for all sessions, no call is held back."""
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


class IdleDescriptors(Protocol):
    """Something that keeps descriptors open only to be faster the next time."""

    def release_if_idle(self) -> None:
        """Close them unless they are in use."""
        ...


class DescriptorGate:
    """Holds back calls while this process is short of descriptors, but never for good: others may hold them all.

    `of_process` is the gate that all sessions of this process share; None while the limit is far away.
    """

    of_process: ClassVar[DescriptorGate | None] = None

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._started: dict[object, float] = {}  # when the running calls began
        self._waiters: deque[asyncio.Future[None]] = deque()

    @asynccontextmanager
    async def call(self) -> AsyncIterator[None]:
        """Wait until a call can have what it needs. With no other call running there is nothing to wait for."""
        deadline = time.monotonic() + MAX_WAIT
        while self._is_short():
            await in_thread(release_idle_descriptors)
            if not self._started or not self._is_short() or time.monotonic() > deadline:
                break
            await self._wait_for_an_end()
        token = object()
        self._started[token] = time.monotonic()
        try:
            yield
        finally:
            del self._started[token]
            # Sessions in other threads have loops of their own, which may be closed, and take waiters at the same time.
            with suppress(IndexError, RuntimeError):
                waiter = self._waiters.popleft()
                waiter.get_loop().call_soon_threadsafe(_wake, waiter)

    async def _wait_for_an_end(self) -> None:
        """Wait until another call ends, but not for long: descriptors become free without that, too."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await asyncio.wait((waiter,), timeout=POLL_SECONDS)
        finally:
            with suppress(ValueError, IndexError):
                self._waiters.remove(waiter)

    def _is_short(self) -> bool:
        left = self._limit - SPARE - open_descriptors()
        if PER_CALL * (len(self._started) + 1) <= left:  # enough even if every call were still opening some
            return False
        settled = time.monotonic() - SETTLE_SECONDS
        opening = sum(started > settled for started in list(self._started.values()))
        return PER_CALL * (opening + 1) > left


_idle_descriptors: WeakSet[IdleDescriptors] = WeakSet()
_sessions: WeakSet[object] = WeakSet()
_lock = threading.Lock()


def add_idle_descriptors(holder: IdleDescriptors) -> None:
    """Have something close its idle descriptors when this process is short of them."""
    with _lock:
        _idle_descriptors.add(holder)


def add_session(session: object) -> None:
    """Raise the limit; from the session on for which there may be no room, calls are held back while it is so."""
    limit = raise_descriptor_limit()
    with _lock:
        _sessions.add(session)
        if DescriptorGate.of_process is None and len(_sessions) * PER_SESSION > limit - SPARE:
            DescriptorGate.of_process = DescriptorGate(limit)


def release_idle_descriptors() -> None:
    """Close what is open only for speed. Blocking."""
    with _lock:
        holders = list(_idle_descriptors)
    for holder in holders:
        holder.release_if_idle()


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def open_descriptors() -> int:
    """How many descriptors this process has open; 0 if the system does not tell."""
    try:
        return len(os.listdir("/dev/fd"))
    except OSError:
        return 0
