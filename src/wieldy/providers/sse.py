"""Server-sent events out of bytes, each byte looked at once."""

from __future__ import annotations

import json
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any, TypeAlias

from wieldy.core.provider import Delta, ProviderFailure
from wieldy.providers.errors import accepted, unheard
from wieldy.providers.http import Http, HttpFailure, Response
from wieldy.providers.leisure import Signs

MOST_WAITING = 64 * 1024 * 1024

_END = re.compile(rb"\r\n\r\n|\n\n|\r\r")


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


_decode = json.JSONDecoder().raw_decode


def decoded(data: bytes) -> dict[str, Any]:
    """The object in some bytes. Raises `ProviderFailure` for what is none."""
    text = data.decode("utf-8", "replace").strip(" \t\r\n")
    try:
        found, end = _decode(text)
        if end < len(text):
            raise ValueError(f"something comes after its end: {text[end : end + 20]!r}")
    except (ValueError, RecursionError) as error:
        raise _odd(str(error)) from None
    if not isinstance(found, dict):
        raise _odd("it is not an object")
    return found


def part(told: Mapping[str, Any], name: str) -> dict[str, Any]:
    """An object inside another; empty where there is none."""
    found = told.get(name)
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise _odd(f"its `{name}` is not an object")
    return found


def parts(told: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """A list of objects; empty where there is none."""
    found = told.get(name)
    if found is None:
        return []
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise _odd(f"its `{name}` is not a list of objects")
    return found


def text(told: Mapping[str, Any], name: str) -> str | None:
    """A text, if there is one."""
    found = told.get(name)
    if found is not None and not isinstance(found, str):
        raise _odd(f"its `{name}` is not text")
    return found


def number(told: Mapping[str, Any], name: str) -> int:
    """A whole number; 0 where there is none."""
    found = told.get(name, 0)
    if not isinstance(found, int) or isinstance(found, bool):
        raise _odd(f"its `{name}` is not a whole number")
    return found


def _odd(why: str) -> ProviderFailure:
    return ProviderFailure("protocol", f"the stream holds something that is no event: {why}")


_MARK = re.compile(r'["{}\[\]]')
_IN_STRING = re.compile(r'["\\]')


class Extent:
    """Feed it pieces; it says when the object has closed."""

    def __init__(self) -> None:
        self.empty = True
        self._depth = 0
        self._in_string = False
        self._escaped = False

    def feed(self, piece: str) -> bool:
        """Whether the object is complete with this piece."""
        at = 0
        self.empty = self.empty and not piece.strip()
        while at < len(piece):
            if self._escaped:
                self._escaped = False
                at += 1
                continue
            match = (_IN_STRING if self._in_string else _MARK).search(piece, at)
            if match is None:
                return False
            at = match.end()
            mark = match[0]
            if mark == '"':
                self._in_string = not self._in_string
            elif mark == "\\":
                self._escaped = True
            else:
                self._depth += 1 if mark in "{[" else -1
                if self._depth <= 0:
                    return True
        return False


Deltas: TypeAlias = Callable[[AsyncIterator[Sequence[bytes]], str, Response], AsyncIterator[Delta]]


@asynccontextmanager
async def streamed(
    http: Http, path: str, body: bytes, model: str, deltas: Deltas, signs: Signs | None
) -> AsyncIterator[AsyncIterator[Delta]]:
    """Send a request and give its deltas, some at a time unless the `signs` show more. Raises `ProviderFailure`."""
    try:
        async with http.post(path, body) as response:
            await accepted(response, model, http.place)
            if signs is not None:
                response.take_leisure(signs)
            async with aclosing(events_of(response)) as events:
                yield deltas(events, model, response)
    except HttpFailure as broken:
        raise unheard(broken) from None
