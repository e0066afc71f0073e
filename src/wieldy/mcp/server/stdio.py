"""The protocol on standard input and output, and nothing else on stdout."""

from __future__ import annotations

import asyncio
import json
import os
import re
import select
import stat
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from wieldy.core.logs import log
from wieldy.core.threads import in_thread
from wieldy.mcp.server.tools import whole

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server
    from mcp.shared.message import SessionMessage


class Stream:
    """What both ends of a stream have in common: they are entered and left."""

    async def aclose(self) -> None:
        """Let go of the stream."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class Outbox(Stream):
    """Messages to the client. A client that does not read holds up its own answers and nothing else."""

    def __init__(self, sink: int) -> None:
        self._sink = sink
        self._is_pipe = stat.S_ISFIFO(os.fstat(sink).st_mode)
        self._one_at_a_time = asyncio.Lock()
        self._pen = threading.Lock()
        self._room = select.poll()
        self._room.register(sink, select.POLLOUT)
        self.unanswered: set[str | int] = set()
        self.settled = asyncio.Event()
        self.settled.set()

    def owes(self, request: str | int) -> None:
        """A request came in that is to be answered."""
        self.unanswered.add(request)
        self.settled.clear()

    def owes_no_more(self, request: Any) -> None:
        """A request was answered, or the client has lost interest in it."""
        if isinstance(request, str | int):
            self.unanswered.discard(request)
        if not self.unanswered:
            self.settled.set()

    async def send(self, item: SessionMessage, /) -> None:
        """Write a message of the SDK's."""
        message = item.message
        await self.write(message.model_dump_json(by_alias=True, exclude_unset=True).encode())
        if not hasattr(message, "method"):
            self.owes_no_more(message.id)

    async def refuse(self, code: int, text: str, request: Any = None) -> None:
        """Answer what is no message at all."""
        error = {"jsonrpc": "2.0", "id": request, "error": {"code": code, "message": text}}
        await self.write(json.dumps(error).encode())

    async def write(self, line: bytes) -> None:
        """Write one line. Raises `anyio.ClosedResourceError`, as streams of the SDK do, when nobody reads any more."""
        import anyio

        line += b"\n"
        async with self._one_at_a_time:
            try:
                if self._takes_at_once(len(line)):
                    os.write(self._sink, line)
                else:
                    await in_thread(self._write_all, line)
            except OSError as error:
                raise anyio.ClosedResourceError from error

    def _takes_at_once(self, size: int) -> bool:
        """A pipe that has room takes this much without blocking; anything else may block, and does so in a thread."""
        return self._is_pipe and size <= select.PIPE_BUF and not self._pen.locked() and bool(self._room.poll(0))

    def _write_all(self, line: bytes) -> None:
        view = memoryview(line)
        # Whoever waited may be cancelled; the line is still written to its end, and the next one after it.
        with self._pen:
            while view:
                view = view[os.write(self._sink, view) :]


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


async def serve_stdio(server: Server[Any]) -> None:
    """Serve the one client at the other end of stdin and stdout, until it closes stdin."""
    with _claimed() as (source, sink):
        outbox = Outbox(sink)
        inbox = Inbox(source, outbox)
        try:
            await server.run(inbox, outbox, server.create_initialization_options())
        finally:
            await inbox.aclose()


@contextmanager
def _claimed() -> Iterator[tuple[int, int]]:
    """Descriptors of our own for the wire. What prints goes to stderr and what reads finds nothing, children included."""
    source, sink = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.close(nothing)
    try:
        os.dup2(2, 1)
    except OSError:  # there is no stderr: what prints goes nowhere
        os.dup2(0, 1)
    try:
        yield source, sink
    finally:
        # Neither is closed: a thread may still be writing, and must not find another file under the same number.
        os.dup2(source, 0)
        os.dup2(sink, 1)
