"""Messages from a client, one a line of bounded length. A line that is none is answered as such, and the next one read."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections import deque
from typing import TYPE_CHECKING, Self

from wieldy.core.log import log
from wieldy.mcp.server_outbox import Outbox, Stream
from wieldy.mcp.server_result import whole

if TYPE_CHECKING:
    from mcp.shared.message import SessionMessage


LONGEST_MESSAGE = 128 * 1024 * 1024
READ_BYTES = 1 << 20
MOST_UNREAD = 64
DRAIN_SECONDS = 2.0
PARSE_ERROR, INVALID_REQUEST = -32700, -32600
_ESCAPED_HALF = re.compile(rb"\\u[dD][89a-fA-F]")


class Inbox(Stream):
    """Messages from the client. A line that is none is answered as such, and the next one read."""

    def __init__(self, source: int, outbox: Outbox, *, longest: int = LONGEST_MESSAGE) -> None:
        self._source = source
        self._outbox = outbox
        self._longest = longest
        self._loop = asyncio.get_running_loop()
        self._lines: deque[bytes | None] = deque()
        self._pieces: list[bytes] = []
        self._size = 0
        self._arrived = asyncio.Event()
        self._ended = False
        self._watching = False
        self._watch()

    def _watch(self) -> None:
        if self._ended or self._watching:
            return
        try:
            self._loop.add_reader(self._source, self._read)
        except PermissionError:  # a file, which is always ready
            self._loop.call_soon(self._read_file)
            return
        self._watching = True

    def _unwatch(self) -> None:
        if self._watching:
            self._loop.remove_reader(self._source)
            self._watching = False

    def _read_file(self) -> None:
        while not self._ended and len(self._lines) < MOST_UNREAD:
            self._read()

    def _read(self) -> None:
        try:
            data = os.read(self._source, READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._end()
            return
        head, *rest = data.split(b"\n")
        self._add(head)
        for piece in rest:
            self._finish_line()
            self._add(piece)
        if len(self._lines) >= MOST_UNREAD:
            self._unwatch()

    def _add(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > self._longest:
            self._pieces.clear()  # too long to be kept; its end is still waited for
        elif piece:
            self._pieces.append(piece)

    def _finish_line(self) -> None:
        line = None if self._size > self._longest else b"".join(self._pieces)
        self._pieces.clear()
        self._size = 0
        if line is None or line.strip():
            self._lines.append(line)
            self._arrived.set()

    def _end(self) -> None:
        self._unwatch()
        if self._size:
            self._finish_line()
        self._ended = True
        self._arrived.set()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage:
        while True:
            while not self._lines:
                if self._ended:
                    await self._last_answers()
                    raise StopAsyncIteration
                self._arrived.clear()
                self._watch()
                await self._arrived.wait()
            if (message := await self._message(self._lines.popleft())) is not None:
                return message

    async def receive(self) -> SessionMessage:
        """The next message."""
        import anyio

        try:
            return await anext(self)
        except StopAsyncIteration:
            raise anyio.EndOfStream from None

    async def _message(self, line: bytes | None) -> SessionMessage | None:
        from mcp.shared.message import SessionMessage
        from mcp_types import JSONRPCNotification, JSONRPCRequest, jsonrpc_message_adapter

        if line is None:
            await self._outbox.refuse(INVALID_REQUEST, f"a message may be {self._longest:,} bytes long, not more")
            return None
        try:
            message = jsonrpc_message_adapter.validate_json(mended(line), by_name=False)
        except ValueError as error:
            await self._refuse(line, error)
            return None
        if isinstance(message, JSONRPCRequest):
            self._outbox.owes(message.id)
        elif isinstance(message, JSONRPCNotification) and message.method == "notifications/cancelled":
            self._outbox.owes_no_more((message.params or {}).get("requestId"))
        return SessionMessage(message)

    async def _refuse(self, line: bytes, error: Exception) -> None:
        log.debug("not a message: %s", error)
        try:
            request = json.loads(line)
        except (ValueError, RecursionError):
            await self._outbox.refuse(PARSE_ERROR, "Parse error: the line is not JSON")
            return
        known = request.get("id") if isinstance(request, dict) else None
        known = known if isinstance(known, str | int) and not isinstance(known, bool) else None
        await self._outbox.refuse(INVALID_REQUEST, "Invalid request: not a JSON-RPC 2.0 message", known)

    async def _last_answers(self) -> None:
        """A client that sends its requests and closes still gets the answers that are nearly there."""
        try:
            async with asyncio.timeout(DRAIN_SECONDS):
                await self._outbox.settled.wait()
        except TimeoutError:
            log.debug("%d requests were under way when the client left", len(self._outbox.unanswered))

    async def aclose(self) -> None:
        """Read no more."""
        self._unwatch()
        self._ended = True
        self._arrived.set()


def mended(line: bytes) -> bytes:
    """The line with halves of characters, which models write now and then, replaced: no strict reader takes them."""
    if not _ESCAPED_HALF.search(line):
        return line
    try:
        text = json.dumps(json.loads(line), ensure_ascii=False)
    except (ValueError, RecursionError):
        return line
    return whole(text).encode()
