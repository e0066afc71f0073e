"""Messages to a client, one a line. A client that does not read holds up its own answers and nothing else."""

from __future__ import annotations

import asyncio
import json
import os
import select
import stat
import threading
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from wieldy.core.threads import in_thread

if TYPE_CHECKING:
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
