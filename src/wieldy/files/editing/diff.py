"""Diff a change: hunks of lines, as a unified diff for the model and as data for a screen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher
from io import StringIO
from typing import Any, TypeAlias

from msgspec import Struct

from wieldy.files.editing.document import Document
from wieldy.files.editing.splicing import Splice
from wieldy.files.search.format import SHOWN_RETURN

CONTEXT = 5
# Beyond this many pairs of lines a range is shown as wholly replaced instead of being compared.
MAX_COMPARISONS = 4_000_000
MAX_LINES = 150
MAX_HUNKS = 500
MAX_SPLICES = 2_000
MAX_WIDTH = 300

OpCode: TypeAlias = tuple[str, int, int, int, int]


class Hunk(Struct, frozen=True):
    """The lines around one change, each prefixed with a space, `-` or `+`; a last line without line end is followed by `\\`."""

    old_start: int
    old_lines: int
    new_start: int
    new_lines: int
    lines: tuple[str, ...]

    def as_data(self) -> dict[str, Any]:
        return {
            "oldStart": self.old_start,
            "oldLines": self.old_lines,
            "newStart": self.new_start,
            "newLines": self.new_lines,
            "lines": list(self.lines),
        }

    def __str__(self) -> str:
        old, new = _range(self.old_start, self.old_lines), _range(self.new_start, self.new_lines)
        return "\n".join((f"@@ -{old} +{new} @@", *map(_cut, self.lines)))


class Patch(Struct, frozen=True):
    """The hunks of one file; `truncated` where there are more than could be of use."""

    hunks: tuple[Hunk, ...]
    truncated: bool = False

    @property
    def added(self) -> int:
        return self._count("+")

    @property
    def removed(self) -> int:
        return self._count("-")

    def _count(self, prefix: str) -> int:
        return len([1 for hunk in self.hunks for line in hunk.lines if line[0] == prefix])

    def snippet(self) -> str:
        """The changed lines as they are now, with their numbers and the lines around them."""
        lines: list[str] = []
        for hunk in self.hunks:
            lines += ("…",) if lines else ()
            current = [line[1:] for line in hunk.lines if line[0] in " +"]
            lines += [f"{number}\t{_cut(line)}" for number, line in enumerate(current, start=hunk.new_start)]
        return "\n".join(lines if len(lines) <= MAX_LINES else (*lines[:MAX_LINES], "…"))

    def unified(self, name: str) -> str:
        """A unified diff, cut after some hundred lines."""
        lines = "\n".join(map(str, self.hunks)).split("\n")
        if len(lines) > MAX_LINES:
            lines = [*lines[:MAX_LINES], f"… {len(lines) - MAX_LINES} more lines of the diff"]
        return "\n".join((f"--- {name}", f"+++ {name}", *lines))


def make_patch(before: Document, splices: Sequence[Splice]) -> Patch:
    """The hunks that ascending splices produce, found without comparing the whole file."""
    hunks: list[Hunk] = []
    growth, line, counted = 0, 1, before.body
    for group in _group_splices(before, splices[:MAX_SPLICES]):
        if len(hunks) >= MAX_HUNKS:
            return Patch(tuple(hunks), True)
        window = _Window(before, group)
        # Counted from the last window on, so that many changes cost no more than one.
        line, counted = line + before.count_line_ends(counted, window.start), window.start
        hunks += window.hunks(line, growth)
        growth += len(window.new) - len(window.old)
    return Patch(tuple(hunks), len(splices) > MAX_SPLICES)


def _group_splices(document: Document, splices: Sequence[Splice]) -> Iterable[list[Splice]]:
    """Splices whose context would touch, together."""
    group: list[Splice] = []
    for splice in splices:
        if group and splice.start > document.line_end(group[-1].end, 2 * CONTEXT + 1):
            yield group
            group = []
        group.append(splice)
    if group:
        yield group


class _Window:
    """The lines around a group of splices, before and after."""

    def __init__(self, document: Document, splices: list[Splice]) -> None:
        self.start = document.line_start(splices[0].start, CONTEXT)
        end = document.line_end(splices[-1].end, CONTEXT)
        pieces, at = [], self.start
        for splice in splices:
            pieces += [document.data[at : splice.start], splice.new]
            at = splice.end
        pieces.append(document.data[at:end])
        newline = "\n" if document.has_lone_returns else ""
        self.old = _split_lines(document.codec.decode(document.data[self.start : end]), newline)
        self.new = _split_lines(document.codec.decode(b"".join(pieces)), newline)

    def hunks(self, line: int, growth: int) -> Iterable[Hunk]:
        """The hunks of a window that begins at a line of the old file, and `growth` lines later in the new one."""
        for group in _group_opcodes(_opcodes(self.old, self.new)):
            _, i, _, k, _ = group[0]
            _, _, j, _, m = group[-1]
            lines: list[str] = []
            for tag, a, b, c, d in group:
                if tag == "equal":
                    lines += _prefixed(" ", self.old[a:b])
                else:
                    lines += (*_prefixed("-", self.old[a:b]), *_prefixed("+", self.new[c:d]))
            yield Hunk(line + i - (i == j), j - i, line + k + growth - (k == m), m - k, tuple(lines))


def _opcodes(old: list[str], new: list[str]) -> list[OpCode]:
    head, tail, shortest = 0, 0, min(len(old), len(new))
    while head < shortest and old[head] == new[head]:
        head += 1
    while tail < shortest - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    i, k = len(old) - tail, len(new) - tail
    codes: list[OpCode] = [("equal", 0, head, 0, head)] if head else []
    if (i - head) * (k - head) > MAX_COMPARISONS:
        codes.append(("replace", head, i, head, k))
    elif i > head or k > head:
        codes += _compare(old[head:i], new[head:k], head)
    return [*codes, ("equal", i, len(old), k, len(new))] if tail else codes


def _compare(old: list[str], new: list[str], shift: int) -> list[OpCode]:
    """The opcodes of lines that differ at both ends, with all indices shifted."""
    if set(old).isdisjoint(new):
        tag = "replace" if old and new else "delete" if old else "insert"
        return [(tag, shift, shift + len(old), shift, shift + len(new))]
    codes = SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    return [(tag, a + shift, b + shift, c + shift, d + shift) for tag, a, b, c, d in codes]


def _group_opcodes(codes: list[OpCode]) -> Iterable[list[OpCode]]:
    """Changes with their context, in groups that are more than twice the context apart."""
    group: list[OpCode] = []
    for index, (tag, i, j, k, m) in enumerate(codes):
        if tag != "equal":
            group.append((tag, i, j, k, m))
            continue
        first, last = index == 0, index == len(codes) - 1
        if not first and (last or j - i > 2 * CONTEXT):
            context = min(CONTEXT, j - i)
            group.append((tag, i, i + context, k, k + context))
            yield group
            group = []
        if not last and (first or j - i > 2 * CONTEXT):
            start = max(i, j - CONTEXT)
            group = [(tag, start, j, k + start - i, m)]
        elif not first and not last:
            group.append((tag, i, j, k, m))
    if any(code[0] != "equal" for code in group):
        yield group


def _split_lines(text: str, newline: str) -> list[str]:
    """Lines with their line ends, which count when lines are compared."""
    return list(StringIO(text, newline=newline))


def _prefixed(prefix: str, lines: list[str]) -> list[str]:
    prefixed: list[str] = []
    for line in lines:
        text = line.removesuffix("\n").removesuffix("\r")
        prefixed.append(prefix + text.replace("\r", SHOWN_RETURN))
        if not line.endswith(("\n", "\r")):
            prefixed.append("\\ No newline at end of file")
    return prefixed


def _range(start: int, lines: int) -> str:
    return f"{start}" if lines == 1 else f"{start},{lines}"


def _cut(line: str) -> str:
    return line if len(line) <= MAX_WIDTH else f"{line[:MAX_WIDTH]}… ({len(line)} characters)"
