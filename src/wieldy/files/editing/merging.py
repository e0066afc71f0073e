"""Three-way merge (diff3) of an edit with changes that others made to the file meanwhile."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import TypeAlias

from msgspec import Struct

from wieldy.files.detection import Encoding, detect_encoding, fits

# Comparing more pairs of lines than this would take too long.
MAX_COMPARISONS = 60_000_000
OURS, THEIRS = "your edit", "on disk"
CONTEXT = 3
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
                around = range(max(0, index - CONTEXT), min(index + CONTEXT + 1, len(lines)))
                selected.update(dict.fromkeys(around))
            inside = inside and not line.startswith(f">>>>>>> {THEIRS}")
        excerpt: list[str] = []
        last = -1
        for count, index in enumerate(selected):
            if count == EXCERPT_LINES:
                excerpt.append(f"… {len(selected) - count} more lines")
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
        return _merge_lines(*(_split_lines(data, encoding) for data in (base, ours, theirs)), codec=encoding.name)
    except _TooLarge:
        return None


def merge_bytes(base: bytes, ours: bytes, theirs: bytes) -> bytes | None:
    """The content with both changes, or None where they conflict or cannot be merged."""
    merged = merge(base, ours, theirs)
    return merged.data if merged is not None and merged.clean else None


class _TooLarge(Exception):
    """Comparing these lines would take too long."""


def _split_lines(data: bytes, encoding: Encoding) -> list[Line]:
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
    shortest = min(len(base), len(side))
    head = tail = 0
    while head < shortest and base[head] == side[head]:
        head += 1
    while tail < shortest - head and base[-1 - tail] == side[-1 - tail]:
        tail += 1
    old, new = base[head : len(base) - tail], side[head : len(side) - tail]
    if len(old) * len(new) > MAX_COMPARISONS:
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
