"""A file that keeps what a program printed: beginning and end of any volume, never more than its cap and a line."""

from __future__ import annotations

import os
from pathlib import Path

CAP = 64 << 20
LAST = 16 << 20
CHUNK = 256 << 10


class Spill:
    """The first `cap - last` bytes stay as they came; what follows goes round and round in a second file of `last` bytes.

    `finish` appends that file in the right order and marks the gap, so that the whole reads from top to bottom.
    """

    def __init__(self, path: Path, *, cap: int = CAP, last: int = LAST) -> None:
        self.path = path
        self.total = 0
        self.trouble = ""
        self._first = cap - last
        self._last = last
        self._file = -1
        self._ring = -1

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Append; a full disk ends the keeping, never the program."""
        if self.trouble:
            return
        view = memoryview(data)
        try:
            while view:
                view = view[self._write_some(view) :]
        except OSError as problem:
            self.trouble = problem.strerror or str(problem)

    def finish(self) -> None:
        """Complete and close the file. Copies the end of a long output: call it in a thread."""
        try:
            if self._ring >= 0 and not self.trouble:
                self._append_ring()
        except OSError as problem:
            self.trouble = problem.strerror or str(problem)
        finally:
            self._close()

    def discard(self) -> None:
        """Close the file and remove it."""
        self._close()
        self.path.unlink(missing_ok=True)
        self.total = 0

    @property
    def capped(self) -> bool:
        """Whether bytes were lost from the middle."""
        return self.total > self._first + self._last

    @property
    def _ring_path(self) -> Path:
        return self.path.with_name(f"{self.path.name}.end")

    def _write_some(self, view: memoryview) -> int:
        if self.total < self._first:
            if self._file < 0:
                self._file = _open(self.path)
            written = os.pwrite(self._file, view[: self._first - self.total], self.total)
        else:
            if self._ring < 0:
                self._ring = _open(self._ring_path)
            turn = (self.total - self._first) % self._last
            written = os.pwrite(self._ring, view[: self._last - turn], turn)
        self.total += written
        return written

    def _append_ring(self) -> None:
        at, size = self._first, self.total - self._first
        if self.capped:
            at += os.pwrite(self._file, f"\n[… {size - self._last} bytes were not kept …]\n".encode(), at)
            turn = size % self._last
            at = self._copy(turn, self._last - turn, at)
            size = turn
        self._copy(0, size, at)

    def _copy(self, start: int, size: int, at: int) -> int:
        while size > 0 and (piece := os.pread(self._ring, min(size, CHUNK), start)):
            written = os.pwrite(self._file, piece, at)
            start, size, at = start + written, size - written, at + written
        return at

    def _close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        if self._ring >= 0:
            os.close(self._ring)
            self._ring_path.unlink(missing_ok=True)
        self._file = self._ring = -1


def _open(path: Path) -> int:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
