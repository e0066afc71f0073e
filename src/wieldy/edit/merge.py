"""Merging an edit with what others did to the file meanwhile: by git where there is one, else by our own three-way merge."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache

from wieldy.core.record import record
from wieldy.edit.diff3 import Conflict, Line, TooLarge, merge_lines
from wieldy.text.encoding import detect

OURS, BASE, THEIRS = "your edit", "as read", "on disk"
GIT_SECONDS = 20
CONTEXT = 3
SHOWN_LINES = 120


@record
class Merge:
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
