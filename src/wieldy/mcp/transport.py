"""Transports to MCP servers, as the read and write streams the SDK's client talks over.

HTTP and SSE are the SDK's (`mcp/http.py`). Over stdio we use our own: docs/decisions/0020 says which hostile servers the SDK's
does not survive.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Self, TypeAlias

from msgspec import Struct

from wieldy.core.errors import WieldyError
from wieldy.core.logs import log
from wieldy.core.threads import in_thread
from wieldy.mcp.definitions import sanitize_result
from wieldy.shell.running.process_tag import TAG_VARIABLE, tag_process
from wieldy.shell.running.reaper import ProcessTree, end_tree

McpRelay: TypeAlias = Callable[[str, Mapping[str, Any]], Awaitable[Mapping[str, Any]]]
"""Carries a JSON-RPC message to the named server and returns the response. Raises `WieldyError`."""

# Beside each bound the largest value that was measured; docs/mcp.md says of which servers.
MAX_MESSAGE_BYTES = 64 << 20  # 20 kB; a file of 33 MiB in one answer is tested
MAX_MESSAGE_VALUES = 1_000_000  # in the JSON of a message: 776; a tree of 100 000 files has 700 000
MAX_OPEN_REQUESTS = 64  # of a server that waits for our answers: 1
MAX_QUEUED_MESSAGES = 256
DRAIN_SECONDS = 0.3
EXIT_SECONDS = 1.0
MAX_NOISE_LINES = 20
MAX_NOISE_BYTES = 200
INTERNAL_ERROR = -32603

INHERITED_VARIABLES = frozenset(
    {
        *("HOME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER"),
        *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "no_proxy", "all_proxy"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE"),
        *("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT", "APPDATA", "LOCALAPPDATA", "USERPROFILE", "PATHEXT"),
    }
)


@asynccontextmanager
async def open_relay(name: str, relay: McpRelay | None) -> AsyncIterator[Any]:
    """Open the streams of a server inside another program: `relay` carries each message there and returns the response."""
    import anyio

    if relay is None:
        raise ConnectionError("it runs inside another program, and none is connected")
    responses, read = anyio.create_memory_object_stream[Any](MAX_QUEUED_MESSAGES)
    write, requests = anyio.create_memory_object_stream[Any](MAX_QUEUED_MESSAGES)

    async def exchange(message: dict[str, Any]) -> None:
        try:
            response = dict(await relay(name, message))
        except WieldyError as failure:
            response = _error(str(failure))
        if "id" in message and "method" in message:  # a notification has no response, and neither has a response
            answer: dict[str, Any] = {key: response[key] for key in ("result", "error") if key in response}
            answer = answer or _error("its answer has neither a result nor an error")
            line = json.dumps({"jsonrpc": "2.0", **answer, "id": message["id"]}).encode()
            try:
                MessageMeter().add(line)
            except MessageTooLarge as error:
                line = json.dumps({"jsonrpc": "2.0", "id": message["id"], **_error(str(error))}).encode()
            await responses.send(StdoutParser(name, OutputTail())(line))

    async def forward() -> None:
        async for item in requests:
            tasks.start_soon(exchange, item.message.model_dump(by_alias=True, mode="json", exclude_unset=True))

    async with responses, read, write, requests, anyio.create_task_group() as tasks:
        tasks.start_soon(forward)
        try:
            yield read, write
        finally:
            tasks.cancel_scope.cancel()


def _error(message: str) -> dict[str, Any]:
    return {"error": {"code": INTERNAL_ERROR, "message": message}}


class MessageTooLarge(ValueError):
    """A message that would take too much memory; the text says why."""


class MessageMeter:
    """Collects a message as it arrives, and measures it: a value of JSON takes far more memory than its bytes."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []  # joining them for every piece would be quadratic
        self._size = 0
        self._marks = 0
        self._allowed_marks = MAX_MESSAGE_VALUES

    def add(self, piece: bytes) -> None:
        """Take the next bytes. Raises `MessageTooLarge`."""
        self._pieces.append(piece)
        self._size += len(piece)
        if self._size > MAX_MESSAGE_BYTES:
            raise MessageTooLarge(f"a message has more than {MAX_MESSAGE_BYTES >> 20} MiB")
        self._marks += count_marks(piece)
        if self._marks > self._allowed_marks:
            values = count_marks(_JSON_STRING.sub(b"", b"".join(self._pieces)))  # text may hold any number of them
            if values > MAX_MESSAGE_VALUES:
                raise MessageTooLarge(f"a message has more than {MAX_MESSAGE_VALUES:,} values")
            self._allowed_marks = self._marks + MAX_MESSAGE_VALUES - values

    def take(self) -> bytes:
        """Return the message, and begin with the next one."""
        message = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self.__init__()  # type: ignore[misc]
        return message


_JSON_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)


def count_marks(text: bytes) -> int:
    """Count the marks that begin a value of JSON, in strings too: as many values as there are, or more."""
    return text.count(b",") + text.count(b"[") + text.count(b"{")


