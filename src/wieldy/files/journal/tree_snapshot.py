"""Find out what a command changed in a tree: files are stored before it runs and compared after it. Never writes to the tree.

Contents are kept in the journal's contents table, and the stat of each stored file beside them, so that neither a second
command nor a second session reads a file that has not changed.
"""

from __future__ import annotations

import os
import stat
import threading
import time
from collections.abc import Iterable

from msgspec import Struct

from wieldy.files.journal.entries import FileChange, content_hash
from wieldy.files.journal.store import ContentUnavailable, FileStamp, JournalStore, SnapshotFile

# Clocks of file systems tick slowly: what was written this shortly before cannot be told from what came after.
CLOCK_TICK_NS = 50_000_000
IGNORE_FILES = frozenset({".gitignore", ".ignore", ".rgignore", "exclude"})
BATCH_BYTES = 8 << 20
BATCH_FILES = 1000


class SnapshotLimits(Struct, frozen=True):
    """Bytes of one file, files of one snapshot, bytes of all stored files, bytes of the changes of one command."""

    file_bytes: int = 5 << 20
    files: int = 20_000
    stored_bytes: int = 256 << 20
    changed_bytes: int = 64 << 20


class TreeChanges(Struct, frozen=True):
    """What changed, and in a few words each what may have changed unseen."""

    changes: tuple[FileChange, ...]
    uncovered: tuple[str, ...]


class TreeSnapshot:
    """The files of a tree at one moment. `skipped` are files that were there but could not be stored, with the reason."""

    __slots__ = ("complete", "files", "skipped", "taken_at")

    def __init__(self, taken_at: int) -> None:
        self.taken_at = taken_at
        self.files: dict[str, SnapshotFile] = {}
        self.skipped: dict[str, str] = {}
        self.complete = True


class TreeSnapshots:
    """The service `workspace.services.snapshots`. Its methods block: call them in a thread.

    The caller names the paths to look at, because it knows the ignore rules. `reads` counts the files that were opened.
    """

    def __init__(self, store: JournalStore, limits: SnapshotLimits | None = None) -> None:
        self.reads = 0
        self._limits = limits or SnapshotLimits()
        self._store = store
        self._known: dict[str, SnapshotFile] | None = None
        self._lock = threading.Lock()  # subagents use the same service

    def take(self, paths: Iterable[str]) -> TreeSnapshot:
        """Store the files at these paths."""
        with self._lock:
            return self._take(paths)

    def compare(self, before: TreeSnapshot, paths: Iterable[str]) -> TreeChanges:
        """Find what the files at these paths are now that they were not in the snapshot."""
        comparison = _Comparison(before, self._limits, self._store)
        seen = set()
        for path in paths:
            seen.add(path)
            self._compare(path, comparison)
        for path in before.files.keys() - seen:
            self._compare(path, comparison)
        return comparison.result()

    def _take(self, paths: Iterable[str]) -> TreeSnapshot:
        snapshot = TreeSnapshot(time.time_ns())
        known = self._load_known()
        batch = _Batch(self._store, snapshot, known, self._limits.stored_bytes)
        count = 0
        for path in paths:
            if count >= self._limits.files:
                snapshot.complete = False
                break
            stamp = _stamp(path)
            if stamp is None:
                continue
            count += 1
            file = known.get(path)
            if file is not None and file.stamp == stamp and not _is_fresh(stamp, snapshot.taken_at):
                snapshot.files[path] = file
            elif isinstance(content := self._read(path, stamp), bytes):
                batch.add(path, stamp, content)
            else:
                snapshot.skipped[path] = content
        batch.flush()
        return snapshot

    def _load_known(self) -> dict[str, SnapshotFile]:
        if self._known is None:
            try:
                self._known = self._store.load_snapshot_files()
            except OSError:
                return {}  # storing files will fail as well, and say why
        return self._known

    def _compare(self, path: str, comparison: _Comparison) -> None:
        old = comparison.before.files.get(path)
        stamp = _stamp(path)
        if stamp is None:
            if old is not None:
                comparison.add_deleted(path, old)
            return
        if old is not None and old.stamp == stamp and not _is_fresh(stamp, comparison.before.taken_at):
            return
        content = self._read(path, stamp)
        if isinstance(content, str):
            comparison.add_uncovered(path, content)
        elif old is None:
            comparison.add_created(path, stamp, content)
        elif old.hash != content_hash(content):
            comparison.add_modified(path, old, content)

    def _read(self, path: str, stamp: FileStamp) -> bytes | str:
        """The content of a file, or the reason why it cannot be had."""
        self.reads += 1
        limit = self._limits.file_bytes
        if stamp.size > limit:
            return f"larger than {limit >> 20} MB"
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
            with os.fdopen(descriptor, "rb", buffering=0) as file:
                content = file.read(limit + 1) or b""
        except OSError as error:
            return error.strerror or "could not be read"
        return content if len(content) <= limit else f"larger than {limit >> 20} MB"


