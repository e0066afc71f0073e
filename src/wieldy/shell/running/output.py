"""Captures output in bounded memory: its beginning, its end, and a file with all of it once it is long."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal, TypeAlias

from msgspec import Struct

from wieldy.core.state_dirs import make_private_folder
from wieldy.core.text import keep_head, keep_tail, truncate
from wieldy.shell.running.terminal_text import clean_bytes

HEAD_BYTES = 64 << 10
TAIL_BYTES = 256 << 10
MAX_CHARS = 30_000
PREVIEW_WIDTH = 200
SPILL_BYTES = 64 << 20
SPILL_TAIL_BYTES = 16 << 20
COPY_BYTES = 256 << 10

Whole: TypeAlias = Literal["all", "characters", "lines"]


class OutputExcerpt(Struct, frozen=True):
    """The output, or a part of it. `omitted` counts the bytes not shown; `end` is the position after the last one."""

    text: str
    omitted: int = 0
    end: int = 0


class OutputCapture:
    """Takes bytes as they arrive. Memory stays below a megabyte at any volume."""

    def __init__(self, path: Path, *, max_chars: int = MAX_CHARS) -> None:
        self.total = 0
        self.max_chars = max_chars
        self.spill = SpillFile(path)
        self._head = bytearray()
        self._tail = bytearray()

    def feed(self, data: memoryview) -> None:
        if self.total + len(data) > self.max_chars:
            if self.total <= self.max_chars:
                self.spill.write(self._head)
                self.spill.write(self._tail)
            self.spill.write(data)
        self.total += len(data)
        room = HEAD_BYTES - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if len(data) >= TAIL_BYTES:
            self._tail = bytearray(data[-TAIL_BYTES:])
        else:
            self._tail += data
            if len(self._tail) > 2 * TAIL_BYTES:
                del self._tail[:-TAIL_BYTES]

    def last_lines(self, count: int = 3) -> str:
        """The last lines so far, as a progress display."""
        end = bytes(self._tail[-2048:] or self._head[-2048:])
        lines = clean_bytes(end).rstrip().split("\n")[-count:]
        return "\n".join(truncate(line, PREVIEW_WIDTH) for line in lines)

    def excerpt(self) -> OutputExcerpt:
        """All of the output, or its beginning and end within `max_chars`."""
        missing = self.total - len(self._head) - len(self._tail)
        if not missing:
            text = clean_bytes(self._head + self._tail)
            if len(text) <= self.max_chars:
                return OutputExcerpt(text)
            first, last = text, text
        else:
            first = clean_bytes(_drop_partial_end(self._head))
            last = clean_bytes(_drop_partial_start(self._tail))
        first = keep_head(first, self.max_chars // 3)
        last = keep_tail(last, self.max_chars - self.max_chars // 3)
        omitted = max(self.total - len(first.encode()) - len(last.encode()), 0)
        return OutputExcerpt(f"{first}\n[… {omitted} bytes not shown{self._location()} …]\n{last}", omitted)

    def since(self, position: int, whole: Whole = "all") -> OutputExcerpt:
        """The output after the first `position` bytes: as much of its end as is in memory and within `max_chars`.

        While more may come, `whole` holds back a character or a line that is not complete yet.
        """
        gap = self.total - len(self._head) - len(self._tail)
        if not gap and position < len(self._head):
            data = self._head[position:] + self._tail
        else:
            data = self._tail[max(position - len(self._head) - gap, 0) :]
        lost = self.total - position - len(data)
        if whole == "lines":
            data = data[: data.rfind(b"\n") + 1]
        elif whole == "characters":
            data = _drop_partial_end(data)
        end = position + lost + len(data)
        text = clean_bytes(_drop_partial_start(data) if lost else data)
        if len(text) > self.max_chars:
            text = keep_tail(text, self.max_chars)
            lost = end - position - len(text.encode())
        return OutputExcerpt(text, lost, end)

    def finish(self) -> None:
        """Close the file, or remove it if everything could be shown. Blocks on the disk: call it in a thread."""
        if self.total > self.max_chars and not self.excerpt().omitted:
            self.spill.discard()
        else:
            self.spill.finish()

    @property
    def path(self) -> Path | None:
        """The file with the whole output, if there is one."""
        return self.spill.path if self.spill.total else None

    def _location(self) -> str:
        if self.spill.error:
            return f"; they could not be kept: {self.spill.error}"
        if self.path is None:
            return ""
        return f"; the {'first and last parts are' if self.spill.capped else 'whole output is'} in {self.path}"


class SpillFile:
    """A file of at most `cap` bytes. The first `cap - tail` stay; the rest goes into a ring buffer in a second file.

    `finish` appends the ring in order and marks the gap, so that the file reads from top to bottom.
    """

    def __init__(self, path: Path, *, cap: int = SPILL_BYTES, tail: int = SPILL_TAIL_BYTES) -> None:
        self.path = path
        self.total = 0
        self.error = ""
        self._head_size = cap - tail
        self._tail_size = tail
        self._file = -1
        self._ring = -1

    @property
    def capped(self) -> bool:
        """Whether bytes in the middle were dropped."""
        return self.total > self._head_size + self._tail_size

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Append. A full disk ends the saving, never the program."""
        if self.error:
            return
        view = memoryview(data)
        try:
            while view:
                view = view[self._write_some(view) :]
        except OSError as problem:
            self.error = problem.strerror or str(problem)

    def finish(self) -> None:
        """Complete and close the file. Copies the end of a long output: call it in a thread."""
        try:
            if self._ring >= 0 and not self.error:
                self._append_ring()
        except OSError as problem:
            self.error = problem.strerror or str(problem)
        finally:
            self._close()

    def discard(self) -> None:
        """Close the file and remove it."""
        self._close()
        self.path.unlink(missing_ok=True)
        self.total = 0

    @property
    def _ring_path(self) -> Path:
        return self.path.with_name(f"{self.path.name}.end")

    def _write_some(self, view: memoryview) -> int:
        if self.total < self._head_size:
            if self._file < 0:
                self._file = _create(self.path)
            count = os.pwrite(self._file, view[: self._head_size - self.total], self.total)
        else:
            if self._ring < 0:
                self._ring = _create(self._ring_path)
            position = (self.total - self._head_size) % self._tail_size
            count = os.pwrite(self._ring, view[: self._tail_size - position], position)
        self.total += count
        return count

    def _append_ring(self) -> None:
        at, size = self._head_size, self.total - self._head_size
        if self.capped:
            at += os.pwrite(self._file, f"\n[… {size - self._tail_size} bytes were not kept …]\n".encode(), at)
            position = size % self._tail_size
            at = self._copy(position, self._tail_size - position, at)
            size = position
        self._copy(0, size, at)

    def _copy(self, start: int, size: int, at: int) -> int:
        while size > 0 and (piece := os.pread(self._ring, min(size, COPY_BYTES), start)):
            count = os.pwrite(self._file, piece, at)
            start, size, at = start + count, size - count, at + count
        return at

    def _close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        if self._ring >= 0:
            os.close(self._ring)
            self._ring_path.unlink(missing_ok=True)
        self._file = self._ring = -1


def _create(path: Path) -> int:
    make_private_folder(path.parent)
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)


def _drop_partial_end(data: bytearray) -> bytearray:
    """Without an incomplete UTF-8 character at the end."""
    for back in range(1, min(4, len(data)) + 1):
        lead = data[-back]
        if lead >= 0xC0:
            length = 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
            return data[:-back] if back < length else data
        if lead < 0x80:
            break
    return data


def _drop_partial_start(data: bytearray) -> bytearray:
    """Without the rest of a UTF-8 character at the start."""
    skip = 0
    while skip < min(3, len(data)) and 0x80 <= data[skip] < 0xC0:
        skip += 1
    return data[skip:]
