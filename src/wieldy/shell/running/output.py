"""What a program printed, in bounded memory: its beginning, its end, and a file with all of it once that is long."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Literal, TypeAlias

from msgspec import Struct

from wieldy.core.errors import ToolFailure
from wieldy.core.threads import in_thread
from wieldy.core.truncate import keep_head, keep_tail, truncate

_ERASE_TAIL = "\x00"
_ERASE_LINE = "\x01"
_NOWHERE = 1 << 60

_SEQUENCE = re.compile(
    r"\x1b\[(?P<parameters>[0-?]*+)[ -/]*+(?P<final>[@-~])?"  # control sequences: colours, cursor, erasing
    r"|\x1b[\]PX^_][^\x07\x1b\n]*+(?:\x07|\x1b\\)?"  # titles, links and other strings, which the line's end also ends
    r"|\x1b[ -/]*+[0-~]?"  # short sequences, and an escape that leads nowhere
    r"|[\x00-\x07\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f]"  # everything else that is no text
)
_NEEDS_CARE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def clean(text: str) -> str:
    """The text without control characters: sequences gone, overwritten progress folded to its last state."""
    if not _NEEDS_CARE.search(text):
        return text
    text = _SEQUENCE.sub(_replacement, text.replace("\r\n", "\n"))
    if not re.search(r"[\r\x08\x00\x01]", text):
        return text
    return "\n".join(map(_shown, text.split("\n")))


def clean_bytes(data: bytes | bytearray) -> str:
    """`clean` for bytes; what is not UTF-8 is shown as U+FFFD."""
    return clean(data.decode("utf-8", "replace"))


def _replacement(match: re.Match[str]) -> str:
    if match["final"] != "K":
        return ""
    return {"": _ERASE_TAIL, "0": _ERASE_TAIL, "2": _ERASE_LINE}.get(match["parameters"], "")


def _shown(line: str) -> str:
    """One line as it stood on the screen in the end. Later text covers earlier text, so it is read backwards."""
    if not re.search(r"[\r\x08\x00\x01]", line):
        return line
    pieces: list[str] = []
    covered, limit = 0, len(line)
    for segment in reversed(line.rstrip("\r").split("\r")):
        text, erased_from = _written(segment)
        if covered < min(len(text), limit):
            pieces.append(text[covered:limit])
            covered = min(len(text), limit)
        limit = min(limit, erased_from)
        if covered >= limit:
            break
    return "".join(pieces).rstrip(" ") if len(pieces) > 1 else "".join(pieces)


def _written(segment: str) -> tuple[str, int]:
    """What one pass over a line wrote, and the column from which it erased what was there before."""
    if not re.search(r"[\x08\x00\x01]", segment):
        return segment, _NOWHERE
    written: list[str] = []
    erased_from = _NOWHERE
    for character in segment:
        if character == "\x08":
            if written:
                written.pop()
        elif character == _ERASE_TAIL:
            erased_from = min(erased_from, len(written))
        elif character == _ERASE_LINE:
            erased_from = 0
            written.clear()
        else:
            written.append(character)
    return "".join(written), erased_from


SECONDS = 2.0
LONGEST_LINE = 2_000
_CHILD = """
import json, re, sys
pattern, lines = json.load(sys.stdin)
search = re.compile(pattern).search
json.dump([i for i, line in enumerate(lines) if search(line)], sys.stdout)
"""


async def matching_lines(pattern: str, text: str) -> list[str]:
    """The matching lines, in order. Raises `ToolFailure` when the pattern is not valid, or takes too long."""
    try:
        compiled = re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as problem:
        raise ToolFailure(f"The filter is no valid regular expression: {problem}. Send another, or none.") from None
    lines = text.split("\n")
    shortened = [line[:LONGEST_LINE] for line in lines]
    if _is_tame(pattern):
        found = await in_thread(lambda: [index for index, line in enumerate(shortened) if compiled.search(line)])
    else:
        found = await _in_child(pattern, shortened)
    return [lines[index] for index in found]


def _is_tame(pattern: str) -> bool:
    """Whether matching is surely quick: at most one repetition, and no reference to an earlier group."""
    unescaped = re.sub(r"\\[^\d]", "", pattern)
    return sum(map(unescaped.count, "*+{?")) <= 1 and "\\" not in unescaped


async def _in_child(pattern: str, lines: list[str]) -> list[int]:
    if not sys.executable or getattr(sys, "frozen", False):
        raise ToolFailure("This filter is too intricate to be run safely here. Use one with at most one repetition.")
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-I", "-S", "-c", _CHILD, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    try:
        said, _ = await asyncio.wait_for(child.communicate(json.dumps([pattern, lines]).encode()), SECONDS)
    except TimeoutError:
        raise ToolFailure(f"The filter did not finish within {SECONDS:g} s. Send a simpler pattern.") from None
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    found: list[int] = json.loads(said)
    return found


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


HEAD = 64 << 10
TAIL = 256 << 10
SHOWN = 30_000
WIDTH = 200

Whole: TypeAlias = Literal["all", "characters", "lines"]


class Excerpt(Struct, frozen=True):
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
        return "\n".join(truncate(line, WIDTH) for line in lines)

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
        first = keep_head(first, self.shown // 3)
        last = keep_tail(last, self.shown - self.shown // 3)
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
            text = keep_tail(text, self.shown)
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
