"""Events to any number of subscribers. One that fails or is slow loses events of its own and harms nobody else."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

from wieldy.core.events import Event, EventsDropped
from wieldy.core.logs import log

BACKLOG = 10_000

Subscriber: TypeAlias = Callable[[Event], Any] | Callable[[Event], Awaitable[Any]]


class Events:
    """Where every step of every call is announced. While nobody has `heard` them, events need not even be made, nor those of
    the pieces in which a model speaks while nobody follows so `closely`."""

    def __init__(self) -> None:
        self._feeds: list[Feed] = []
        self.has_subscribers = False
        self.stream_deltas = False

    def emit(self, event: Event) -> None:
        """Announce an event. Returns at once and never raises."""
        for feed in self._feeds:
            feed.put(event)

    def subscribe(self, subscriber: Subscriber, backlog: int = BACKLOG) -> Callable[[], None]:
        """Have a function called with every event, in order: a coroutine function on the loop, a plain one in a thread."""
        feed: Feed = AsyncFeed(subscriber, backlog) if _is_async(subscriber) else ThreadFeed(subscriber, backlog)
        self._add(feed)
        return lambda: self._drop(feed)

    @asynccontextmanager
    async def stream(
        self, backlog: int = BACKLOG, *, stream_deltas: bool = True
    ) -> AsyncIterator[AsyncIterator[Event]]:
        """The events from now on, as an iterator that ends with the block; `closely` with every piece a model says."""
        feed = StreamFeed(backlog)
        feed.stream_deltas = stream_deltas
        self._add(feed)
        try:
            yield feed.events()
        finally:
            self._drop(feed)

    async def aclose(self) -> None:
        """Deliver what is waiting, within reason, and let the subscribers go."""
        feeds, self._feeds, self.has_subscribers, self.stream_deltas = self._feeds, [], False, False
        for feed in feeds:
            await feed.aclose()

    def _add(self, feed: Feed) -> None:
        self._feeds.append(feed)
        self._tally()

    def _drop(self, feed: Feed) -> None:
        if feed in self._feeds:
            self._feeds.remove(feed)
            self._tally()
            feed.close()

    def _tally(self) -> None:
        self.has_subscribers = bool(self._feeds)
        self.stream_deltas = any(feed.stream_deltas for feed in self._feeds)


class Feed:
    """The events one subscriber has still to get, oldest dropped first when it falls too far behind."""

    def __init__(self, backlog: int) -> None:
        self.backlog = backlog
        self.waiting: deque[Event] = deque()
        self.dropped = 0
        self.closed = False
        self.stream_deltas = True

    def put(self, event: Event) -> None:
        """Queue an event."""
        if len(self.waiting) >= self.backlog:
            try:
                self.waiting.popleft()
            except IndexError:
                pass
            else:
                self.dropped += 1
        self.waiting.append(event)
        self.wake()

    def take(self) -> Event | None:
        """The next event to deliver; first of all, how many were lost."""
        if self.dropped:
            count, self.dropped = self.dropped, 0
            return EventsDropped(count=count)
        try:
            return self.waiting.popleft()
        except IndexError:
            return None

    def wake(self) -> None:
        """There is something to deliver, or nothing more to come."""

    def close(self) -> None:
        """Nothing more will come."""
        self.closed = True
        self.wake()

    async def aclose(self) -> None:
        """Nothing more will come; return when the rest is delivered, or soon."""
        self.close()


class ThreadFeed(Feed):
    """Calls a plain function from a thread of its own, so that it may block."""

    def __init__(self, subscriber: Subscriber, backlog: int) -> None:
        super().__init__(backlog)
        self._subscriber = subscriber
        self._ready = threading.Event()
        self._ended = threading.Event()
        threading.Thread(target=self._deliver, name="wieldy-events", daemon=True).start()

    def wake(self) -> None:
        """Let the thread look."""
        self._ready.set()

    def _deliver(self) -> None:
        while True:
            self._ready.wait()
            self._ready.clear()
            while (event := self.take()) is not None:
                try:
                    self._subscriber(event)
                except Exception:
                    log.exception("a subscriber failed on %s", event.kind)
            if self.closed:
                self._ended.set()
                return

    async def aclose(self) -> None:
        """Give the thread a second to deliver the rest."""
        self.close()
        await asyncio.to_thread(self._ended.wait, 1.0)


class LoopFeed(Feed):
    """Delivers on the event loop it was made on; events may come from any thread."""

    def __init__(self, backlog: int) -> None:
        super().__init__(backlog)
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._parked: asyncio.Future[None] | None = None

    def wake(self) -> None:
        """Let the loop look, from whichever thread this is. One that is looking already needs no telling."""
        parked = self._parked
        if parked is None:
            return
        if threading.get_ident() == self._thread:
            self._unpark()
            return
        try:
            self._loop.call_soon_threadsafe(self._unpark)
        except RuntimeError:
            return  # the loop is closed

    def _unpark(self) -> None:
        parked, self._parked = self._parked, None
        if parked is not None and not parked.done():
            parked.set_result(None)

    async def events(self) -> AsyncIterator[Event]:
        """Every event until the feed is closed."""
        waiting = self.waiting
        while True:
            while self.dropped or waiting:
                if (event := self.take()) is not None:
                    yield event
            if self.closed:
                return
            parked = self._parked = self._loop.create_future()
            if waiting or self.closed:  # it came from another thread, which saw nobody parked
                self._parked = None
                continue
            await parked


class AsyncFeed(LoopFeed):
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
        """Give the subscriber a second to take the rest."""
        self.close()
        await asyncio.wait((self._task,), timeout=1.0)
        self._task.cancel()


class StreamFeed(LoopFeed):
    """Hands events to whoever iterates."""


def _is_async(subscriber: Subscriber) -> bool:
    call = subscriber if inspect.isroutine(subscriber) else getattr(subscriber, "__call__", subscriber)  # noqa: B004
    return inspect.iscoroutinefunction(call)
