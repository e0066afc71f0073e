"""The pipes to a hook: its end is the end of its own process, whatever it left running, and neither side waits for the other."""

from __future__ import annotations

import asyncio
import os

MOST_OUTPUT = 1 << 20
_AT_ONCE = 1 << 16


class Ear:
    """The read end of a pipe. Its first megabyte is kept; the rest is read and forgotten, so that the hook does not block."""

    def __init__(self) -> None:
        self._mine, self.theirs = os.pipe()
        os.set_blocking(self._mine, False)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._mine, self._read)
        self._kept = bytearray()

    def _read(self) -> bool:
        try:
            data = os.read(self._mine, _AT_ONCE)
        except BlockingIOError:
            return False
        if not data:
            self.close()
        self._kept += data[: MOST_OUTPUT - len(self._kept)]
        return bool(data)

    def hear_out(self) -> str:
        """What has been said by now, as text."""
        reads = 0
        while self._mine >= 0 and reads * _AT_ONCE < MOST_OUTPUT and self._read():
            reads += 1
        return self._kept.decode("utf-8", "replace")

    def close(self) -> None:
        """Listen no more."""
        if self._mine >= 0:
            self._loop.remove_reader(self._mine)
            os.close(self._mine)
            self._mine = -1


class Mouth:
    """The write end of a pipe: what is to be told, and then its end."""

    def __init__(self, told: bytes) -> None:
        self.theirs, self._mine = os.pipe()
        os.set_blocking(self._mine, False)
        self._loop = asyncio.get_running_loop()
        self._loop.add_writer(self._mine, self._write)
        self._rest = memoryview(told)

    def _write(self) -> None:
        try:
            self._rest = self._rest[os.write(self._mine, self._rest[:_AT_ONCE]) :]
        except BlockingIOError:
            return
        except OSError:  # the hook has closed its stdin, and need not listen
            self._rest = self._rest[:0]
        if not self._rest:
            self.close()

    def close(self) -> None:
        """Say no more."""
        if self._mine >= 0:
            self._loop.remove_writer(self._mine)
            os.close(self._mine)
            self._mine = -1
