"""Deliver events to any number of subscribers. One that fails or is slow loses its own events, and affects no other."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeAlias, cast

from wieldy.core.events import AnyEvent, Event, EventsDropped
from wieldy.core.logs import log
from wieldy.core.threads import run_in_background

MAX_BACKLOG = 10_000
DELIVERED_AT_ONCE = 100
CLOSE_SECONDS = 1.0

Subscriber: TypeAlias = Callable[[AnyEvent], Any] | Callable[[AnyEvent], Awaitable[Any]]


class Events:
    """Where every step of every call is announced.

    Emitters make no events unless `has_subscribers`, and no deltas of a model's answer unless `stream_deltas`.
    """

    def __init__(self) -> None:
        self._subscriptions: list[Subscription] = []
        self.has_subscribers = False
        self.stream_deltas = False

    def emit(self, event: Event) -> None:
        """Announce an event. Returns at once and never raises."""
        for subscription in self._subscriptions:
            subscription.put(event)

    def subscribe(self, subscriber: Subscriber, backlog: int = MAX_BACKLOG) -> Callable[[], None]:
        """Call a function with every event, in order: a coroutine function on the loop, a plain one in a thread."""
        kind = AsyncSubscription if _is_async(subscriber) else ThreadSubscription
        subscription = kind(subscriber, backlog)
        self._add(subscription)
        return lambda: self._remove(subscription)

    @asynccontextmanager
    async def stream(
        self, backlog: int = MAX_BACKLOG, *, stream_deltas: bool = True
    ) -> AsyncIterator[AsyncIterator[AnyEvent]]:
        """Iterate over the events from now until the end of the block; `stream_deltas` includes those of a model's answer."""
        subscription = LoopSubscription(backlog)
        subscription.stream_deltas = stream_deltas
        self._add(subscription)
        try:
            yield subscription.events()
        finally:
            self._remove(subscription)

    async def aclose(self) -> None:
        """Deliver what is waiting, within a second, and end all subscriptions."""
        subscriptions, self._subscriptions = self._subscriptions, []
        self._update_flags()
        for subscription in subscriptions:
            await subscription.aclose()

    def _add(self, subscription: Subscription) -> None:
        self._subscriptions.append(subscription)
        self._update_flags()

    def _remove(self, subscription: Subscription) -> None:
        if subscription in self._subscriptions:
            self._subscriptions.remove(subscription)
            self._update_flags()
            subscription.close()

    def _update_flags(self) -> None:
        self.has_subscribers = bool(self._subscriptions)
        self.stream_deltas = any(subscription.stream_deltas for subscription in self._subscriptions)


class Subscription:
    """A bounded queue of events for one subscriber; the oldest are dropped first."""

    def __init__(self, backlog: int) -> None:
        self.backlog = backlog
        self.pending: deque[AnyEvent] = deque()
        self.dropped = 0
        self.closed = False
        self.stream_deltas = True

    def put(self, event: Event) -> None:
        if len(self.pending) >= self.backlog:
            try:
                self.pending.popleft()
            except IndexError:
                pass  # the subscriber took it in another thread
            else:
                self.dropped += 1
        self.pending.append(cast(AnyEvent, event))
        self.wake()

    def take(self) -> AnyEvent | None:
        """Return the next event to deliver; first of all, how many were dropped."""
        if self.dropped:
            count, self.dropped = self.dropped, 0
            return EventsDropped(count=count)
        try:
            return self.pending.popleft()
        except IndexError:
            return None

    def wake(self) -> None:
        """Called when an event is pending, or the subscription was closed."""

    def close(self) -> None:
        self.closed = True
        self.wake()

    async def aclose(self) -> None:
        """Close; return when the rest is delivered, or soon."""
        self.close()


class ThreadSubscription(Subscription):
    """Calls a plain function in threads of the pool, with one event after the other, so that it may block."""

    def __init__(self, subscriber: Subscriber, backlog: int) -> None:
        super().__init__(backlog)
        self._subscriber = subscriber
        self._lock = threading.Lock()
        self._is_delivering = False
        self._on_delivered: Callable[[], None] | None = None

    def wake(self) -> None:
        with self._lock:
            if self._is_delivering or not (self.pending or self.dropped):
                return
            self._is_delivering = True
        self._start_delivery()

    def _start_delivery(self) -> None:
        try:
            run_in_background(self._deliver, of_program=True)
        except RuntimeError as error:  # the system allows no thread
            self._is_delivering = False
            log.error("events cannot be delivered: %s", error)

    def _deliver(self) -> None:
        for _ in range(DELIVERED_AT_ONCE):
            if (event := self.take()) is None:
                break
            try:
                self._subscriber(event)
            except BaseException:  # `sys.exit` too: the events to come are delivered all the same
                log.exception("a subscriber failed on %s", event.kind)
        with self._lock:
            self._is_delivering = has_more = bool(self.pending or self.dropped)
            on_delivered = None if has_more else self._on_delivered
        if has_more:
            self._start_delivery()  # again, so that others have their turn in between
        elif on_delivered is not None:
            on_delivered()

    async def aclose(self) -> None:
        self.close()
        loop = asyncio.get_running_loop()
        delivered = asyncio.Event()

        def on_delivered() -> None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(delivered.set)

        with self._lock:
            if not self._is_delivering:
                return
            self._on_delivered = on_delivered
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await delivered.wait()


class LoopSubscription(Subscription):
    """Delivers on the event loop it was made on; events may come from any thread."""

    def __init__(self, backlog: int) -> None:
        super().__init__(backlog)
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._waiter: asyncio.Future[None] | None = None

    def wake(self) -> None:
        if self._waiter is None:
            return
        if threading.get_ident() == self._thread:
            self._resume()
            return
        try:
            self._loop.call_soon_threadsafe(self._resume)
        except RuntimeError:
            return  # the loop is closed

    def _resume(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    async def events(self) -> AsyncIterator[AnyEvent]:
        """Every event until the subscription is closed."""
        while True:
            while (event := self.take()) is not None:
                yield event
            if self.closed:
                return
            waiter = self._waiter = self._loop.create_future()
            if self.pending or self.closed:  # it came from another thread, which saw no waiter
                self._waiter = None
                continue
            await waiter


class AsyncSubscription(LoopSubscription):
    """Awaits a coroutine function with one event after the other."""

    def __init__(self, subscriber: Subscriber, backlog: int) -> None:
        super().__init__(backlog)
        self._subscriber = subscriber
        self._task = self._loop.create_task(self._deliver())

    async def _deliver(self) -> None:
        async for event in self.events():
            try:
                await self._subscriber(event)
            except Exception:
                log.exception("a subscriber failed on %s", event.kind)

    async def aclose(self) -> None:
        self.close()
        await asyncio.wait((self._task,), timeout=CLOSE_SECONDS)
        self._task.cancel()


def _is_async(subscriber: Subscriber) -> bool:
    call = subscriber if inspect.isroutine(subscriber) else getattr(subscriber, "__call__", subscriber)  # noqa: B004
    return inspect.iscoroutinefunction(call)
