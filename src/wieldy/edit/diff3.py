"""Three-way merging of lines: what only one side changed is taken, what both changed alike is taken once, the rest conflicts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import TypeAlias

from wieldy.core.record import record

Line: TypeAlias = bytes
COMPARED_AT_MOST = 60_000_000


class TooLarge(Exception):
    """Comparing these would take too long."""


@record
class Settled:
    """Lines that are clear."""

    lines: tuple[Line, ...]


@record
class Conflict:
    """The same lines of the base, changed differently by both sides."""

    ours: tuple[Line, ...]
    base: tuple[Line, ...]
    theirs: tuple[Line, ...]


Chunk: TypeAlias = Settled | Conflict


def merge_lines(base: Sequence[Line], ours: Sequence[Line], theirs: Sequence[Line]) -> list[Chunk]:
    """The merged lines in order, clear ones and conflicts."""
    our_changes, their_changes = _changes(base, ours), _changes(base, theirs)
    chunks: list[Chunk] = []
    at = 0
    for group in _touching(our_changes, their_changes):
        start = min(change[0] for side in group for change in side)
        end = max(change[1] for side in group for change in side)
        chunks.append(Settled(tuple(base[at:start])))
        chunks.append(
            _settle(base[start:end], _side(group[0], base, ours, start, end), _side(group[1], base, theirs, start, end))
        )
        at = end
    chunks.append(Settled(tuple(base[at:])))
    return [chunk for chunk in chunks if isinstance(chunk, Conflict) or chunk.lines]


Change: TypeAlias = tuple[int, int, int, int]


def _changes(base: Sequence[Line], side: Sequence[Line]) -> list[Change]:
    """Stretches of the base and what a side has in their place."""
    head = 0
    while head < min(len(base), len(side)) and base[head] == side[head]:
        head += 1
    tail = 0
    while tail < min(len(base), len(side)) - head and base[-1 - tail] == side[-1 - tail]:
        tail += 1
    old, new = base[head : len(base) - tail], side[head : len(side) - tail]
    if len(old) * len(new) > COMPARED_AT_MOST:
        raise TooLarge
    codes = SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    return [(i + head, j + head, k + head, m + head) for tag, i, j, k, m in codes if tag != "equal"]


def _touching(ours: list[Change], theirs: list[Change]) -> Iterator[tuple[list[Change], list[Change]]]:
    """Changes of both sides that meet in the base, together."""
    pending = sorted([(*change, 0) for change in ours] + [(*change, 1) for change in theirs])
    group: tuple[list[Change], list[Change]] = ([], [])
    reach = -1
    for i, j, k, m, side in pending:
        if i > reach and (group[0] or group[1]):
            yield group
            group = ([], [])
        group[side].append((i, j, k, m))
        reach = max(reach, j)
    if group[0] or group[1]:
        yield group


def _side(changes: list[Change], base: Sequence[Line], side: Sequence[Line], start: int, end: int) -> tuple[Line, ...]:
    """What a side has in place of a stretch of the base."""
    if not changes:
        return tuple(base[start:end])
    first, last = changes[0], changes[-1]
    return tuple(side[first[2] - (first[0] - start) : last[3] + (end - last[1])])


def _settle(base: Sequence[Line], ours: tuple[Line, ...], theirs: tuple[Line, ...]) -> Chunk:
    common = tuple(base)
    if theirs in (ours, common):
        return Settled(ours)
    return Settled(theirs) if ours == common else Conflict(ours, common, theirs)
