"""What a program printed, in bounded memory: its beginning, its end, and a file with all of it once that is long."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal, TypeAlias

from wieldy.core.record import record
from wieldy.shell.ansi import clean_bytes
from wieldy.shell.spill import Spill

HEAD = 64 << 10
TAIL = 256 << 10
SHOWN = 30_000
WIDTH = 200

Whole: TypeAlias = Literal["all", "characters", "lines"]


@record
class Excerpt:
    """Text for a reader: all of it, or a part. `omitted` counts bytes not shown, `upto` those that are dealt with."""

    text: str
    omitted: int = 0
    upto: int = 0


class Capture:
    """Takes bytes as they come. Memory stays below a megabyte at any volume."""

    def __init__(self, path: Path, *, shown: int = SHOWN, on_bytes: Callable[[], None] = lambda: None) -> None:
        self.total = 0
        self.shown = shown
        self.on_bytes = on_bytes
        self.spill = Spill(path)
        self._head = bytearray()
        self._tail = bytearray()

    def feed(self, data: memoryview) -> None:
        """Take the next bytes."""
        if self.total + len(data) > self.shown:
            if self.total <= self.shown:
                self.spill.write(self._head)
                self.spill.write(self._tail)
            self.spill.write(data)
        self.total += len(data)
        room = HEAD - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if len(data) >= TAIL:
            self._tail = bytearray(data[-TAIL:])
        else:
            self._tail += data
            if len(self._tail) > 2 * TAIL:
                del self._tail[:-TAIL]
        self.on_bytes()

    def last_lines(self, count: int = 3) -> str:
        """The last lines printed so far, for a person who watches."""
        end = bytes(self._tail[-2048:] or self._head[-2048:])
        lines = clean_bytes(end).rstrip().split("\n")[-count:]
        return "\n".join(line if len(line) <= WIDTH else f"{line[:WIDTH]}…" for line in lines)

    def excerpt(self) -> Excerpt:
        """All that was printed, or its beginning and end within `shown` characters."""
        missing = self.total - len(self._head) - len(self._tail)
        if not missing:
            text = clean_bytes(self._head + self._tail)
            if len(text) <= self.shown:
                return Excerpt(text)
            first, last = text, text
        else:
            first = clean_bytes(_whole_end(self._head))
            last = clean_bytes(_whole_start(self._tail))
        first = _cut_end(first, self.shown // 3)
        last = _cut_start(last, self.shown - self.shown // 3)
        omitted = max(self.total - len(first.encode()) - len(last.encode()), 0)
        return Excerpt(f"{first}\n[… {omitted} bytes not shown{self._where()} …]\n{last}", omitted)

    def since(self, position: int, whole: Whole = "all") -> Excerpt:
        """What was printed after the first `position` bytes: as much of its end as is in memory and may be shown.

        While more may come, `whole` holds back a character or a line that is not complete yet.
        """
        gap = self.total - len(self._head) - len(self._tail)
        if not gap and position < len(self._head):
            known = self._head[position:] + self._tail
        else:
            known = self._tail[max(position - len(self._head) - gap, 0) :]
        lost = self.total - position - len(known)
        if whole == "lines":
            known = known[: known.rfind(b"\n") + 1]
        elif whole == "characters":
            known = _whole_end(known)
        upto = position + lost + len(known)
        text = clean_bytes(_whole_start(known) if lost else known)
        if len(text) > self.shown:
            text = _cut_start(text, self.shown)
            lost = upto - position - len(text.encode())
        return Excerpt(text, lost, upto)

    def finish(self) -> None:
        """Close the file, or remove it where everything could be shown after all. Touches the disk: call it in a thread."""
        if self.total > self.shown and not self.excerpt().omitted:
            self.spill.discard()
        else:
            self.spill.finish()

    @property
    def path(self) -> Path | None:
        """The file with the whole output, if there is one."""
        return self.spill.path if self.spill.total else None

    def _where(self) -> str:
        if self.spill.trouble:
            return f"; they could not be kept: {self.spill.trouble}"
        if self.path is None:
            return ""
        return f"; the {'first and last parts are' if self.spill.capped else 'whole output is'} in {self.path}"


def _whole_end(data: bytearray) -> bytearray:
    """Without a character that was cut in two at the end."""
    for back in range(1, min(4, len(data)) + 1):
        lead = data[-back]
        if lead >= 0xC0:
            length = 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
            return data[:-back] if back < length else data
        if lead < 0x80:
            break
    return data


def _whole_start(data: bytearray) -> bytearray:
    """Without the rest of a character that was cut in two at the start."""
    skip = 0
    while skip < min(3, len(data)) and 0x80 <= data[skip] < 0xC0:
        skip += 1
    return data[skip:]


def _cut_end(text: str, limit: int) -> str:
    cut = text[:limit]
    line_end = cut.rfind("\n")
    return cut[:line_end] if line_end > limit // 2 else cut


def _cut_start(text: str, limit: int) -> str:
    cut = text[-limit:]
    line_start = cut.find("\n") + 1
    return cut[line_start:] if 0 < line_start < limit // 2 else cut
