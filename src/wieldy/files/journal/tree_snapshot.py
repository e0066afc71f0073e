"""What a command changed in a tree: files are remembered before it runs and compared after it. Never touches the tree itself."""

from __future__ import annotations

import contextlib
import os
import stat
import threading
import time
from collections.abc import Callable, Iterable
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from wieldy.core.workspace import Workspace

# Clocks of file systems tick slowly: what was written this shortly before cannot be told from what came after.
TICK_NS = 50_000_000
IGNORE_FILES = frozenset({".gitignore", ".ignore", ".rgignore", "exclude"})


class Limits(Struct, frozen=True):
    """How much is remembered: bytes of one file, files of one snapshot, bytes of all contents, bytes of one difference."""

    file: int = 5 << 20
    files: int = 20_000
    kept: int = 256 << 20
    changed: int = 64 << 20


class Stamp(NamedTuple):
    """What tells two states of a file apart without reading it."""

    modified: int
    changed: int
    size: int
    inode: int
    mode: int


class Kept(NamedTuple):
    """A state of a file whose content is in the store."""

    stamp: Stamp
    digest: bytes


class Difference(Struct, frozen=True):
    """One file before and after a command; None where there was none. `mode` is that of a file that is gone."""

    path: str
    before: bytes | None
    after: bytes | None
    mode: int | None = None


class Differences(Struct, frozen=True):
    """What changed, and in a few words each what may have changed unseen."""

    changed: tuple[Difference, ...]
    uncovered: tuple[str, ...]


class Snapshot:
    """The files of a tree at one moment. `skipped` are files that were there but could not be kept."""

    __slots__ = ("complete", "files", "skipped", "taken")

    def __init__(self, taken: int) -> None:
        self.taken = taken
        self.files: dict[str, Kept] = {}
        self.skipped: dict[str, str] = {}
        self.complete = True


class Snapshots:
    """Remembers contents for a session: `workspace.service(Snapshots)`. A file that has not changed is never read twice.

    All methods block: call them in a thread. They are given the paths to look at, by whoever knows the ignore rules.
    `reads` counts the files that were opened.
    """

    def __init__(self, workspace: Workspace, limits: Limits | None = None) -> None:
        self.reads = 0
        self._limits = limits or Limits()
        self._folder = workspace.session_dir
        self._store = -1
        self._storing = threading.Lock()  # subagents keep theirs in the same store
        self._places: dict[bytes, tuple[int, int]] = {}
        self._known: dict[str, Kept] = {}
        self._size = 0

    def take(self, paths: Iterable[str]) -> Snapshot:
        """Remember the files at these paths."""
        snapshot = Snapshot(time.time_ns())
        for path in paths:
            if len(snapshot.files) + len(snapshot.skipped) >= self._limits.files:
                snapshot.complete = False
                break
            if (stamp := _stamp(path)) is None:
                continue
            known = self._known.get(path)
            if known is not None and known.stamp == stamp and not _is_fresh(stamp, snapshot.taken):
                snapshot.files[path] = known
            elif isinstance(kept := self._keep(path, stamp), Kept):
                snapshot.files[path] = kept
            else:
                snapshot.skipped[path] = kept
        return snapshot

    def differences(self, before: Snapshot, paths: Iterable[str]) -> Differences:
        """What the files at these paths are now that they were not in the snapshot."""
        comparison = _Comparison(before, self._limits, self._content)
        seen = set()
        for path in paths:
            seen.add(path)
            self._compare(path, comparison)
        for path in before.files.keys() - seen:
            self._compare(path, comparison)
        return comparison.result()

    async def aclose(self) -> None:
        """Forget everything."""
        if self._store >= 0:
            os.close(self._store)
            self._store = -1

    def _compare(self, path: str, comparison: _Comparison) -> None:
        old = comparison.before.files.get(path)
        stamp = _stamp(path)
        if stamp is None:
            if old is not None:
                self._known.pop(path, None)
                comparison.gone(path, old)
            return
        if old is not None and old.stamp == stamp and not _is_fresh(stamp, comparison.before.taken):
            return
        content = self._read(path, stamp)
        if isinstance(content, str):
            comparison.unseen(path, content)
            return
        if old is not None and old.digest == _digest(content):
            self._known[path] = Kept(stamp, old.digest)
        elif old is not None:
            comparison.altered(path, old, content)
        else:
            comparison.appeared(path, stamp, content)

    def _keep(self, path: str, stamp: Stamp) -> Kept | str:
        """Put a file into the store, or say why not."""
        content = self._read(path, stamp)
        if isinstance(content, str):
            return content
        digest = _digest(content)
        with self._storing:
            if digest not in self._places and (why := self._put(digest, content)):
                return why
        kept = self._known[path] = Kept(stamp, digest)
        return kept

    def _put(self, digest: bytes, content: bytes) -> str:
        """Append a content to the store; where it cannot be, why not."""
        if self._size + len(content) > self._limits.kept:
            return f"beyond the {self._limits.kept >> 20} MB that are kept"
        try:
            if self._store < 0:
                self._store = _nameless_file(self._folder)
            written = os.pwrite(self._store, content, self._size)
        except OSError as problem:
            return problem.strerror or "could not be kept"
        if written != len(content):
            return "could not be kept"
        self._places[digest] = (self._size, len(content))
        self._size += len(content)
        return ""

    def _read(self, path: str, stamp: Stamp) -> bytes | str:
        """The content of a file, or why it is not to be had."""
        self.reads += 1
        most = self._limits.file
        if stamp.size > most:
            return f"larger than {most >> 20} MB"
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
            with os.fdopen(descriptor, "rb", buffering=0) as file:
                content = file.read(most + 1) or b""
        except OSError as problem:
            return problem.strerror or "could not be read"
        return content if len(content) <= most else f"larger than {most >> 20} MB"

    def _content(self, kept: Kept) -> bytes:
        at, size = self._places[kept.digest]
        return os.pread(self._store, size, at)


