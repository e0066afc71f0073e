"""The way to a server: a process, streamable HTTP or SSE, each as the streams the SDK talks over."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Self

from msgspec import Struct

from wieldy.core.logs import log
from wieldy.core.threads import in_thread
from wieldy.mcp.client.config import ServerConfig
from wieldy.mcp.client.tools import mended
from wieldy.shell.running.launch import MARK
from wieldy.shell.running.reaper import Tree, end

CONNECT_SECONDS = 10.0
IDLE_SECONDS = 3600.0
LONGEST_EVENT = 256 << 20


class MendedStream:
    """A read stream whose tool lists are mended before the session sees them."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def receive(self) -> Any:
        """The next message."""
        item = await self._stream.receive()
        mended(getattr(getattr(item, "message", None), "result", None))
        return item

    def __aiter__(self) -> MendedStream:
        return self

    async def __anext__(self) -> Any:
        item = await self._stream.__anext__()
        mended(getattr(getattr(item, "message", None), "result", None))
        return item

    async def aclose(self) -> None:
        """Close the stream underneath."""
        await self._stream.aclose()

    async def __aenter__(self) -> MendedStream:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> Any:
        return await self._stream.__aexit__(*error)

    @property
    def last_context(self) -> Any:
        """The context in which the last message was sent, where the stream knows it."""
        return getattr(self._stream, "last_context", None)


@asynccontextmanager
async def remote(config: ServerConfig, auth: Any = None) -> AsyncIterator[Any]:
    """The streams of a server behind a URL."""
    import httpx2
    from mcp.client.sse import sse_client
    from mcp.client.streamable_http import streamable_http_client

    timeout = httpx2.Timeout(CONNECT_SECONDS, read=IDLE_SECONDS)
    if config.kind == "sse":
        async with sse_client(
            config.url,
            headers=dict(config.headers),
            timeout=CONNECT_SECONDS,
            sse_read_timeout=IDLE_SECONDS,
            auth=auth,
        ) as (read, write):
            yield MendedStream(read), write
        return
    async with (
        httpx2.AsyncClient(headers=dict(config.headers), timeout=timeout, auth=auth) as client,
        streamable_http_client(config.url, http_client=client, max_sse_event_size=LONGEST_EVENT) as (read, write),
    ):
        yield MendedStream(read), write


LONGEST = 256 << 20
QUEUED = 256
DRAIN_SECONDS = 0.3


class Wire(asyncio.SubprocessProtocol):
    """What a server says, message by message. `read` makes a message of a line, or None of noise.

    Reading pauses while too many messages wait. The stream ends with stdout, or soon after the process: a child of it may hold
    stdout open for ever.
    """

    def __init__(
        self, read: Callable[[bytes], Any], overheard: Callable[[bytes], None], gone: Callable[[str], None]
    ) -> None:
        self._read = read
        self._overheard = overheard
        self._gone = gone
        self._transport: Any = None
        self._pieces: list[bytes] = []
        self._held = 0
        self._messages: deque[Any] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._paused = False
        self.exited = asyncio.Event()
        self.writable = asyncio.Event()
        self.writable.set()
        self.closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The process runs."""
        self._transport = transport

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Something on stdout or stderr."""
        if fd == 2:
            self._overheard(data)
            return
        *lines, rest = data.split(b"\n")
        for line in lines:
            whole = b"".join((*self._pieces, line)) if self._pieces else line
            self._pieces, self._held = [], 0
            if (message := self._read(whole) if whole.strip() else None) is not None:
                self._messages.append(message)
        if rest:
            self._pieces.append(rest)
            self._held += len(rest)
        if self._held > LONGEST:
            log.error("an MCP server sent a message of more than %d MiB", LONGEST >> 20)
            self.close()
        self._wake()
        if len(self._messages) > QUEUED and not self._paused:
            self._paused = True
            self._transport.get_pipe_transport(1).pause_reading()

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        """A pipe ended; with stdout the stream does."""
        if fd == 1:
            self.close()

    def process_exited(self) -> None:
        """The process ended."""
        self.exited.set()
        asyncio.get_running_loop().call_later(DRAIN_SECONDS, self.close)

    def pause_writing(self) -> None:
        """The server does not read."""
        self.writable.clear()

    def resume_writing(self) -> None:
        """It reads again."""
        self.writable.set()

    def close(self) -> None:
        """Nothing more will come."""
        if self.closed:
            return
        self.closed = True
        self.writable.set()
        code = self._transport.get_returncode()
        self._gone("it ended" if code is None else f"it ended with exit code {code}")
        self._wake()

    async def receive(self) -> Any:
        """The next message. Raises `EndOfStream`."""
        import anyio

        while not self._messages:
            if self.closed:
                raise anyio.EndOfStream
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        message = self._messages.popleft()
        if self._paused and not self._messages:
            self._paused = False
            if not self.closed:
                self._transport.get_pipe_transport(1).resume_reading()
        return message

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        import anyio

        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def aclose(self) -> None:
        """The session wants no more."""
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: Any) -> None:
        self.close()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done() and (self._messages or self.closed):
            self._waiter.set_result(None)


