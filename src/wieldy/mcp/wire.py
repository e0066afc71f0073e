"""Both directions of a server's pipes as the streams the SDK reads and writes, without a task in between."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Self

from wieldy.core.log import log

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
