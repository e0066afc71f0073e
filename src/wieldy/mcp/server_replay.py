"""What was sent to the clients of the HTTP server, kept for a while: who lost the connection goes on where it broke.

Each session has a record of its own. The SDK's store knows streams by a request's number alone, which every session counts for
itself; the record is therefore found by the request that is being served, and what belongs to another session is not found.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

MOST_EVENTS = 512
MOST_CHARS = 8 << 20


@dataclass(frozen=True, slots=True)
class Kept:
    """One message as it was sent; None is the mark with which a stream begins."""

    id: str
    stream: str
    message: Any
    size: int


class Record:
    """The last messages of one session, within bounds."""

    def __init__(self, most_events: int = MOST_EVENTS, most_chars: int = MOST_CHARS) -> None:
        self._key = secrets.token_hex(4)
        self._count = 0
        self._events: deque[Kept] = deque()
        self._chars = 0
        self._most_events = most_events
        self._most_chars = most_chars

    def add(self, stream: str, message: Any) -> str:
        """Keep a message; the oldest are dropped. Returns its id."""
        self._count += 1
        kept = Kept(f"{self._key}-{self._count}", stream, message, weight(message))
        self._events.append(kept)
        self._chars += kept.size
        while len(self._events) > self._most_events or (self._chars > self._most_chars and len(self._events) > 1):
            self._chars -= self._events.popleft().size
        return kept.id

    def after(self, event: str) -> tuple[str, list[Kept]] | None:
        """The stream of an event and what followed on it; None where the event is not known, or no longer."""
        found = next((kept for kept in self._events if kept.id == event), None)
        if found is None:
            return None
        number = int(event.rpartition("-")[2])
        following = [
            kept
            for kept in self._events
            if kept.stream == found.stream and kept.message is not None and int(kept.id.rpartition("-")[2]) > number
        ]
        return found.stream, following


class Replay:
    """The records of all sessions, and the SDK's event store: it is asked in the context of some session's request."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._records: OrderedDict[str, Record] = OrderedDict()
        self._current: ContextVar[Record | None] = ContextVar("record", default=None)

    @contextmanager
    def serving(self, session: str | None) -> Iterator[Record]:
        """Serve a request of a session, or one that may open a session; then `belongs` says which."""
        record = self._records.get(session) if session is not None else None
        record = record or Record()
        token = self._current.set(record)
        try:
            yield record
        finally:
            self._current.reset(token)

    def belongs(self, record: Record, session: str) -> None:
        """A session was opened, and this is its record."""
        if session not in self._records:
            self._records[session] = record
            while len(self._records) > self._most:
                self._records.popitem(last=False)

    def forget(self, session: str) -> None:
        """A session has ended."""
        self._records.pop(session, None)

    async def store_event(self, stream_id: str, message: Any) -> str:
        """Keep a message of the session that is being served."""
        record = self._current.get()
        return record.add(stream_id, message) if record is not None else secrets.token_hex(8)

    async def replay_events_after(self, last_event_id: str, send: Callable[[Any], Awaitable[None]]) -> str | None:
        """Send again what followed an event on its stream; returns the stream."""
        from mcp.server.streamable_http import EventMessage

        record = self._current.get()
        found = record.after(last_event_id) if record is not None else None
        if found is None:
            return None
        stream, following = found
        for kept in following:
            await send(EventMessage(kept.message, kept.id))
        return stream


def weight(value: Any) -> int:
    """About how many characters a message holds."""
    total, waiting = 0, [getattr(value, "result", None) or getattr(value, "params", None)]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            total += len(item)
        elif isinstance(item, dict):
            waiting += item.values()
            total += 16 * len(item)
        elif isinstance(item, list):
            waiting += item
    return total + 100