class _Batch:
    """Files on their way into the journal, stored in transactions of some megabytes."""

    def __init__(self, store: JournalStore, snapshot: TreeSnapshot, known: dict[str, SnapshotFile], limit: int) -> None:
        self._store = store
        self._snapshot = snapshot
        self._known = known
        self._limit = limit
        self._stored = sum(file.stamp.size for file in known.values())
        self._pruned = False
        self._contents: dict[str, bytes] = {}
        self._files: dict[str, SnapshotFile] = {}
        self._bytes = 0

    def add(self, path: str, stamp: FileStamp, content: bytes) -> None:
        if self._stored + len(content) > self._limit and not self._pruned:
            self._forget_missing()
        if self._stored + len(content) > self._limit:
            self._snapshot.skipped[path] = f"beyond the {self._limit >> 20} MB that are kept"
            return
        hash = content_hash(content)
        self._contents[hash] = content
        self._files[path] = SnapshotFile(stamp, hash)
        self._bytes += len(content)
        self._stored += len(content)
        if self._bytes > BATCH_BYTES or len(self._files) >= BATCH_FILES:
            self.flush()

    def flush(self) -> None:
        # A file that has just been written may be written again without a new time stamp: read it again next time.
        settled = {
            path: file for path, file in self._files.items() if not _is_fresh(file.stamp, self._snapshot.taken_at)
        }
        try:
            if self._files:
                self._store.save_snapshot_files(self._contents, settled)
            self._snapshot.files.update(self._files)
            self._known.update(settled)
        except OSError as error:
            reason = error.strerror or "could not be stored"
            self._snapshot.skipped.update(dict.fromkeys(self._files, reason))
        self._contents, self._files, self._bytes = {}, {}, 0

    def _forget_missing(self) -> None:
        """Make room by forgetting files that are gone."""
        self._pruned = True
        missing = [path for path in self._known if not os.path.lexists(path)]
        for path in missing:
            self._stored -= self._known.pop(path).stamp.size
        try:
            self._store.delete_snapshot_files(missing)
        except OSError:
            return  # then they are forgotten later


class _Comparison:
    def __init__(self, before: TreeSnapshot, limits: SnapshotLimits, store: JournalStore) -> None:
        self.before = before
        self._limits = limits
        self._store = store
        self._changes: list[FileChange] = []
        self._created: list[tuple[FileChange, FileStamp]] = []
        self._uncovered: dict[str, str] = {}
        self._bytes = 0

    def add_deleted(self, path: str, old: SnapshotFile) -> None:
        if self._fits(path, old.stamp.size):
            self._add_change(path, old, None, stat.S_IMODE(old.stamp.mode))

    def add_modified(self, path: str, old: SnapshotFile, content: bytes) -> None:
        if self._fits(path, old.stamp.size + len(content)):
            self._add_change(path, old, content)

    def add_created(self, path: str, stamp: FileStamp, content: bytes) -> None:
        if self._fits(path, len(content)):
            self._created.append((FileChange(path, None, content), stamp))

    def add_uncovered(self, path: str, reason: str) -> None:
        self._uncovered.setdefault(path, reason)

    def _add_change(self, path: str, old: SnapshotFile, content: bytes | None, mode: int | None = None) -> None:
        try:
            before = self._store.content(old.hash)
        except (ContentUnavailable, OSError):
            self.add_uncovered(path, "its old content is no longer stored")
            return
        self._changes.append(FileChange(path, before, content, mode=mode))

    def _fits(self, path: str, size: int) -> bool:
        self._bytes += size
        if self._bytes > self._limits.changed_bytes:
            self.add_uncovered(path, f"beyond the {self._limits.changed_bytes >> 20} MB of changes that are kept")
            return False
        return True

    def result(self) -> TreeChanges:
        """A file counts as new only if it cannot have been there before: undo would delete it."""
        ignore_rules_changed = any(os.path.basename(change.path) in IGNORE_FILES for change in self._changes)
        for change, stamp in self._created:
            is_ignore_file = os.path.basename(change.path) in IGNORE_FILES
            if change.path in self.before.skipped:
                self.add_uncovered(change.path, self.before.skipped[change.path])
            elif not self.before.complete or (ignore_rules_changed and not is_ignore_file):
                self.add_uncovered(change.path, "may have been there before")
            elif stamp.changed < self.before.taken_at - CLOCK_TICK_NS:
                self.add_uncovered(change.path, "was there before")
            else:
                self._changes.append(change)
        by_reason: dict[str, list[str]] = {}
        for path, reason in self._uncovered.items():
            by_reason.setdefault(reason, []).append(path)
        uncovered = [f"{_summarize(paths)}: {reason}" for reason, paths in by_reason.items()]
        if not self.before.complete:
            uncovered.append(f"files beyond the first {self._limits.files}")
        return TreeChanges(tuple(self._changes), tuple(uncovered))


def _summarize(paths: list[str]) -> str:
    return paths[0] if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more"


def _stamp(path: str) -> FileStamp | None:
    """The stamp of a regular file; None for anything else."""
    try:
        status = os.lstat(path)
    except (OSError, ValueError):
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    return FileStamp(status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino, status.st_mode)


def _is_fresh(stamp: FileStamp, time_ns: int) -> bool:
    return stamp.changed > time_ns - CLOCK_TICK_NS
