"""Merging an edit with what others did to the file meanwhile: by git where there is one, else by our own three-way merge."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from functools import cache
from typing import TypeAlias

from msgspec import Struct

from wieldy.files.encodings import detect

Line: TypeAlias = bytes
COMPARED_AT_MOST = 60_000_000


class TooLarge(Exception):
    """Comparing these would take too long."""


class Settled(Struct, frozen=True):
    """Lines that are clear."""

    lines: tuple[Line, ...]


class Conflict(Struct, frozen=True):
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


OURS, BASE, THEIRS = "your edit", "as read", "on disk"
GIT_SECONDS = 20
CONTEXT = 3
SHOWN_LINES = 120


class Merge(Struct, frozen=True):
    """Both changes in one content; where they conflict it holds git's markers."""

    data: bytes
    conflicts: int

    @property
    def clean(self) -> bool:
        """Whether nothing conflicts."""
        return self.conflicts == 0

    def shown(self) -> str:
        """The conflicts with some lines around them, cut after a hundred lines."""
        lines = self.data.decode(detect(self.data).name, "replace").splitlines()
        wanted: dict[int, None] = {}
        inside = False
        for index, line in enumerate(lines):
            inside = inside or line.startswith(f"<<<<<<< {OURS}")
            if inside:
                wanted.update(dict.fromkeys(range(max(0, index - CONTEXT), index + CONTEXT + 1)))
            inside = inside and not line.startswith(f">>>>>>> {THEIRS}")
        return "\n".join(_excerpt(lines, [index for index in wanted if index < len(lines)]))


def merge_bytes(base: bytes, ours: bytes, theirs: bytes) -> bytes | None:
    """The content with both changes, or None where they conflict or cannot be merged."""
    merged = merge(base, ours, theirs)
    return merged.data if merged is not None and merged.clean else None


def merge(base: bytes, ours: bytes, theirs: bytes, *, git: bool = True) -> Merge | None:
    """Both changes to `base` in one; None where that cannot be had: another encoding, or too much to compare."""
    if ours in (base, theirs):
        return Merge(theirs, 0)
    if theirs == base:
        return Merge(ours, 0)
    encoding = detect(base)
    if detect(theirs).name != encoding.name or detect(theirs).bom != encoding.bom:
        return None
    if git and encoding.unit == 1 and (program := _git()):
        merged = _by_git(program, base, ours, theirs)
        if merged is not None:
            return merged
    return _by_lines(base, ours, theirs, encoding.name, encoding.unit)


@cache
def _git() -> str | None:
    import shutil

    return shutil.which("git")


def _by_git(program: str, base: bytes, ours: bytes, theirs: bytes) -> Merge | None:
    """None where git cannot: it takes a file with NUL bytes for binary."""
    import subprocess
    import tempfile

    with tempfile.TemporaryDirectory(prefix="wieldy-merge-") as folder:
        names = []
        for name, data in (("ours", ours), ("base", base), ("theirs", theirs)):
            names.append(os.path.join(folder, name))
            with open(names[-1], "wb") as file:
                file.write(data)
        labels = [part for label in (OURS, BASE, THEIRS) for part in ("-L", label)]
        try:
            done = subprocess.run(
                [program, "merge-file", "-p", "-q", *labels, *names],
                cwd=folder,
                env=_without_settings(folder),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=GIT_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
    # The exit code is the number of conflicts, capped at 127; anything above is a failure.
    return Merge(done.stdout, done.returncode) if 0 <= done.returncode <= 127 else None


def _without_settings(folder: str) -> dict[str, str]:
    """An environment in which no configuration changes how git merges."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    return {**kept, "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CEILING_DIRECTORIES": folder}


def _by_lines(base: bytes, ours: bytes, theirs: bytes, codec: str, unit: int) -> Merge | None:
    newline = "\n".encode(codec)
    try:
        chunks = merge_lines(*(list(_lines(data, newline, unit)) for data in (base, ours, theirs)))
    except TooLarge:
        return None
    pieces: list[bytes] = []
    conflicts = 0
    for chunk in chunks:
        if isinstance(chunk, Conflict):
            conflicts += 1
            pieces += _marked(chunk, codec)
        else:
            pieces += chunk.lines
    return Merge(b"".join(pieces), conflicts)


def _lines(data: bytes, newline: bytes, unit: int) -> Iterator[Line]:
    start = 0
    while start < len(data):
        at = data.find(newline, start)
        while at >= 0 and at % unit:
            at = data.find(newline, at + 1)
        end = len(data) if at < 0 else at + unit
        yield data[start:end]
        start = end


def _marked(conflict: Conflict, codec: str) -> Iterator[bytes]:
    first = next(iter((*conflict.ours, *conflict.theirs)), b"")
    end = "\r\n" if first.endswith("\r\n".encode(codec)) else "\n"
    for mark, lines in ((f"<<<<<<< {OURS}", conflict.ours), ("=======", conflict.theirs)):
        yield (mark + end).encode(codec)
        yield from lines
        if lines and not lines[-1].endswith("\n".encode(codec)):
            yield end.encode(codec)
    yield (f">>>>>>> {THEIRS}" + end).encode(codec)


def _excerpt(lines: list[str], wanted: list[int]) -> Iterator[str]:
    last = -1
    for count, index in enumerate(wanted):
        if count == SHOWN_LINES:
            yield f"… {len(wanted) - count} more lines"
            return
        if last >= 0 and index > last + 1:
            yield "…"
        yield lines[index]
        last = index
