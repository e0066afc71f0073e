"""Server-sent events out of bytes, each byte looked at once."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator

from wieldy.providers.http import HttpFailure, Response
from wieldy.schema.pattern import pattern

MOST_WAITING = 64 * 1024 * 1024

_END = pattern(rb"\r\n\r\n|\n\n|\r\r")


class Events:
    """Feed it bytes as they come; it gives the data of every event that is complete. `ended` counts all that were."""

    def __init__(self) -> None:
        self._waiting = bytearray()
        self._searched = 0
        self.ended = 0

    def feed(self, data: bytes) -> list[bytes]:
        """The data fields of the events that these bytes complete. Comments and other fields are passed over."""
        if self._waiting or b"\r" in data:
            ended = self._ended_by(data)
        else:
            *ended, data = data.split(b"\n\n")
            self._waiting += data
        self.ended += len(ended)
        self._searched = len(self._waiting)
        if self._searched > MOST_WAITING:
            raise HttpFailure("the server sends an event without end")
        return [found for event in ended if (found := _data(event)) is not None]

    def _ended_by(self, data: bytes) -> list[bytes]:
        """The events that these bytes complete, whichever way their lines end."""
        self._waiting += data
        start = 0
        ended: list[bytes] = []
        # An end may straddle two reads: look again at the last three bytes of the old ones.
        for match in _END.finditer(self._waiting, max(self._searched - 3, 0)):
            ended.append(bytes(self._waiting[start : match.start()]))
            start = match.end()
        del self._waiting[:start]
        return ended

    def rest(self) -> bytes | None:
        """The data of a last event that the stream ended without closing."""
        return _data(bytes(self._waiting))


def _data(event: bytes) -> bytes | None:
    before, named, data = event.partition(b"data:")
    if named and before[-1:] in (b"", b"\n") and b"\n" not in data and b"\r" not in event:
        return data.strip()  # one line of data, the last: what servers send
    lines = [line[5:].removeprefix(b" ") for line in event.splitlines() if line.startswith(b"data:")]
    return b"\n".join(lines) if lines else None


async def events_of(response: Response) -> AsyncGenerator[list[bytes], None]:
    """The data of the events of a response, as many at a time as came together.

    Raises `HttpFailure` when none is completed for too long: drops are not life.
    """
    events = Events()
    last, seen = time.monotonic(), 0
    while chunk := await response.more():
        if told := events.feed(chunk):
            yield told
        if events.ended > seen:
            last, seen = time.monotonic(), events.ended
        elif time.monotonic() - last > response.seconds:
            raise HttpFailure(f"nothing whole came from the server for {response.seconds:g} s")
    if (rest := events.rest()) is not None:
        yield [rest]
