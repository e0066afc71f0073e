"""Run third-party coroutines in their own task, with a deadline and a forced stop, while there are file descriptors left."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from functools import cache
from typing import Any, Protocol, TypeVar
from weakref import WeakSet

from wieldy.core.abort import Abort
from wieldy.core.errors import WieldyError
from wieldy.core.logs import log
from wieldy.core.threads import in_thread

T = TypeVar("T")

GRACE_SECONDS = 0.9


class Aborted(WieldyError):
    """The user interrupted; `partial` is what the coroutine returned while it was being stopped."""

    def __init__(self, reason: str, partial: Any = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.partial = partial


class TimedOut(WieldyError):
    """The deadline passed; `partial` is what the coroutine returned while it was being stopped."""

    def __init__(self, seconds: float, partial: Any = None) -> None:
        super().__init__(f"timed out after {seconds:g} s")
        self.seconds = seconds
        self.partial = partial


class HostExitAttempted(WieldyError):
    """Third-party code raised `SystemExit` or another exception that is meant to end the whole program."""

    def __init__(self, error: BaseException) -> None:
        text = " ".join(str(error).split())
        super().__init__(f"it tried to end the program ({type(error).__name__}{f': {text}' if text else ''})")


class Supervisor:
    """Waits for coroutines until they end, are aborted or time out. A task that ignores cancellation is abandoned after
    `grace` seconds and awaited later, in `aclose`."""

    def __init__(self, grace: float = GRACE_SECONDS) -> None:
        self.grace = grace
        self._abandoned: set[asyncio.Task[Any]] = set()

    async def run_call(self, start: Callable[[], Coroutine[Any, Any, T]], abort: Abort, seconds: float) -> T:
        """`run` a tool once this process has file descriptors left for it."""
        async with process_gate().call():
            return await self.run(start(), abort, seconds)

    async def run(self, coroutine: Coroutine[Any, Any, T], abort: Abort, seconds: float | None = None) -> T:
        """Return the coroutine's result. Raises `Aborted`, `TimedOut`, or whatever the coroutine raised."""
        if abort.aborted:
            coroutine.close()
            raise Aborted(abort.reason)
        loop = asyncio.get_running_loop()
        task = loop.create_task(_contain(coroutine))
        wakeup: asyncio.Future[None] = loop.create_future()

        def wake(_: object = None) -> None:
            if not wakeup.done():
                wakeup.set_result(None)

        task.add_done_callback(wake)
        listener = abort.listen(wake)
        timer = None if seconds is None else loop.call_later(seconds, wake)
        try:
            await wakeup
            if task.done():
                return _result(task)
            await self._stop(task)
        except asyncio.CancelledError:
            await self._stop(task)
            raise
        finally:
            abort.forget(listener)
            if timer is not None:
                timer.cancel()
        if abort.aborted:
            raise Aborted(abort.reason, _partial_result(task))
        assert seconds is not None
        raise TimedOut(seconds, _partial_result(task))

    async def wait(self, future: asyncio.Future[T], abort: Abort) -> T:
        """Return the result of a future of our own. Raises `Aborted`."""
        if abort.aborted:
            future.cancel()
            raise Aborted(abort.reason)
        listener = abort.listen(future.cancel)  # type: ignore[arg-type]
        try:
            return await future
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if abort.aborted and not (task is not None and task.cancelling()):
                raise Aborted(abort.reason) from None
            raise
        finally:
            abort.forget(listener)

    async def aclose(self) -> None:
        """Cancel abandoned tasks that still run, and give them a moment to end."""
        tasks = list(self._abandoned)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=self.grace)

    async def _stop(self, task: asyncio.Task[Any]) -> None:
        if task.done():
            return
        task.cancel()
        await asyncio.wait((task,), timeout=self.grace)
        if not task.done():
            self._abandoned.add(task)
            task.add_done_callback(self._reap)

    def _reap(self, task: asyncio.Task[Any]) -> None:
        self._abandoned.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("an abandoned task ended with an error", exc_info=error)


async def _contain(coroutine: Coroutine[Any, Any, T]) -> T:
    """Await a coroutine of third-party code, which must not end the program. Raises `HostExitAttempted`."""
    try:
        return await coroutine
    except (Exception, asyncio.CancelledError, GeneratorExit):
        raise
    except BaseException as error:
        raise_if_ctrl_c(error)
        raise HostExitAttempted(error) from error


def raise_if_ctrl_c(error: BaseException) -> None:
    """Raise an exception again that may come from the person's Ctrl-C.

    `asyncio.run` has a SIGINT handler of its own, which cancels; under that one, `KeyboardInterrupt` comes from the code itself.
    """
    if isinstance(error, KeyboardInterrupt) and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        raise error


def _result(task: asyncio.Task[T]) -> T:
    if task.cancelled():
        raise RuntimeError("it cancelled itself")
    if isinstance(task.exception(), GeneratorExit):
        raise RuntimeError("it raised GeneratorExit")  # the exception itself would close the coroutines that wait
    return task.result()


def _partial_result(task: asyncio.Task[Any]) -> Any:
    if not task.done() or task.cancelled() or task.exception() is not None:
        return None
    return task.result()


TARGET = 65_536
SPARE = 64
"""Descriptors that are never planned for: logs, locks, connections."""
PER_CALL = 10
"""What a call may open: a pipe or two, a pidfd, the files it works on."""
SETTLE_SECONDS = 2.0
"""How long after its start a call may still be opening them, on a busy machine."""
POLL_SECONDS = 0.25
FEW_HOLDERS = 8
"""So many idle descriptors are not worth closing."""
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
    """Holds back calls while this process is short of descriptors, but never for good: others may hold them all."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._started: dict[object, float] = {}  # when the running calls began
        self._waiters: deque[asyncio.Future[None]] = deque()

    @asynccontextmanager
    async def call(self) -> AsyncIterator[None]:
        """Wait until a call can have what it needs. With no other call running there is nothing to wait for."""
        deadline = time.monotonic() + MAX_WAIT
        # Counting takes as long as a small call: a program with one session does without.
        while (self._started or len(_idle_descriptors) > FEW_HOLDERS) and self._is_short():
            await in_thread(release_idle_descriptors)
            if not self._started or not self._is_short() or time.monotonic() > deadline:
                break
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await asyncio.wait((waiter,), timeout=POLL_SECONDS)
        token = object()
        self._started[token] = time.monotonic()
        try:
            yield
        finally:
            del self._started[token]
            if self._waiters:
                waiter = self._waiters.popleft()
                # Sessions in other threads have loops of their own.
                with suppress(RuntimeError):
                    waiter.get_loop().call_soon_threadsafe(_wake, waiter)

    def _is_short(self) -> bool:
        left = self._limit - SPARE - open_descriptors()
        if PER_CALL * (len(self._started) + 1) <= left:  # enough even if every call were still opening some
            return False
        settled = time.monotonic() - SETTLE_SECONDS
        opening = sum(started > settled for started in list(self._started.values()))
        return PER_CALL * (opening + 1) > left


_idle_descriptors: WeakSet[IdleDescriptors] = WeakSet()
_idle_lock = threading.Lock()


def add_idle_descriptors(holder: IdleDescriptors) -> None:
    """Have something close its idle descriptors when this process is short of them."""
    with _idle_lock:
        _idle_descriptors.add(holder)


def release_idle_descriptors() -> None:
    """Close what is open only for speed. Blocking."""
    with _idle_lock:
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


@cache
def process_gate() -> DescriptorGate:
    """The gate that all sessions of this process share."""
    return DescriptorGate(raise_descriptor_limit())
