"""Blocking functions off the event loop. Threads are daemons: one that never returns cannot keep the program from ending."""

from __future__ import annotations

import asyncio
import contextvars
import os
import queue
import threading
from asyncio.selector_events import BaseSelectorEventLoop
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from functools import partial
from types import GeneratorType
from typing import Any, TypeAlias, TypeVar
from weakref import WeakKeyDictionary, ref

Call: TypeAlias = Callable[[], object]


def homeward(loop: asyncio.AbstractEventLoop) -> Callable[[Call], object]:
    """What has functions called on a loop, from any thread: in the order in which they are sent, and behind whatever
    `call_soon_threadsafe` was given before. To be asked for on the loop itself."""
    known = _counters.get(loop)
    counter = None if known is None else known()
    if counter is None:
        counter = _counter_of(loop)
    return loop.call_soon_threadsafe if counter is None else counter.send


def _counter_of(loop: asyncio.AbstractEventLoop) -> _Counter | None:
    # Other loops may see a counter before they make the calls that they were given earlier.
    if not isinstance(loop, BaseSelectorEventLoop) or not hasattr(os, "eventfd") or loop.is_closed():
        return None
    try:
        counter = _Counter(loop, os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC))
    except OSError:  # no descriptor to be had
        return None
    _counters[loop] = ref(counter)
    return counter


class _Counter:
    """Calls on their way to one loop, which watches their number."""

    def __init__(self, loop: asyncio.AbstractEventLoop, number: int) -> None:
        self._calls: deque[Call] = deque()
        self._number = number
        # In a context of its own: whoever happens to come first has nothing to do with later calls.
        contextvars.Context().run(loop.add_reader, self._number, self._arrived)

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        close(self._number)

    def send(self, call: Call) -> None:
        """Have a function called. A loop that is closed does not hear of it."""
        self._calls.append(call)
        os.eventfd_write(self._number, 1)

    def _arrived(self) -> None:
        os.eventfd_read(self._number)  # there is something in it, and nobody else takes it out
        try:
            while self._calls:
                self._calls.popleft()()
        finally:
            if self._calls:
                os.eventfd_write(self._number, 1)


# A counter belongs to its loop alone, and goes when that is closed.
_counters: WeakKeyDictionary[asyncio.AbstractEventLoop, ref[_Counter]] = WeakKeyDictionary()


T = TypeVar("T")

IDLE_SECONDS = 5.0


class Threads:
    """Reuses idle threads and starts a new one when none is idle, so that a stuck call never delays another."""

    def __init__(self) -> None:
        self._idle: list[queue.SimpleQueue[Callable[[], None]]] = []
        self._lock = threading.Lock()

    def start(self, job: Callable[[], None]) -> None:
        """Run a job in some thread, now."""
        with self._lock:
            inbox = self._idle.pop() if self._idle else None
        if inbox is None:
            inbox = queue.SimpleQueue()
            threading.Thread(target=self._work, args=(inbox,), name="wieldy-tool", daemon=True).start()
        inbox.put(job)

    def forget(self) -> None:
        """Know of no thread: in a fork there are none."""
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
            del job
            with self._lock:
                self._idle.append(inbox)


_threads = Threads()
_at_work = threading.local()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_threads.forget)


async def in_thread(function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """The result of a blocking function. When the wait is cancelled the thread is left to finish by itself."""
    return await begin_in_thread(function, *args, **kwargs)


async def in_thread_to_the_end(function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """The same, but never left half-way: who is cancelled waits until the function is through."""
    future: asyncio.Future[T] = _Unstoppable()
    _threads.start(_Call(future, function, args, kwargs))
    return await future


def begin_in_thread(function: Callable[..., T], *args: Any, **kwargs: Any) -> asyncio.Future[T]:
    """What a blocking function that starts now will come to."""
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    _threads.start(_Call(future, function, args, kwargs))
    return future


def afterwards(function: Callable[..., object], *args: Any) -> None:
    """Call a function that nobody needs to wait for: when the result of the call this thread is at is on its way, or at
    once where it is at none. What it raises is not heard of."""
    rest: list[Callable[[], object]] | None = getattr(_at_work, "rest", None)
    if rest is not None:
        rest.append(partial(function, *args))
        return
    with suppress(Exception):
        function(*args)


class _Unstoppable(asyncio.Future[T]):
    """Cannot be cancelled: who waits for it and is cancelled hears of that when it is done. Who waits first goes on at once
    when it is, not at the next turn of the loop."""

    _first: tuple[Callable[[Any], object], contextvars.Context | None] | None = None

    def cancel(self, msg: Any | None = None) -> bool:
        """Refuse; the task that waits keeps in mind that it is to be cancelled."""
        return False

    def add_done_callback(
        self, function: Callable[[Any], object], *, context: contextvars.Context | None = None
    ) -> None:
        """See `asyncio.Future`."""
        if self._first is None and not self.done():
            self._first = function, context
        else:
            super().add_done_callback(function, context=context)

    def set_result(self, result: T) -> None:
        """See `asyncio.Future`."""
        super().set_result(result)
        self._go_on()

    def set_exception(self, exception: type | BaseException) -> None:
        """See `asyncio.Future`."""
        super().set_exception(exception)
        self._go_on()

    def _go_on(self) -> None:
        first, self._first = self._first, None
        if first is not None:
            function, context = first
            (contextvars.copy_context() if context is None else context).run(function, self)


class _Call:
    """A function on its way through a thread. What goes in and comes out may be large: it is held no longer than needed,
    whenever the thread gets round to leaving."""

    __slots__ = ("_context", "_failure", "_future", "_homeward", "_value", "_work")

    def __init__(
        self, future: asyncio.Future[T], function: Callable[..., T], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> None:
        self._work: tuple[Any, ...] | None = (function, args, kwargs)
        self._context = contextvars.copy_context()
        self._homeward = homeward(future.get_loop())
        self._future: asyncio.Future[Any] | None = future
        self._value: Any = None
        self._failure: BaseException | None = None

    def __call__(self) -> None:
        """Run, let the loop know, and do what was left for afterwards."""
        assert self._work is not None
        rest: list[Callable[[], object]] = []
        _at_work.rest = rest
        function, args, kwargs = self._work
        try:
            self._value = self._context.run(function, *args, **kwargs)
        except BaseException as failure:
            self._failure = failure
        self._work = function = args = kwargs = None
        _at_work.rest = None
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._homeward(self._settle)
        for left in rest:
            with suppress(Exception):
                left()

    def _settle(self) -> None:
        future, value, failure = self._future, self._value, self._failure
        self._future = self._value = self._failure = None
        if future is None or future.done():
            return
        if failure is None:
            future.set_result(value)
        elif isinstance(failure, StopIteration):
            future.set_exception(RuntimeError("the function raised StopIteration"))
        else:
            future.set_exception(failure)


async def stepped(function: Callable[..., Any], kwargs: Mapping[str, Any], *args: Any) -> AsyncIterator[Any]:
    """Drive a sync function or generator in threads, as an async generator of what it yields, then what it returns."""
    value = await in_thread(function, *args, **kwargs)
    if not isinstance(value, GeneratorType):
        yield value
        return
    try:
        while True:
            more, item = await in_thread(_next, value)
            if more or item is not None:
                yield item
            if not more:
                return
    finally:
        value.close()


def _next(generator: Any) -> tuple[bool, Any]:
    try:
        return True, next(generator)
    except StopIteration as stop:
        return False, stop.value
