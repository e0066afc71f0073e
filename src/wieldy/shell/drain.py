"""Reads a pipe into a capture whenever bytes arrive, without threads and without polling."""

from __future__ import annotations

import asyncio
import os
import time

from wieldy.shell.capture import Capture

BUFFER = 1 << 20
READS_AT_ONCE = 8
QUIET = 0.1
LIMIT = 1.0


class Drain:
    """The read end of a pipe. `ended` comes true when nobody holds the other end any more."""

    def __init__(self, descriptor: int, capture: Capture, buffer: bytearray) -> None:
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._loop = asyncio.get_running_loop()
        self._descriptor = descriptor
        self.capture = capture
        self._view = memoryview(buffer)
        os.set_blocking(descriptor, False)
        self._loop.add_reader(descriptor, self._read)

    def close(self) -> None:
        """Stop reading. Whoever still writes gets SIGPIPE."""
        if self._descriptor < 0:
            return
        self._loop.remove_reader(self._descriptor)
        os.close(self._descriptor)
        self._descriptor = -1
        if not self.ended.done():
            self.ended.set_result(None)

    async def settle(self, *, quiet: float = QUIET, limit: float = LIMIT) -> None:
        """Take what is still on its way: until its end, until `quiet` seconds of nothing, for at most `limit` seconds."""
        self._read()
        deadline = time.monotonic() + limit
        while not self.ended.done() and (left := deadline - time.monotonic()) > 0:
            before = self.capture.total
            await asyncio.wait((self.ended,), timeout=min(quiet, left))
            if self.capture.total == before:
                return

    def _read(self) -> None:
        for _ in range(READS_AT_ONCE):
            if self._descriptor < 0:
                return
            try:
                count = os.readv(self._descriptor, (self._view,))
            except BlockingIOError:
                return
            except OSError:
                count = 0
            if not count:
                self.close()
                return
            self.capture.feed(self._view[:count])
