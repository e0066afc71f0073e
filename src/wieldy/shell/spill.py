"""A file that keeps what a program printed: beginning and end of any volume, never more than its cap and a line."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

CAP = 64 << 20
LAST = 16 << 20


class Spill:
    """The first `cap - last` bytes stay as they came; what follows goes round and round in the last `last` bytes.

    `finish` puts the round part in order and marks the gap, so that the file reads from top to bottom.
    """

    def __init__(self, path: Path, *, cap: int = CAP, last: int = LAST) -> None:
        self.path = path
        self.total = 0
        self.trouble = ""
        self._first = cap - last
        self._last = last
        self._descriptor = -1

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Append; a full disk ends the keeping, never the program."""
        if self.trouble:
            return
        view = memoryview(data)
        try:
            if self._descriptor < 0:
                self._open()
            while view:
                view = view[self._write_some(view) :]
        except OSError as problem:
            self.trouble = problem.strerror or str(problem)

    def finish(self) -> None:
        """Close the file; call it in a thread where the cap was passed, since the end is then written once more."""
        if self._descriptor < 0:
            return
        try:
            if self.total > self._first + self._last and not self.trouble:
                self._straighten()
        except OSError as problem:
            self.trouble = problem.strerror or str(problem)
        finally:
            os.close(self._descriptor)
            self._descriptor = -1

    def discard(self) -> None:
        """Close the file and remove it."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        self.path.unlink(missing_ok=True)
        self.total = 0

    @property
    def capped(self) -> bool:
        """Whether bytes were lost from the middle."""
        return self.total > self._first + self._last

    def _open(self) -> None:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)

    def _write_some(self, view: memoryview) -> int:
        if self.total < self._first:
            at, room = self.total, self._first - self.total
        else:
            turn = (self.total - self._first) % self._last
            at, room = self._first + turn, self._last - turn
        written = os.pwrite(self._descriptor, view[:room], at)
        self.total += written
        return written

    def _straighten(self) -> None:
        turn = (self.total - self._first) % self._last
        lost = self.total - self._first - self._last
        older = _read(self._descriptor, self._last - turn, self._first + turn)
        newer = _read(self._descriptor, turn, self._first)
        marker = f"\n[… {lost} bytes were not kept …]\n".encode()
        at = self._first
        for part in (marker, older, newer):
            at += _write(self._descriptor, part, at)


def _read(descriptor: int, size: int, at: int) -> bytes:
    return _all(size, lambda done: os.pread(descriptor, size - done, at + done))


def _all(size: int, read: Callable[[int], bytes]) -> bytes:
    data = bytearray()
    while len(data) < size and (piece := read(len(data))):
        data += piece
    return bytes(data)


def _write(descriptor: int, data: bytes, at: int) -> int:
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, at)
        view, at = view[written:], at + written
    return len(data)
