"""Run blocking functions off the event loop, in daemon threads: one that never returns cannot keep the process alive."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import os
import queue
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from types import GeneratorType
from typing import Any, TypeVar

from wieldy.core.logs import log

T = TypeVar("T")

IDLE_SECONDS = 5.0


async def in_thread(function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Return the result of a blocking function. When the wait is cancelled, the thread finishes on its own."""
    return await _start(function, args, kwargs)


async def call_function(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function of the user's: a coroutine function on the event loop, a plain one in a thread, as it may block."""
    call = function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004
    is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)
    value = function(*args) if is_async else await in_thread(function, *args)
    return await value if isinstance(value, Awaitable) else value


async def in_thread_uncancellable(function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Like `in_thread`, but a cancellation takes effect only after the function has returned."""
    future = _start(function, args, kwargs)
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
    """Drive a sync function or generator in threads: yield what it yields, then what it returns."""
    value = await in_thread(function, *args, **kwargs)
    if not isinstance(value, GeneratorType):
        yield value
        return
    try:
        while True:
            has_more, item = await in_thread(_next, value)
            if has_more or item is not None:
                yield item
            if not has_more:
                return
    finally:
        value.close()


def run_in_background(function: Callable[..., object], *args: Any) -> None:
    """Run a function that nobody waits for; an exception is logged."""

    def job() -> None:
        try:
            function(*args)
        except Exception:
            log.exception("background work failed")

    _pool.start(job)


class ThreadPool:
    """Reuses idle threads and starts a new one when none is idle, so that a stuck call never delays another."""

    def __init__(self) -> None:
        self._idle: list[queue.SimpleQueue[Callable[[], None]]] = []
        self._lock = threading.Lock()

    def start(self, job: Callable[[], None]) -> None:
        with self._lock:
            inbox = self._idle.pop() if self._idle else None
        if inbox is None:
            inbox = queue.SimpleQueue()
            threading.Thread(target=self._work, args=(inbox,), name="wieldy-tool", daemon=True).start()
        inbox.put(job)

    def reset_after_fork(self) -> None:
        """Forget the threads: they do not exist in the child."""
        self._idle = []
        self._lock = threading.Lock()

    def _work(self, inbox: queue.SimpleQueue[Callable[[], None]]) -> None:
        while True:
            try:
                job = inbox.get(timeout=IDLE_SECONDS)
            except queue.Empty:
                with self._lock:
                    if inbox in self._idle:
                        self._idle.remove(inbox)
                        return
                job = inbox.get()
            job()
            del job  # it may hold large arguments while the thread idles
            with self._lock:
                self._idle.append(inbox)


_pool = ThreadPool()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.reset_after_fork)


def _start(function: Callable[..., T], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> asyncio.Future[T]:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    call = partial(contextvars.copy_context().run, function, *args, **kwargs)

    def job() -> None:
        try:
            settle = partial(_set_result, future, call())
        except StopIteration:
            settle = partial(_set_exception, future, RuntimeError("the function raised StopIteration"))
        except BaseException as error:
            settle = partial(_set_exception, future, error)
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle)

    _pool.start(job)
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