class _Comparison:
    def __init__(self, before: Snapshot, limits: Limits, content: Callable[[Kept], bytes]) -> None:
        self.before = before
        self.limits = limits
        self.content = content
        self.changed: list[Difference] = []
        self.new: list[tuple[Difference, Stamp]] = []
        self.missed: dict[str, str] = {}
        self.size = 0

    def gone(self, path: str, old: Kept) -> None:
        if self._fits(path, old.stamp.size):
            self.changed.append(Difference(path, self.content(old), None, stat.S_IMODE(old.stamp.mode)))

    def altered(self, path: str, old: Kept, content: bytes) -> None:
        if self._fits(path, old.stamp.size + len(content)):
            self.changed.append(Difference(path, self.content(old), content))

    def appeared(self, path: str, stamp: Stamp, content: bytes) -> None:
        if self._fits(path, len(content)):
            self.new.append((Difference(path, None, content), stamp))

    def unseen(self, path: str, why: str) -> None:
        self.missed.setdefault(path, why)

    def _fits(self, path: str, size: int) -> bool:
        self.size += size
        if self.size > self.limits.changed:
            self.unseen(path, f"beyond the {self.limits.changed >> 20} MB of changes that are kept")
            return False
        return True

    def result(self) -> Differences:
        """A file may be called new only if it cannot have been there before: undo would delete it."""
        rules_moved = any(os.path.basename(each.path) in IGNORE_FILES for each in self.changed)
        for difference, stamp in self.new:
            name = os.path.basename(difference.path)
            if difference.path in self.before.skipped:
                self.unseen(difference.path, self.before.skipped[difference.path])
            elif not self.before.complete or (rules_moved and name not in IGNORE_FILES):
                self.unseen(difference.path, "may have been there before")
            elif stamp.changed < self.before.taken - TICK_NS:
                self.unseen(difference.path, "was there before")
            else:
                self.changed.append(difference)
        reasons: dict[str, list[str]] = {}
        for path, why in self.missed.items():
            reasons.setdefault(why, []).append(path)
        uncovered = [f"{_named(paths)}: {why}" for why, paths in reasons.items()]
        if not self.before.complete:
            uncovered.append(f"files beyond the first {self.limits.files}")
        return Differences(tuple(self.changed), tuple(uncovered))


def _named(paths: list[str]) -> str:
    return paths[0] if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more"


def _stamp(path: str) -> Stamp | None:
    """The stamp of a regular file; None for anything else."""
    try:
        seen = os.lstat(path)
    except (OSError, ValueError):
        return None
    if not stat.S_ISREG(seen.st_mode):
        return None
    return Stamp(seen.st_mtime_ns, seen.st_ctime_ns, seen.st_size, seen.st_ino, seen.st_mode)


def _is_fresh(stamp: Stamp, moment: int) -> bool:
    return stamp.changed > moment - TICK_NS


def _digest(content: bytes) -> bytes:
    return blake2b(content, digest_size=16).digest()


def _nameless_file(folder: Path) -> int:
    """Opens a file that has no name: nothing of it is left behind, even by a crash."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    flags = os.O_RDWR | os.O_CLOEXEC
    if nameless := getattr(os, "O_TMPFILE", 0):
        with contextlib.suppress(OSError):  # not every file system has them
            return os.open(folder, flags | nameless, 0o600)
    path = folder / f"snapshots-{os.urandom(8).hex()}"
    descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600)
    os.unlink(path)
    return descriptor
