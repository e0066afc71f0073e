"""The MCP server over stdin and stdout, with nothing else on stdout.

The transport is ours: docs/decisions/0021 says which clients the SDK's `stdio_server` does not survive.
"""

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
from typing import Any, Self

import anyio
from mcp.server.lowlevel import Server
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCNotification, JSONRPCRequest, jsonrpc_message_adapter

from wieldy.core.logs import log
from wieldy.core.threads import in_thread
from wieldy.engine.mcp_tools import replace_surrogates

MAX_MESSAGE_BYTES = 128 * 1024 * 1024
READ_BYTES = 1 << 20
MAX_QUEUED_LINES = 64
MAX_OPEN_REQUESTS = 1_000
DRAIN_SECONDS = 2.0
PARSE_ERROR, INVALID_REQUEST, INTERNAL_ERROR = -32700, -32600, -32603
_ESCAPED_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


async def serve_stdio(server: Server[Any]) -> None:
    """Serve the client at the other end of stdin and stdout until it closes stdin."""
    with _claim_stdio() as (source, sink):
        writer = MessageWriter(sink)
        reader = MessageReader(source, writer)
        try:
            await server.run(reader, writer, server.create_initialization_options())
        finally:
            await reader.aclose()


@contextmanager
def _claim_stdio() -> Iterator[tuple[int, int]]:
    """Yield private copies of stdin and stdout. Meanwhile prints go to stderr and reads get EOF, also in child processes."""
    source, sink = os.dup(0), os.dup(1)
    devnull = os.open(os.devnull, os.O_RDWR)
    os.dup2(devnull, 0)
    os.close(devnull)
    try:
        os.dup2(2, 1)
    except OSError:  # stderr is closed
        os.dup2(0, 1)
    try:
        yield source, sink
    finally:
        # The copies stay open: a thread that still writes must not find another file under the same number.
        os.dup2(source, 0)
        os.dup2(sink, 1)


class _Stream:
    """What the SDK expects of both streams."""

    async def aclose(self) -> None: ...

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()


class MessageWriter(_Stream):
    """Writes messages to the client. A client that does not read delays its own answers and nothing else."""

    def __init__(self, sink: int) -> None:
        self._sink = sink
        self._is_pipe = stat.S_ISFIFO(os.fstat(sink).st_mode)
        self._order = asyncio.Lock()
        self._thread_lock = threading.Lock()
        self._poll = select.poll()
        self._poll.register(sink, select.POLLOUT)
        self.open_requests: set[str | int] = set()
        self.all_answered = asyncio.Event()
        self.all_answered.set()

    def add_request(self, request_id: str | int) -> None:
        """Note a request that must be answered."""
        self.open_requests.add(request_id)
        self.all_answered.clear()

    def remove_request(self, request_id: Any) -> None:
        """Forget a request that was answered or cancelled."""
        if isinstance(request_id, str | int):
            self.open_requests.discard(request_id)
        if not self.open_requests:
            self.all_answered.set()

    async def send(self, item: SessionMessage, /) -> None:
        message = item.message
        await self.write(message.model_dump_json(by_alias=True, exclude_unset=True).encode())
        if not hasattr(message, "method"):
            self.remove_request(message.id)

    async def send_error(self, code: int, text: str, request_id: Any = None) -> None:
        """Answer a line that is not a message."""
        error = {"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": text}}
        await self.write(json.dumps(error).encode())

    async def write(self, line: bytes) -> None:
        """Write one line. Raises `anyio.ClosedResourceError`, as the SDK's streams do, when the reader is gone."""
        line += b"\n"
        async with self._order:
            try:
                if self._can_write_now(len(line)):
                    os.write(self._sink, line)
                else:
                    await in_thread(self._write_all, line)
            except OSError as error:
                raise anyio.ClosedResourceError from error

    def _can_write_now(self, size: int) -> bool:
        """Return whether a write cannot block: a writable pipe takes PIPE_BUF bytes at once."""
        return self._is_pipe and size <= select.PIPE_BUF and not self._thread_lock.locked() and bool(self._poll.poll(0))

    def _write_all(self, line: bytes) -> None:
        view = memoryview(line)
        # The caller may be cancelled meanwhile; the line is completed before the next one all the same.
        with self._thread_lock:
            while view:
                view = view[os.write(self._sink, view) :]


