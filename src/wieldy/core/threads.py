"""Run blocking functions off the event loop, in daemon threads: one that never returns cannot keep the process alive.

There are two pools for the whole process: one for our own work, which is short, and one for functions of the program (tools,
hooks, `ask`, subscribers), which may take as long as they like. So the functions of a program never delay our own work.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import inspect
import os
import queue
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from types import GeneratorType
from typing import Any, TypeVar

from wieldy.core.logs import log

T = TypeVar("T")

POOL_THREADS = 32
MAX_POOL_THREADS = 256
STARVED_SECONDS = 0.5
IDLE_SECONDS = 5.0


async def in_thread(function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Return the result of a blocking function of ours. When the wait is cancelled, it is run to its end all the same."""
    return await _start(_own_pool, function, args, kwargs)


async def in_program_thread(function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Return the result of a function of the program. When the wait is cancelled before it has begun, it is not called."""
    return await _start(_program_pool, function, args, kwargs, skip_if_cancelled=True)


async def call_function(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function of the program: a coroutine function on the event loop, a plain one in a thread, as it may block."""
    call = function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004
    is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)
    value = function(*args) if is_async else await in_program_thread(function, *args)
    return await value if isinstance(value, Awaitable) else value


async def in_thread_uncancellable(function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Like `in_thread`, but a cancellation takes effect only after the function has returned."""
    future = _start(_own_pool, function, args, kwargs)
    cancellation: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait((future,))
        except asyncio.CancelledError as error:
            cancellation = error
    if cancellation is not None:
        future.exception()  # retrieved, so that asyncio does not report it as lost
        raise cancellation
    return future.result()


async def iterate_in_threads(function: Callable[..., Any], kwargs: Mapping[str, Any], *args: Any) -> AsyncIterator[Any]:
    """Drive a sync function or generator of the program in threads: yield what it yields, then what it returns."""
    value = await in_program_thread(function, *args, **kwargs)
    if not isinstance(value, GeneratorType):
        yield value
        return
    try:
        while True:
            has_more, item = await in_program_thread(_next, value)
            if has_more or item is not None:
                yield item
            if not has_more:
                return
    finally:
        value.close()


def run_waiting(function: Callable[..., object], *args: Any) -> None:
    """Run a function that waits for as long as a process lives, in a thread of its own.

    Where the system allows no more threads, those of the pool do it. Raises `RuntimeError` where it allows none at all.
    """
    try:
        threading.Thread(target=function, args=args, name="wieldy-waiting", daemon=True).start()
    except RuntimeError:
        run_in_background(function, *args)


def run_in_background(function: Callable[..., object], *args: Any, of_program: bool = False) -> None:
    """Run a function that nobody waits for; an exception is logged. Raises `RuntimeError` where the system allows no thread."""

    def job() -> None:
        try:
            function(*args)
        except BaseException:  # `sys.exit` too: it must not end a thread that the pool counts on
            log.exception("background work failed")

    (_program_pool if of_program else _own_pool).start(job)


class ThreadPool:
    """Runs jobs in a bounded number of threads: `POOL_THREADS`, and more of them only while all are stuck.

    An idle thread is reused; a job that finds none waits in a backlog. Some jobs never return, and some wait for others. So
    threads are added, up to `MAX_POOL_THREADS`, where a backlog has not moved for `STARVED_SECONDS`: jobs that wait for a job
    in the backlog cannot deadlock.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self.reset_after_fork()

    def reset_after_fork(self) -> None:
        """Forget the threads and their jobs: they do not exist in the child."""
        self._lock = threading.Lock()
        self._idle: list[queue.SimpleQueue[Callable[[], None]]] = []
        self._backlog: deque[Callable[[], None]] = deque()
        self._threads = 0
        self._taken = 0  # jobs that were taken from the backlog
        self._is_watched = False

    def start(self, job: Callable[[], None]) -> None:
        """Run a job as soon as a thread is free. Raises `RuntimeError` where the system allows no thread at all."""
        with self._lock:
            if self._idle:
                self._idle.pop().put(job)
                return
            if self._threads < POOL_THREADS and self._add_thread(job, needed=not self._threads):
                return
            self._backlog.append(job)
            if not self._is_watched:
                self._watch()

    def _watch(self) -> None:
        self._is_watched = False
        with suppress(RuntimeError):  # no thread for the timer: the threads that exist must do
            timer.call_later(STARVED_SECONDS, partial(self._check_progress, self._taken))
            self._is_watched = True

    def _add_thread(self, job: Callable[[], None], *, needed: bool = False) -> bool:
        inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        try:
            threading.Thread(target=self._work, args=(inbox,), name=self._name, daemon=True).start()
        except RuntimeError:
            if needed:
                raise
            return False  # the system allows no more: the threads that exist do the job
        self._threads += 1
        inbox.put(job)
        return True

    def _check_progress(self, taken_before: int) -> None:
        """Add threads where nothing was taken from the backlog since the last check."""
        with self._lock:
            if not self._backlog:
                self._is_watched = False
                return
            if self._taken == taken_before:
                for _ in range(min(max(self._threads // 4, 1), MAX_POOL_THREADS - self._threads, len(self._backlog))):
                    if not self._add_thread(self._backlog[0]):
                        break
                    self._backlog.popleft()
            self._watch()

    def _work(self, inbox: queue.SimpleQueue[Callable[[], None]]) -> None:
        while True:
            try:
                job = inbox.get(timeout=IDLE_SECONDS)
            except queue.Empty:
                with self._lock:
                    if inbox in self._idle:
                        self._idle.remove(inbox)
                        self._threads -= 1
                        return
                job = inbox.get()
            while True:
                job()
                del job  # it may hold large arguments while the thread idles
                with self._lock:
                    if not self._backlog:
                        self._idle.append(inbox)
                        break
                    job = self._backlog.popleft()
                    self._taken += 1


class Timer:
    """Calls functions at their time, in one thread for the whole process. The functions must not block."""

    def __init__(self) -> None:
        self.reset_after_fork()

    def reset_after_fork(self) -> None:
        self._changed = threading.Condition()
        self._calls: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._is_running = False

    def call_later(self, seconds: float, function: Callable[[], None]) -> None:
        """Call a function so many seconds from now. Raises `RuntimeError` where no thread can be started."""
        with self._changed:
            if not self._is_running:
                threading.Thread(target=self._work, name="wieldy-timer", daemon=True).start()
                self._is_running = True
            self._count += 1
            call = (time.monotonic() + seconds, self._count, function)
            heapq.heappush(self._calls, call)
            if self._calls[0] is call:
                self._changed.notify()

    def _work(self) -> None:
        while True:
            with self._changed:
                if not self._calls and not self._changed.wait_for(lambda: self._calls, IDLE_SECONDS):
                    self._is_running = False
                    return
                left = self._calls[0][0] - time.monotonic()
                if left > 0:
                    self._changed.wait(left)
                    continue
                function = heapq.heappop(self._calls)[2]
            try:
                function()
            except Exception:
                log.exception("a timer's function failed")
            del function


timer = Timer()
_own_pool = ThreadPool("wieldy-work")
_program_pool = ThreadPool("wieldy-program")
if hasattr(os, "register_at_fork"):
    for _each in (timer, _own_pool, _program_pool):
        os.register_at_fork(after_in_child=_each.reset_after_fork)


def _start(
    pool: ThreadPool,
    function: Callable[..., T],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    *,
    skip_if_cancelled: bool = False,
) -> asyncio.Future[T]:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    call = partial(contextvars.copy_context().run, function, *args, **kwargs)

    def job() -> None:
        if skip_if_cancelled and future.cancelled():
            return
        try:
            settle = partial(_set_result, future, call())
        except StopIteration:
            settle = partial(_set_exception, future, RuntimeError("the function raised StopIteration"))
        except BaseException as error:
            settle = partial(_set_exception, future, error)
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle)

    pool.start(job)
    return future


def _set_result(future: asyncio.Future[T], value: T) -> None:
    if not future.done():
        future.set_result(value)


def _set_exception(future: asyncio.Future[Any], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)


def _next(generator: Any) -> tuple[bool, Any]:
    try:
        return True, next(generator)
    except StopIteration as stop:
        return False, stop.value