class Mouth:
    """What we say, straight into the server's stdin."""

    def __init__(self, pipe: Any, wire: Wire) -> None:
        self._pipe = pipe
        self._wire = wire

    async def send(self, item: Any, /) -> None:
        """Send a message, waiting while the server does not read."""
        import anyio

        if self._wire.closed or self._pipe.is_closing():
            raise anyio.BrokenResourceError
        self._pipe.write(item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
        if not self._wire.writable.is_set():
            await self._wire.writable.wait()

    async def aclose(self) -> None:
        """The pipe is closed by whoever ends the process."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: Any) -> None:
        return None


INTERNAL_ERROR = -32603


def salvaged(line: bytes) -> list[bytes]:
    """What to read in place of a line, best first; nothing where it is mere noise.

    Half of a surrogate pair and bytes that are no UTF-8 become the replacement character. Whoever waits for an answer that makes
    no sense gets an error in its place, instead of waiting until their time is up.
    """
    try:
        message = json.loads(line.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return []
    if not isinstance(message, dict) or "jsonrpc" not in message:
        return []
    found = [_sound(message)]
    number = message.get("id")
    if "method" not in message and isinstance(number, str | int):
        error = {"code": INTERNAL_ERROR, "message": "it sent a malformed answer"}
        found.append(_sound({"jsonrpc": "2.0", "id": number, "error": error}))
    return found


def _sound(value: Any) -> bytes:
    text = json.dumps(value, ensure_ascii=False)
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode("utf-8")


class Tail:
    """Takes bytes in any pieces and keeps the last of them."""

    def __init__(self, most: int = 16_384) -> None:
        self._most = most
        self._pieces: deque[bytes] = deque()
        self._held = 0

    def add(self, piece: bytes) -> None:
        """Take a piece; the oldest are dropped."""
        piece = piece[-self._most :]
        self._pieces.append(piece)
        self._held += len(piece)
        while self._held - len(self._pieces[0]) >= self._most:
            self._held -= len(self._pieces.popleft())

    @property
    def text(self) -> str:
        """What is held, from the start of a line on."""
        whole = b"".join(self._pieces)
        if len(whole) > self._most:
            whole = whole[-self._most :].partition(b"\n")[2] or whole[-self._most :]
        return whole.decode("utf-8", "replace")

    def last_lines(self, count: int = 5) -> str:
        """The last few lines that are not blank."""
        lines = [line.rstrip() for line in self.text.splitlines() if line.strip()]
        return "\n".join(line[:500] for line in lines[-count:])


LEAVE_SECONDS = 1.0
SHOWN = 200
MOST_NOISE = 20

PASSED_ON = frozenset(
    {
        *("HOME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER"),
        *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "no_proxy", "all_proxy"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE"),
        *("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT", "APPDATA", "LOCALAPPDATA", "USERPROFILE", "PATHEXT"),
    }
)


class Program(Struct, frozen=True):
    """What to run, what becomes of its words, and whom to tell of its process and its end."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    mark: str
    stderr: Tail
    started: Callable[[int], None]
    gone: Callable[[str], None]


def environment(surrounding: Mapping[str, str], own: Mapping[str, str], mark: str) -> dict[str, str]:
    """What a server sees: what every program needs, what its entry gives it, and a mark to find its processes by."""
    env = {name: value for name, value in surrounding.items() if name in PASSED_ON or name.startswith("LC_")}
    outer = surrounding.get(MARK)
    return {**env, **own, MARK: f"{outer} {mark}" if outer else mark}


@asynccontextmanager
async def running(program: Program) -> AsyncIterator[Any]:
    """The streams of a server for as long as the block lasts; afterwards nothing of it runs any more."""
    import anyio

    read = _reader(program)
    transport, wire = await asyncio.get_running_loop().subprocess_exec(
        lambda: Wire(read, program.stderr.add, program.gone),
        *program.argv,
        cwd=program.cwd,
        env=dict(program.env),
        start_new_session=True,
    )
    program.started(transport.get_pid())
    try:
        yield wire, Mouth(transport.get_pipe_transport(0), wire)
    finally:
        with anyio.CancelScope(shield=True):
            await _end(transport, wire, program.mark)


def _reader(program: Program) -> Callable[[bytes], Any]:
    """Lines to messages; None for noise, which some programs print before or between."""
    from mcp.shared.message import SessionMessage
    from mcp_types import jsonrpc_message_adapter

    noise = 0

    def read(line: bytes) -> Any:
        try:
            message = jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValueError:
            message = second_look(line)
        if message is None:
            return None
        mended(getattr(message, "result", None))
        return SessionMessage(message)

    def second_look(line: bytes) -> Any:
        nonlocal noise
        for candidate in salvaged(line):
            with contextlib.suppress(ValueError):
                return jsonrpc_message_adapter.validate_json(candidate, by_name=False)
        noise += 1
        if noise <= MOST_NOISE:
            log.info("%s printed what is no message: %s", program.argv[0], line[:SHOWN].decode("utf-8", "replace"))
            program.stderr.add(b"(on stdout) " + line[:SHOWN] + b"\n")
        return None

    return read


async def _end(transport: asyncio.SubprocessTransport, wire: Wire, mark: str) -> None:
    """Close its stdin, give it a moment to leave by itself, then end it and all that it started."""
    stdin = transport.get_pipe_transport(0)
    if stdin is not None:
        stdin.close()
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(wire.exited.wait(), LEAVE_SECONDS)
    roots = frozenset() if wire.exited.is_set() else frozenset({transport.get_pid()})
    survivors = await in_thread(end, Tree(mark, roots))
    if survivors:
        log.error("processes of an MCP server cannot be ended: %s", ", ".join(str(each.pid) for each in survivors))
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(wire.exited.wait(), LEAVE_SECONDS)
    wire.close()
    with contextlib.suppress(OSError):
        transport.close()