class ServerStreams:
    """Both streams of a server: repairs tool lists before the session validates them, and bounds the server's requests.

    While too many of its requests have no answer, as of a server that does not read, no more messages are taken.
    """

    def __init__(self, read: Any, write: Any) -> None:
        self._read = read
        self._write = write
        self._open: set[str | int] = set()
        self._answered = asyncio.Event()

    @property
    def streams(self) -> tuple[Any, Any]:
        return StreamEnd(self._read, receive=self._receive), StreamEnd(self._write, send=self._send)

    async def _receive(self) -> Any:
        while True:
            while len(self._open) >= MAX_OPEN_REQUESTS:
                self._answered.clear()
                await self._answered.wait()
            item = await self._read.receive()
            message: Any = getattr(item, "message", None)  # an exception has none
            sanitize_result(getattr(message, "result", None))
            if (method := getattr(message, "method", None)) is None:
                return item
            if method == "notifications/cancelled":
                self._close_request((message.params or {}).get("requestId"))
            if (request := getattr(message, "id", None)) is None:
                return item
            if request not in self._open:  # a second request of that number could not be told from the first
                self._open.add(request)
                return item

    async def _send(self, item: Any) -> None:
        await self._write.send(item)
        if not hasattr(item.message, "method"):
            self._close_request(item.message.id)

    def _close_request(self, request: Any) -> None:
        if isinstance(request, str | int):
            self._open.discard(request)
            self._answered.set()


class StreamEnd:
    """One of the two streams that the SDK's client is given."""

    def __init__(self, stream: Any, *, receive: Any = None, send: Any = None) -> None:
        self._stream = stream
        self.receive = receive
        self.send = send

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        import anyio

        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    @property
    def last_context(self) -> Any:
        """The context in which the last message was sent; the SDK's dispatcher reads it."""
        return getattr(self._stream, "last_context", None)


class OutputTail:
    """Keeps the last bytes of an output."""

    def __init__(self, max_bytes: int = 16_384) -> None:
        self._max_bytes = max_bytes
        self._data = b""

    def add(self, data: bytes) -> None:
        """Append bytes; the oldest are dropped."""
        self._data = (self._data + data[-self._max_bytes :])[-2 * self._max_bytes :]

    @property
    def text(self) -> str:
        """The kept text, from the start of a line where something was dropped."""
        data = self._data
        if len(data) > self._max_bytes:
            data = data[-self._max_bytes :]
            data = data.partition(b"\n")[2] or data
        return data.decode("utf-8", "replace")

    def last_lines(self, count: int = 5) -> str:
        """Return the last lines that are not blank."""
        lines = [line.rstrip() for line in self.text.splitlines() if line.strip()]
        return "\n".join(line[:500] for line in lines[-count:])


class ServerProgram(Struct, frozen=True):
    """A program to run as a server. `mark` identifies its processes; `on_exit` gets the reason why its output ended."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    mark: str
    stderr: OutputTail
    on_start: Callable[[int], None]
    on_exit: Callable[[str], None]


def server_environment(inherited: Mapping[str, str], own: Mapping[str, str], mark: str) -> dict[str, str]:
    """Build a server's environment: what every program needs, what its entry sets, and the mark of its processes."""
    env = {name: value for name, value in inherited.items() if name in INHERITED_VARIABLES or name.startswith("LC_")}
    outer = inherited.get(TAG_VARIABLE)
    return {**env, **own, TAG_VARIABLE: f"{outer} {mark}" if outer else mark}


@asynccontextmanager
async def open_stdio(program: ServerProgram) -> AsyncIterator[Any]:
    """Run a program and yield its streams; when the block ends, none of its processes is left."""
    import anyio

    transport, reader = await asyncio.get_running_loop().subprocess_exec(
        lambda: StdoutReader(StdoutParser(program.argv[0], program.stderr), program.stderr.add, program.on_exit),
        *program.argv,
        cwd=program.cwd,
        env=dict(program.env),
        start_new_session=True,
    )
    try:
        tag_process(transport.get_pid(), program.mark)  # at once, so that what the server starts has it too
        program.on_start(transport.get_pid())
        yield reader, StdinWriter(transport.get_pipe_transport(0), reader)
    finally:
        with anyio.CancelScope(shield=True):
            await _stop(transport, reader, program.mark)


async def _stop(transport: asyncio.SubprocessTransport, reader: StdoutReader, mark: str) -> None:
    """Close stdin, wait for the server to exit, then end what is left of its process tree."""
    stdin = transport.get_pipe_transport(0)
    if stdin is not None:
        stdin.close()
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(reader.exited.wait(), EXIT_SECONDS)
    roots = frozenset() if reader.exited.is_set() else frozenset({transport.get_pid()})
    survivors = await in_thread(end_tree, ProcessTree(mark, roots))
    if survivors:
        log.error("processes of an MCP server cannot be ended: %s", ", ".join(str(each.pid) for each in survivors))
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(reader.exited.wait(), EXIT_SECONDS)
    reader.close()
    with contextlib.suppress(OSError):
        transport.close()


