"""One connection to a server. What comes goes through a buffer of its own to where the protocol stands, whoever waits for it.

Not `asyncio.StreamReader`: its transport would take and give back a quarter of a megabyte of memory for every few bytes.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from wieldy.providers.http1 import Answers
from wieldy.providers.leisure import LONGEST, Leisure
from wieldy.providers.watermark import Watermark

if TYPE_CHECKING:
    import ssl

READ_BYTES = 1 << 16
MOST_HELD = 1 << 20  # of what nobody has taken yet: then the server has to wait


class Silence(Exception):
    """Nothing came for too long."""


class Connection(asyncio.BufferedProtocol):
    """The asyncio protocol of one connection; `answers` is how far the server has come."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.time = self._loop.time
        self.answers = Answers()
        self.used = False
        self._buffer = memoryview(bytearray(READ_BYTES))
        self._waiter: asyncio.Future[None] | None = None
        self._broken: Exception | None = None
        self._held_up = False
        self._leisure: Leisure | None = None
        self._mark: Watermark | None = None
        self._rests = False
        self._until = 0.0
        self._watch: asyncio.TimerHandle | None = None

    async def more(self, until: float | None = None) -> None:
        """Wait until something has come, or the end. Raises `Silence` at a time of the loop's, `OSError` when it broke."""
        if self._broken is not None:
            raise self._broken
        if self._held_up:
            self._held_up = False
            self.transport.resume_reading()
        if until is not None:
            self._until = until
            if self._watch is None or self._watch.when() > until:
                self._watch_until(until)
        waiter = self._waiter = self._loop.create_future()
        try:
            await waiter
        finally:
            self._waiter, self._until = None, 0.0
        if self._broken is not None:
            raise self._broken

    def send(self, head: bytes, body: bytes) -> None:
        """Send a request, without waiting until it is gone: a server may refuse it before it has read it all."""
        if len(body) < READ_BYTES:
            self.transport.write(head + body)
        else:  # a copy of it would take longer than to begin with the head alone
            self.transport.write(head)
            self.transport.write(memoryview(body))

    def take_leisure(self, leisure: Leisure) -> None:
        """From here on let what is heard wait as this allows."""
        self._leisure = leisure
        if self._mark is None:
            self._mark = Watermark(self.transport, self._spill)

    def end_leisure(self) -> None:
        """From here on hear everything at once."""
        self._leisure = None
        if self._mark is not None:
            self._mark.lower()

    async def secure(self, context: ssl.SSLContext, host: str) -> None:
        """From here on speak TLS with a host."""
        transport = await self._loop.start_tls(self.transport, self, context, server_hostname=host)
        assert transport is not None
        self.transport = transport

    def close(self) -> None:
        """Drop it, without waiting for the other side."""
        self.end_leisure()
        if self._watch is not None:
            self._watch.cancel()
        self.transport.abort()

    def _watch_until(self, until: float) -> None:
        """One timer looks now and then, instead of a new one for every piece."""
        if self._watch is not None:
            self._watch.cancel()
        self._watch = self._loop.call_at(until, self._look)

    def _look(self) -> None:
        self._watch = None
        if not self._until:
            return
        if self.time() >= self._until and self._mark is not None and self._mark.raised:
            self._mark.fall()
        if self.time() >= self._until:
            self._break(Silence())
        else:
            self._watch_until(self._until)

    def _spill(self) -> None:
        """What lay in the kernel, below the mark, comes next; until then nobody can say that the server is silent."""
        if self._leisure is not None:
            self._leisure.is_over()
        if self._until:
            self._until = max(self._until, self.time() + LONGEST)
        if self._rests:
            self._wake()

    def _break(self, why: Exception) -> None:
        self._broken = why
        self._wake()

    def _wake(self) -> None:
        self._rests = False
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def connection_made(self, transport: Any) -> None:
        """From asyncio: it stands."""
        self.transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        """From asyncio: where to put what has come."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """From asyncio: so much has come."""
        data = bytes(self._buffer[:nbytes])
        held = self.answers.feed(data)
        if self._leisure is not None and self._mark is not None:
            waits = self._leisure.allows(data, now := self.time())
            self._mark.follow(self._leisure, data, now)
            if waits and held < READ_BYTES:
                self._rests = True
                if self._until:
                    self._until = now + self._leisure.silence
                return
        if held > MOST_HELD and not self._held_up:
            self._held_up = True
            self.transport.pause_reading()
        self._wake()

    def eof_received(self) -> bool:
        """From asyncio: the server will say no more. Whether it still listens does not matter."""
        self.answers.feed(b"")
        self._wake()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """From asyncio: it is over."""
        if exc is not None:
            self._break(exc)
            return
        self.answers.feed(b"")
        self._wake()
