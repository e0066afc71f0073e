"""Server-sent events: bytes to events, and typed access to the JSON in them."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from wieldy.core.provider import ProviderFailure
from wieldy.web.http import HttpError, HttpResponse

MAX_EVENT_BYTES = 64 * 1024 * 1024

# Two ends of lines. The groups are atomic, so that the halves of one \r\n do not count as two.
_EVENT_END = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)")


async def read_events(response: HttpResponse) -> AsyncGenerator[list[bytes], None]:
    """The data of the events of a response, one batch for each read; a batch may be empty. Raises `HttpError`."""
    decoder = SseDecoder()
    while chunk := await response.read():
        yield decoder.feed(chunk)
    if (data := decoder.close()) is not None:
        yield [data]


class SseDecoder:
    """Feed it bytes as they arrive."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._searched = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Return the data fields of the events that these bytes complete. Raises `HttpError` for an endless event."""
        self._buffer += data
        start = 0
        batch: list[bytes] = []
        # An end may straddle two reads: search the last three bytes of the old data again.
        for match in _EVENT_END.finditer(self._buffer, max(self._searched - 3, 0)):
            if (field := _data_field(bytes(self._buffer[start : match.start()]))) is not None:
                batch.append(field)
            start = match.end()
        del self._buffer[:start]
        self._searched = len(self._buffer)
        if self._searched > MAX_EVENT_BYTES:
            raise HttpError("the server sends an event without end")
        return batch

    def close(self) -> bytes | None:
        """The data of a last event that the stream ended without closing."""
        return _data_field(bytes(self._buffer))


def _data_field(event: bytes) -> bytes | None:
    lines = [line[5:].removeprefix(b" ") for line in event.splitlines() if line.startswith(b"data:")]
    return b"\n".join(lines) if lines else None


# Half of a surrogate pair may come in one event and half in the next, which msgspec does not decode.
def decode_event(data: bytes) -> dict[str, Any]:
    """Decode the JSON object in an event. Raises `ProviderFailure`."""
    try:
        event = json.loads(data.decode("utf-8", "replace"))
    except (ValueError, RecursionError) as error:
        raise bad_event(str(error)) from None
    if not isinstance(event, dict):
        raise bad_event("it is not an object")
    return event


def get_object(event: Mapping[str, Any], name: str) -> dict[str, Any]:
    """An object inside another; empty where there is none."""
    value = event.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise bad_event(f"its `{name}` is not an object")
    return value


def get_objects(event: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """A list of objects; empty where there is none."""
    value = event.get(name)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise bad_event(f"its `{name}` is not a list of objects")
    return value


def get_text(event: Mapping[str, Any], name: str) -> str | None:
    value = event.get(name)
    if value is not None and not isinstance(value, str):
        raise bad_event(f"its `{name}` is not text")
    return value


def get_int(event: Mapping[str, Any], name: str) -> int:
    """A whole number; 0 where there is none."""
    value = event.get(name)
    if value is None:
        return 0
    if not isinstance(value, int) or isinstance(value, bool):
        raise bad_event(f"its `{name}` is not a whole number")
    return value


def get_count(counts: Mapping[str, Any], name: str) -> int:
    """A count of tokens; 0 for anything else, since an answer is worth more than its usage."""
    value = counts.get(name)
    return value if type(value) is int and value > 0 else 0


def bad_event(why: str) -> ProviderFailure:
    return ProviderFailure("protocol", f"the stream holds something that is no event: {why}")