class StdoutReader(asyncio.SubprocessProtocol):
    """The read stream of a server process. `parse` turns a line into a message, or None for noise.

    Reading pauses while too many messages are queued. The stream ends with stdout, or shortly after the process exits: a child
    process may keep stdout open.
    """

    def __init__(
        self, parse: Callable[[bytes], Any], on_stderr: Callable[[bytes], None], on_exit: Callable[[str], None]
    ) -> None:
        self._parse = parse
        self._on_stderr = on_stderr
        self._on_exit = on_exit
        self._transport: Any = None
        self._line = MessageMeter()
        self._messages: deque[Any] = deque()
        self._changed = asyncio.Event()
        self._paused = False
        self.exited = asyncio.Event()
        self.writable = asyncio.Event()
        self.writable.set()
        self.closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 2:
            self._on_stderr(data)
            return
        *lines, rest = data.split(b"\n")
        try:
            for end_of_line in lines:
                self._line.add(end_of_line)
                line = self._line.take()
                if (message := self._parse(line) if line.strip() else None) is not None:
                    self._messages.append(message)
            if rest:
                self._line.add(rest)
        except MessageTooLarge as error:
            self.close(str(error))
        self._changed.set()
        if len(self._messages) > MAX_QUEUED_MESSAGES and not self._paused:
            self._paused = True
            self._transport.get_pipe_transport(1).pause_reading()

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if fd == 1:
            self.close()

    def process_exited(self) -> None:
        self.exited.set()
        asyncio.get_running_loop().call_later(DRAIN_SECONDS, self.close)

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()

    def close(self, why: str = "") -> None:
        """End the stream."""
        if self.closed:
            return
        self.closed = True
        self.writable.set()
        code = self._transport.get_returncode()
        self._on_exit(why or ("it ended" if code is None else f"it ended with exit code {code}"))
        self._changed.set()

    async def receive(self) -> Any:
        """Return the next message. Raises `EndOfStream`."""
        import anyio

        while not self._messages:
            if self.closed:
                raise anyio.EndOfStream
            self._changed.clear()
            await self._changed.wait()
        message = self._messages.popleft()
        if self._paused and not self._messages:
            self._paused = False
            if not self.closed:
                self._transport.get_pipe_transport(1).resume_reading()
        return message

    async def aclose(self) -> None:
        self.close()


class StdinWriter:
    """The write stream of a server process. Stopping the process closes the pipe."""

    def __init__(self, pipe: Any, reader: StdoutReader) -> None:
        self._pipe = pipe
        self._reader = reader

    async def send(self, item: Any, /) -> None:
        """Send a message; wait while the server does not read."""
        import anyio

        if self._reader.closed or self._pipe.is_closing():
            raise anyio.BrokenResourceError
        self._pipe.write(item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
        await self._reader.writable.wait()

    async def aclose(self) -> None: ...


class StdoutParser:
    """Turns lines of stdout into messages. Other lines, such as banners, are logged and added to the stderr tail."""

    def __init__(self, program: str, tail: OutputTail) -> None:
        self._program = program
        self._tail = tail
        self._noise_lines = 0

    def __call__(self, line: bytes) -> Any:
        """Return the message, repaired where needed; None for a line that is not one."""
        from mcp.shared.message import SessionMessage
        from mcp_types import jsonrpc_message_adapter

        with contextlib.suppress(ValueError):
            return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
        for candidate in repair_candidates(line):
            with contextlib.suppress(ValueError):
                return SessionMessage(jsonrpc_message_adapter.validate_json(candidate, by_name=False))
        self._noise_lines += 1
        if self._noise_lines <= MAX_NOISE_LINES:
            start = line[:MAX_NOISE_BYTES]
            log.info("%s printed a line that is not a message: %s", self._program, start.decode("utf-8", "replace"))
            self._tail.add(b"(on stdout) " + start + b"\n")
        return None


def repair_candidates(line: bytes) -> list[bytes]:
    """Return what to parse in place of an invalid line, best first; nothing for a line that is not JSON-RPC.

    Lone surrogates and invalid UTF-8 become U+FFFD. A response that makes no sense becomes an error response, and a
    request loses its parameters, which the SDK answers with an error: either fails now instead of at its deadline.
    """
    try:
        message = json.loads(line.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return []
    if not isinstance(message, dict) or "jsonrpc" not in message:
        return []
    sanitize_result(message.get("result"))  # a tool that is nested too deeply is a line that the SDK cannot parse
    candidates = [_encode_valid(message)]
    request_id = message.get("id")
    if isinstance(request_id, str | int):
        rest = {"method": message["method"]} if "method" in message else _error("it sent a malformed answer")
        candidates.append(_encode_valid({"jsonrpc": "2.0", "id": request_id, **rest}))
    return candidates


def _encode_valid(value: Any) -> bytes:
    text = json.dumps(value, ensure_ascii=False)
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode("utf-8")
