"""Diff a change, as a unified diff for the model and as data for a screen; merge an edit with changes made by others (diff3)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from io import StringIO
from typing import Any, TypeAlias

from msgspec import Struct

from wieldy.core.text import plural
from wieldy.files.detection import Encoding, detect_encoding, fits
from wieldy.files.editing.document import Document, Splice, common_prefix, common_suffix
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
            lines = [*lines[:MAX_LINES], f"… {plural(len(lines) - MAX_LINES, 'more line')} of the diff"]
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
    head = common_prefix(old, new)
    tail = common_suffix(old[head:], new[head:])
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


# Comparing more pairs of lines than this would take too long.
MAX_MERGE_COMPARISONS = 60_000_000
OURS, THEIRS = "your edit", "on disk"
EXCERPT_CONTEXT = 3
EXCERPT_LINES = 120

Line: TypeAlias = bytes
# Lines `base_start:base_end` of the base became lines `start:end` of one side.
LineChange: TypeAlias = tuple[int, int, int, int]


class Merge(Struct, frozen=True):
    """Both changes in one content; where they conflict it holds markers as git writes them."""

    data: bytes
    conflicts: int
    codec: str = "utf-8"

    @property
    def clean(self) -> bool:
        return self.conflicts == 0

    def excerpt(self) -> str:
        """The conflicts with some lines around them, cut after a hundred lines."""
        lines = self.data.decode(self.codec, "replace").splitlines()
        selected: dict[int, None] = {}
        inside = False
        for index, line in enumerate(lines):
            inside = inside or line.startswith(f"<<<<<<< {OURS}")
            if inside:
                around = range(max(0, index - EXCERPT_CONTEXT), min(index + EXCERPT_CONTEXT + 1, len(lines)))
                selected.update(dict.fromkeys(around))
            inside = inside and not line.startswith(f">>>>>>> {THEIRS}")
        excerpt: list[str] = []
        last = -1
        for count, index in enumerate(selected):
            if count == EXCERPT_LINES:
                excerpt.append(f"… {plural(len(selected) - count, 'more line')}")
                break
            if last >= 0 and index > last + 1:
                excerpt.append("…")
            excerpt.append(lines[index])
            last = index
        return "\n".join(excerpt)


def merge(base: bytes, ours: bytes, theirs: bytes, *, encoding: Encoding | None = None) -> Merge | None:
    """Merge two changes to `base`; None where they cannot be compared: different encodings, or too many lines."""
    if ours in (base, theirs):
        return Merge(theirs, 0)
    if theirs == base:
        return Merge(ours, 0)
    encoding = encoding or detect_encoding(base)
    if not fits(theirs, encoding):
        return None
    try:
        return _merge_lines(*(_split_byte_lines(data, encoding) for data in (base, ours, theirs)), codec=encoding.name)
    except _TooLarge:
        return None


def merge_bytes(base: bytes, ours: bytes, theirs: bytes) -> bytes | None:
    """The content with both changes, or None where they conflict or cannot be merged."""
    merged = merge(base, ours, theirs)
    return merged.data if merged is not None and merged.clean else None


class _TooLarge(Exception):
    """Comparing these lines would take too long."""


def _split_byte_lines(data: bytes, encoding: Encoding) -> list[Line]:
    newline, unit = "\n".encode(encoding.name), encoding.unit
    lines = []
    start = 0
    while start < len(data):
        at = data.find(newline, start)
        while at >= 0 and at % unit:
            at = data.find(newline, at + 1)
        end = len(data) if at < 0 else at + unit
        lines.append(data[start:end])
        start = end
    return lines


def _merge_lines(base: list[Line], ours: list[Line], theirs: list[Line], *, codec: str) -> Merge:
    pieces: list[Line] = []
    at = conflicts = 0
    for our_changes, their_changes in _touching(_changes(base, ours), _changes(base, theirs)):
        changes = (*our_changes, *their_changes)
        start, end = min(change[0] for change in changes), max(change[1] for change in changes)
        common = base[start:end]
        our_lines = _side(our_changes, base, ours, start, end)
        their_lines = _side(their_changes, base, theirs, start, end)
        pieces += base[at:start]
        if their_lines in (our_lines, common):
            pieces += our_lines
        elif our_lines == common:
            pieces += their_lines
        else:
            conflicts += 1
            pieces += _conflict_markers(our_lines, their_lines, pieces[-1:], codec)
        at = end
    return Merge(b"".join((*pieces, *base[at:])), conflicts, codec)


def _changes(base: Sequence[Line], side: Sequence[Line]) -> list[LineChange]:
    head = common_prefix(base, side)
    tail = common_suffix(base[head:], side[head:])
    old, new = base[head : len(base) - tail], side[head : len(side) - tail]
    if len(old) * len(new) > MAX_MERGE_COMPARISONS:
        raise _TooLarge
    codes = SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    return [(i + head, j + head, k + head, m + head) for tag, i, j, k, m in codes if tag != "equal"]


def _touching(ours: list[LineChange], theirs: list[LineChange]) -> Iterator[tuple[list[LineChange], list[LineChange]]]:
    """Changes of both sides that touch each other in the base, in groups."""
    pending = sorted([(*change, 0) for change in ours] + [(*change, 1) for change in theirs])
    group: tuple[list[LineChange], list[LineChange]] = ([], [])
    reach = -1
    for i, j, k, m, side in pending:
        if i > reach and (group[0] or group[1]):
            yield group
            group = ([], [])
        group[side].append((i, j, k, m))
        reach = max(reach, j)
    if group[0] or group[1]:
        yield group


def _side(changes: list[LineChange], base: list[Line], side: list[Line], start: int, end: int) -> list[Line]:
    """What one side has in place of lines `start:end` of the base."""
    if not changes:
        return base[start:end]
    first, last = changes[0], changes[-1]
    return side[first[2] - (first[0] - start) : last[3] + (end - last[1])]


def _conflict_markers(ours: list[Line], theirs: list[Line], before: list[Line], codec: str) -> Iterator[bytes]:
    ended = next((line for line in (*ours, *theirs, *before) if line.endswith("\n".encode(codec))), b"")
    end = "\r\n" if ended.endswith("\r\n".encode(codec)) else "\n"
    for marker, lines in ((f"<<<<<<< {OURS}", ours), ("=======", theirs)):
        yield (marker + end).encode(codec)
        yield from lines
        if lines and not lines[-1].endswith("\n".encode(codec)):
            yield end.encode(codec)
    yield (f">>>>>>> {THEIRS}" + end).encode(codec)
