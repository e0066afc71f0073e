"""Sent messages of each HTTP session, so that a client that lost its connection can resume a stream (Last-Event-ID)."""

from __future__ import annotations

import secrets
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from mcp.server.streamable_http import EventMessage
from msgspec import Struct

MAX_EVENTS = 512
MAX_CHARS = 8 << 20


class StoredEvent(Struct, frozen=True):
    """A message as it was sent; None is the priming event with which a stream begins."""

    id: str
    number: int
    stream: str
    message: Any
    size: int


class SessionEvents:
    """The last messages of one session, limited in number and size."""

    def __init__(self, max_events: int = MAX_EVENTS, max_chars: int = MAX_CHARS) -> None:
        self._prefix = secrets.token_hex(4)
        self._count = 0
        self._events: deque[StoredEvent] = deque()
        self._chars = 0
        self._max_events = max_events
        self._max_chars = max_chars

    def add(self, stream: str, message: Any) -> str:
        """Store a message, drop the oldest beyond the limits, and return the event id."""
        self._count += 1
        event = StoredEvent(f"{self._prefix}-{self._count}", self._count, stream, message, estimate_chars(message))
        self._events.append(event)
        self._chars += event.size
        while len(self._events) > self._max_events or (self._chars > self._max_chars and len(self._events) > 1):
            self._chars -= self._events.popleft().size
        return event.id

    def after(self, event_id: str) -> tuple[str, list[StoredEvent]] | None:
        """Return the stream of an event and the messages after it on that stream; None for an unknown event."""
        last = next((event for event in self._events if event.id == event_id), None)
        if last is None:
            return None
        return last.stream, [
            event
            for event in self._events
            if event.stream == last.stream and event.message is not None and event.number > last.number
        ]


class SessionEventStore:
    """The SDK's event store, one record per session.

    The SDK names a stream by its request id, and every session counts from one: a common record would replay the messages of one
    client to another. So the session of the request that is being served is kept in the context.
    """

    def __init__(self, max_sessions: int) -> None:
        self._max_sessions = max_sessions
        self._sessions: OrderedDict[str, SessionEvents] = OrderedDict()
        self._current: ContextVar[SessionEvents | None] = ContextVar("session_events", default=None)

    @contextmanager
    def use_session(self, session: str | None) -> Iterator[SessionEvents]:
        """Serve a request of a session, or one that may open a session: then call `add_session`."""
        events = self._sessions.get(session) if session is not None else None
        events = events or SessionEvents()
        token = self._current.set(events)
        try:
            yield events
        finally:
            self._current.reset(token)

    def add_session(self, session: str, events: SessionEvents) -> None:
        if session not in self._sessions:
            self._sessions[session] = events
            while len(self._sessions) > self._max_sessions:
                self._sessions.popitem(last=False)

    def remove_session(self, session: str) -> None:
        self._sessions.pop(session, None)

    async def store_event(self, stream_id: str, message: Any) -> str:
        """Store a message of the session that is being served."""
        events = self._current.get()
        return events.add(stream_id, message) if events is not None else secrets.token_hex(8)

    async def replay_events_after(self, last_event_id: str, send: Callable[[Any], Awaitable[None]]) -> str | None:
        """Send the messages after an event again; return their stream."""
        events = self._current.get()
        replay = events.after(last_event_id) if events is not None else None
        if replay is None:
            return None
        stream, missed = replay
        for event in missed:
            await send(EventMessage(event.message, event.id))
        return stream


def estimate_chars(message: Any) -> int:
    """Estimate how many characters a message holds."""
    total, queue = 0, [getattr(message, "result", None) or getattr(message, "params", None)]
    while queue:
        item = queue.pop()
        if isinstance(item, str):
            total += len(item)
        elif isinstance(item, dict):
            queue += item.values()
            total += 16 * len(item)
        elif isinstance(item, list):
            queue += item
    return total + 100