class MessageReader(_Stream):
    """Reads messages from the client. A line that is not a message is answered with an error."""

    def __init__(self, source: int, writer: MessageWriter, *, max_bytes: int = MAX_MESSAGE_BYTES) -> None:
        self._source = source
        self._writer = writer
        self._max_bytes = max_bytes
        self._loop = asyncio.get_running_loop()
        self._lines: deque[bytes | None] = deque()  # None stands for a line that is too long
        self._pieces: list[bytes] = []
        self._size = 0
        self._changed = asyncio.Event()
        self._ended = False
        self._is_reading = False
        self._resume()

    def _resume(self) -> None:
        if self._ended or self._is_reading:
            return
        try:
            self._loop.add_reader(self._source, self._read)
        except PermissionError:  # epoll does not take regular files, which are always readable
            self._loop.call_soon(self._read_file)
            return
        self._is_reading = True

    def _pause(self) -> None:
        if self._is_reading:
            self._loop.remove_reader(self._source)
            self._is_reading = False

    def _read_file(self) -> None:
        while not self._ended and len(self._lines) < MAX_QUEUED_LINES:
            self._read()

    def _read(self) -> None:
        try:
            data = os.read(self._source, READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._pause()
            if self._size:
                self._finish_line()
            self._ended = True
            self._changed.set()
            return
        first, *rest = data.split(b"\n")
        self._add(first)
        for piece in rest:
            self._finish_line()
            self._add(piece)
        if len(self._lines) >= MAX_QUEUED_LINES:
            self._pause()

    def _add(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > self._max_bytes:
            self._pieces.clear()  # skip to the end of the line
        elif piece:
            self._pieces.append(piece)

    def _finish_line(self) -> None:
        line = None if self._size > self._max_bytes else b"".join(self._pieces)
        self._pieces.clear()
        self._size = 0
        if line is None or line.strip():
            self._lines.append(line)
            self._changed.set()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage:
        while True:
            while not self._lines:
                if self._ended:
                    await self._wait_for_answers()
                    raise StopAsyncIteration
                self._changed.clear()
                self._resume()
                await self._changed.wait()
            if (message := await self._parse(self._lines.popleft())) is not None:
                return message

    async def receive(self) -> SessionMessage:
        try:
            return await anext(self)
        except StopAsyncIteration:
            raise anyio.EndOfStream from None

    async def _parse(self, line: bytes | None) -> SessionMessage | None:
        if line is None:
            await self._writer.send_error(INVALID_REQUEST, f"a message may be at most {self._max_bytes:,} bytes long")
            return None
        try:
            message = jsonrpc_message_adapter.validate_json(repair_surrogates(line), by_name=False)
        except ValueError as error:
            await self._send_parse_error(line, error)
            return None
        if isinstance(message, JSONRPCRequest) and len(self._writer.open_requests) >= MAX_OPEN_REQUESTS:
            text = f"{MAX_OPEN_REQUESTS:,} requests are under way: wait for answers"
            await self._writer.send_error(INTERNAL_ERROR, text, message.id)
            return None
        if isinstance(message, JSONRPCRequest):
            self._writer.add_request(message.id)
        elif isinstance(message, JSONRPCNotification) and message.method == "notifications/cancelled":
            self._writer.remove_request((message.params or {}).get("requestId"))
        return SessionMessage(message)

    async def _send_parse_error(self, line: bytes, error: Exception) -> None:
        log.debug("not a message: %s", error)
        try:
            request = json.loads(line)
        except (ValueError, RecursionError):
            await self._writer.send_error(PARSE_ERROR, "Parse error: the line is not JSON")
            return
        request_id = request.get("id") if isinstance(request, dict) else None
        if not isinstance(request_id, str | int) or isinstance(request_id, bool):
            request_id = None
        await self._writer.send_error(INVALID_REQUEST, "Invalid request: not a JSON-RPC 2.0 message", request_id)

    async def _wait_for_answers(self) -> None:
        """Give open requests a moment: a client may send its requests, close stdin, and read the answers."""
        try:
            async with asyncio.timeout(DRAIN_SECONDS):
                await self._writer.all_answered.wait()
        except TimeoutError:
            log.debug("%d requests were open when the client left", len(self._writer.open_requests))

    async def aclose(self) -> None:
        self._pause()
        self._ended = True
        self._changed.set()


def repair_surrogates(line: bytes) -> bytes:
    """Replace escaped lone surrogates, which models write now and then and strict parsers reject."""
    if not _ESCAPED_SURROGATE.search(line):
        return line
    try:
        text = json.dumps(json.loads(line), ensure_ascii=False)
    except (ValueError, RecursionError):
        return line
    return replace_surrogates(text).encode()
