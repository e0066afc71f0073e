"""Find out what a command changed in a tree, and keep what is needed to take it back. Never writes to the tree.

Before the command: a walk that reads no content, then copies of files whose content cannot be had otherwise, as many as a
fraction of a second allows. Files that git has need no copy, nor do files that were copied before and have not changed. After
the command: a second walk, and a look at the contents of what changed. What may have changed unseen, or changed and has no
copy, is named.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import nlargest
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from wieldy.files.journal.entries import FileChange, Uncovered
from wieldy.files.journal.file_copies import FileCopies, open_slot
from wieldy.files.journal.git_objects import GitIndex, load_index, read_objects
from wieldy.files.journal.manifest_file import load_manifest, remove_manifests
from wieldy.files.journal.store import ContentUnavailable
from wieldy.files.journal.tree_manifest import (
    CLOCK_TICK_NS,
    FileStamp,
    FolderState,
    Source,
    TimeLimit,
    TreeManifest,
    TreeWalker,
    iter_files,
    path_state,
    read_stamp,
    stamp_of,
)
from wieldy.files.journal.uncovered import enclosing_folders

READ_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
# No kernel's clock for time stamps ticks more slowly.
KERNEL_TICK_NS = 11_000_000
# So few files are read faster than git's index.
FEW_FILES = 200
FEW_BYTES = 4 << 20
# The most recently modified files are copied first; of more than this, only so many are put in order.
SORTED_FILES = 20_000
# Repositories of more files are not copied, however small they are.
SMALL_REPOSITORY_FILES = 5_000


class SnapshotLimits(Struct, frozen=True):
    """What a snapshot may cost. `seconds` is for one walk; copying gets what is left of it, or a little more.

    Bytes: of one file, of all copies, of the changes of one command, and of a repository that is copied although git has it,
    so that a command can be taken back that removes `.git`.
    """

    seconds: float = 0.4
    file_bytes: int = 5 << 20
    copied_bytes: int = 256 << 20
    changed_bytes: int = 64 << 20
    changed_files: int = 20_000
    repository_bytes: int = 16 << 20


class SnapshotScope(Struct, frozen=True):
    """What to watch: folders with all below them, and single paths. `first` is the folder to look at before others."""

    folders: tuple[str, ...]
    paths: tuple[str, ...] = ()
    first: str = ""


class TreeChanges(Struct, frozen=True):
    """What changed, and what changed or may have changed without a way back."""

    changes: tuple[FileChange, ...]
    uncovered: tuple[Uncovered, ...]


class WatchedPath(NamedTuple):
    """A single path before a command: the stamp and content of a file, whether it was something else, or neither."""

    stamp: FileStamp | None
    source: Source
    is_other: bool = False
    missing_folders: tuple[str, ...] = ()


class TreeSnapshot:
    """The files in a scope before a command."""

    def __init__(self, scope: SnapshotScope, manifest: TreeManifest) -> None:
        self.scope = scope
        self.manifest = manifest
        self.paths: dict[str, WatchedPath] = {}
        self.indexes: dict[str, GitIndex | None] = {}
        self.uncopied: list[_Candidate] = []
        self.copy_problem = ""
        self.seconds = 0.0
        self.finished = 0

    @property
    def started(self) -> int:
        return self.manifest.started


class _Candidate(NamedTuple):
    modified: int
    size: int
    path: str
    folder: FolderState
    position: int


class TreeSnapshots:
    """Takes and compares snapshots of one project. Its methods block: call them in a thread.

    `reads` counts the files that were opened, `walked` the files that were looked at.
    """

    def __init__(
        self,
        slots: Path,
        env: Mapping[str, str],
        limits: SnapshotLimits | None = None,
        clock: Callable[[], float] | None = None,
        excluded: Iterable[str] = (),
    ) -> None:
        self.reads = 0
        self.walked = 0
        self.limits = limits or SnapshotLimits()
        self.copies: FileCopies | None = None
        self._slots = slots
        self._env = env
        self._clock = clock
        self._walker = TreeWalker(env, tuple(excluded))
        self._known: dict[str, FolderState] = {}
        self._room = 0
        self._is_full = False
        self._in_use = 0  # snapshots whose command is running
        self._lock = threading.Lock()  # subagents use the same service

    def take(self, scope: SnapshotScope) -> TreeSnapshot:
        """Look at the files in a scope, and copy those whose content could not be had after the command."""
        with self._lock:
            seconds = self.limits.seconds
            limit = self._limit(seconds)
            problem = self._open_copies()
            manifest = self._walker.walk(scope.folders, self._known, limit, first=scope.first)
            self.walked += manifest.file_count
            snapshot = TreeSnapshot(scope, manifest)
            snapshot.copy_problem = problem
            snapshot.seconds = limit.spent
            self._remember(manifest, scope.folders)
            if self._is_full and not self._in_use and self.copies is not None:
                self._compact(self.copies)
            self._in_use += 1
            for path in scope.paths:
                self._watch_path(path, snapshot)
            # A walk of half the time leaves little for copies: the walk after the command takes as long.
            limit = self._limit(max(0.6 * seconds - snapshot.seconds, 0.1 * seconds))
            self._find_sources(snapshot, limit)
            self._copy(snapshot, limit.is_up)
            self._copy_small_repositories(snapshot, limit)
            if self.copies is not None:
                try:
                    self.copies.flush()
                except OSError as error:
                    snapshot.copy_problem = error.strerror or "could not be copied"
            _wait_for_tick(snapshot)
            snapshot.finished = time.time_ns()
            return snapshot

    def copy_more(self, snapshot: TreeSnapshot, stop: threading.Event) -> None:
        """Go on copying while the command runs. A file that it has changed meanwhile is left out."""
        while snapshot.uncopied and not stop.is_set():
            with self._lock:
                if self.copies is None:
                    return
                self._copy_next(snapshot)

    def compare(self, before: TreeSnapshot, *, keep_rules: bool = True) -> TreeChanges:
        """Find what the files in the scope of a snapshot are now that they were not then.

        Ignored is what was ignored then, also where the command has changed ignore files; recovery does not know that.
        """
        with self._lock:
            comparison = _Comparison(self, before, keep_rules)
            comparison.run()
            self._remember(comparison.now, before.scope.folders)
            self._in_use -= 1
            return comparison.result()

    def release(self) -> None:
        """Forget a snapshot that will not be compared."""
        with self._lock:
            self._in_use -= 1

    def close(self) -> None:
        with self._lock:
            if self.copies is not None:
                self.copies.close()
                self.copies = None

    def walk_again(self, before: TreeSnapshot, keep_rules: bool) -> TreeManifest:
        # The second walk takes as long as the first one, or somewhat longer.
        seconds = max(self.limits.seconds, 1.25 * before.seconds)
        return self._walker.walk(
            before.scope.folders,
            before.manifest.folders,
            self._limit(seconds),
            first=before.scope.first,
            keep_rules=keep_rules,
            skip=frozenset(before.manifest.unreached),
        )

    def walk_new(self, folder: str) -> TreeManifest:
        return self._walker.walk((folder,), {}, self._limit(self.limits.seconds))

    def _limit(self, seconds: float) -> TimeLimit:
        return TimeLimit(seconds, self._clock)

    def _open_copies(self) -> str:
        """Open the copies at first use; returns why that is not possible."""
        if self.copies is None:
            try:
                self.copies = open_slot(self._slots)
                self._known = load_manifest(self.copies)
                self._room = self.limits.copied_bytes - self.copies.size
            except OSError as error:
                return error.strerror or str(error)
        return ""

    def _compact(self, copies: FileCopies) -> None:
        """Drop copies of states that files are no longer in, where they take up much of the room."""
        live = self._live_copies()
        self._is_full = False
        if sum(live.values()) < 0.75 * copies.size:
            remove_manifests(copies.folder)
            moved = copies.compact(live)
            for sources in {id(folder.sources): folder.sources for folder in self._known.values()}.values():
                sources[:] = [moved.get(source) if isinstance(source, int) else source for source in sources]
        self._room = self.limits.copied_bytes - copies.size

    def _live_copies(self) -> dict[int, int]:
        """The copies of files in their present state: offset and size."""
        return {
            source: folder.stamp(position).size
            for folder in self._known.values()
            for position, source in enumerate(folder.sources)
            if isinstance(source, int)
        }

    def _remember(self, manifest: TreeManifest, tops: Iterable[str]) -> None:
        if not manifest.unreached:
            above = set(tops)
            for path in [path for path in self._known.keys() - manifest.folders.keys() if _is_at_or_below(path, above)]:
                del self._known[path]
        self._known.update(manifest.folders)

    def _watch_path(self, path: str, snapshot: TreeSnapshot) -> None:
        if path in snapshot.paths:
            return
        stamp = read_stamp(path)
        if stamp is None:
            is_other = os.path.lexists(path)
            snapshot.paths[path] = WatchedPath(None, None, is_other, () if is_other else _missing_folders(path))
            if os.path.islink(path) and not os.path.isdir(target := os.path.realpath(path)):
                self._watch_path(target, snapshot)
            return
        source: Source = None
        if self.copies is not None and stamp.size <= self.limits.changed_bytes:
            content = self.read(path, stamp.size)
            if isinstance(content, bytes) and read_stamp(path) == stamp:
                source = self.copies.add(content)
                self._room -= len(content)
        snapshot.paths[path] = WatchedPath(stamp, source)

    def _find_sources(self, snapshot: TreeSnapshot, limit: TimeLimit) -> None:
        """Find files whose content is nowhere; ask git's index where these are many."""
        missing = [(path, folder) for path, folder in snapshot.manifest.folders.items() if None in folder.sources]
        count = sum(folder.sources.count(None) for _, folder in missing)
        size = 0
        if count <= FEW_FILES:
            size = sum(folder.stamp(p).size for _, folder in missing for p, s in enumerate(folder.sources) if s is None)
        use_git = count > FEW_FILES or size > FEW_BYTES
        for path, folder in missing:
            index = self._index(snapshot, folder.repository) if use_git and folder.repository else None
            self._find_in_folder(snapshot, path, folder, index)
            if limit.is_up():
                break  # what is left is asked of git's index after the command, as it was before it

    def _find_in_folder(self, snapshot: TreeSnapshot, path: str, folder: FolderState, index: GitIndex | None) -> None:
        prefix = path.rstrip("/") + "/"
        for position, source in enumerate(folder.sources):
            if source is not None:
                continue
            name, stamp = folder.names[position], folder.stamp(position)
            if index is not None and name not in folder.fresh:
                folder.sources[position] = index.object_id(prefix + name, stamp)
            if folder.sources[position] is None and stamp.size <= self.limits.file_bytes:
                snapshot.uncopied.append(_Candidate(stamp.modified, stamp.size, prefix + name, folder, position))

    def _index(self, snapshot: TreeSnapshot, repository: str) -> GitIndex | None:
        if repository not in snapshot.indexes:
            attributes = [
                f"{path}/.gitattributes"
                for path, folder in snapshot.manifest.folders.items()
                if folder.repository == repository and ".gitattributes" in folder.listing
            ]
            # Folders that were not looked at may have attributes of their own, but none of their files is covered.
            snapshot.indexes[repository] = load_index(repository, self._env, attributes)
        return snapshot.indexes[repository]

    def _copy(self, snapshot: TreeSnapshot, is_time_up: Callable[[], bool]) -> None:
        """Copy files that have no source, the most recently modified first, until the time is up."""
        if self.copies is None:
            snapshot.uncopied.clear()
            return
        if len(snapshot.uncopied) <= SORTED_FILES:
            snapshot.uncopied.sort(key=itemgetter(0))
        else:
            recent = nlargest(SORTED_FILES, snapshot.uncopied, key=itemgetter(0))
            chosen = {id(candidate) for candidate in recent}
            snapshot.uncopied = [each for each in snapshot.uncopied if id(each) not in chosen] + recent[::-1]
        while snapshot.uncopied and not is_time_up():
            self._copy_next(snapshot)

    def _copy_next(self, snapshot: TreeSnapshot) -> None:
        if not self._copy_file(snapshot.uncopied.pop()):
            snapshot.copy_problem = snapshot.copy_problem or self._room_problem()

    def _room_problem(self) -> str:
        return f"beyond the {self.limits.copied_bytes >> 20} MB that are kept"

    def _copy_file(self, candidate: _Candidate) -> bool:
        """Copy one file; False if there is no room for it."""
        if candidate.folder.sources[candidate.position] is not None:
            return True
        if candidate.size > self._room:
            self._is_full = True
            return False
        assert self.copies is not None
        self.reads += 1
        stamp = candidate.folder.stamp(candidate.position)
        try:
            descriptor = os.open(candidate.path, READ_FLAGS)
        except OSError:
            return True
        try:
            content = _read_all(descriptor, candidate.size)
            if len(content) == candidate.size and stamp_of(os.fstat(descriptor)) == stamp:
                candidate.folder.sources[candidate.position] = self.copies.add(content)
                self._room -= candidate.size
        except OSError:
            return True
        finally:
            os.close(descriptor)
        return True

    def _copy_small_repositories(self, snapshot: TreeSnapshot, limit: TimeLimit) -> None:
        """Copy what only git has, where that is little: a command may remove `.git`."""
        if self.copies is None or snapshot.manifest.file_count > SMALL_REPOSITORY_FILES:
            return
        candidates = [
            _Candidate(stamp.modified, stamp.size, path, folder, position)
            for path, folder, position in iter_files(snapshot.manifest.folders)
            if isinstance(folder.sources[position], bytes) and (stamp := folder.stamp(position))
        ]
        if sum(candidate.size for candidate in candidates) > min(self.limits.repository_bytes, self._room):
            return
        for candidate in candidates:
            if limit.is_up():
                return
            in_git = candidate.folder.sources[candidate.position]
            candidate.folder.sources[candidate.position] = None
            self._copy_file(candidate)
            if candidate.folder.sources[candidate.position] is None:
                candidate.folder.sources[candidate.position] = in_git

    def read(self, path: str, limit: int) -> bytes | str:
        """The content of a file, or the reason why it cannot be had."""
        self.reads += 1
        try:
            descriptor = os.open(path, READ_FLAGS)
            try:
                content = _read_all(descriptor, limit)
            finally:
                os.close(descriptor)
        except OSError as error:
            return error.strerror or "could not be read"
        return content if len(content) <= limit else too_large(limit)

    def keep_copy(self, folder: FolderState, position: int, content: bytes) -> None:
        """Copy a content that has just been read, so that the next snapshot need not read it."""
        if self.copies is None or len(content) > min(self._room, self.limits.file_bytes):
            return
        if folder.stamp(position).size == len(content) and folder.names[position] not in folder.fresh:
            folder.sources[position] = self.copies.add(content)
            self._room -= len(content)

    def contents(self, wanted: Iterable[tuple[str, FileStamp, Source, str]]) -> dict[str, bytes]:
        """The contents that files had, by path, as far as they can be had; each wanted with its source and repository."""
        found: dict[str, bytes] = {}
        in_git: dict[str, dict[bytes, list[tuple[str, int]]]] = {}
        for path, stamp, source, repository in wanted:
            if isinstance(source, bytes):
                in_git.setdefault(repository, {}).setdefault(source, []).append((path, stamp.size))
            elif source is not None and self.copies is not None:
                try:
                    found[path] = self.copies.read(source, stamp.size)
                except (ContentUnavailable, OSError):
                    continue
        for repository, objects in in_git.items():
            for object_id, content in read_objects(repository, objects, self._env):
                # Of another size, it was converted on its way into the working tree.
                found.update((path, content) for path, size in objects[object_id] if size == len(content))
        return found


class _Changed(NamedTuple):
    """A file that is not as it was: its state before, or None, and its state now, or None."""

    path: str
    before: FileStamp | None
    source: Source
    repository: str
    now: FileStamp | None
    folder: FolderState | None = None
    position: int = 0
    new_folders: tuple[str, ...] = ()


class _Comparison:
    """Two walks side by side, then the contents of what differs."""

    def __init__(self, snapshots: TreeSnapshots, before: TreeSnapshot, keep_rules: bool) -> None:
        self._keep_rules = keep_rules
        self.now = TreeManifest(0)
        self._snapshots = snapshots
        self._limits = snapshots.limits
        self._before = before
        self._changed: list[_Changed] = []
        self._created: list[_Changed] = []
        self._changes: list[FileChange] = []
        self._uncovered: dict[str, Uncovered] = {}

    def run(self) -> None:
        before = self._before.manifest
        self.now = self._snapshots.walk_again(self._before, self._keep_rules)
        for path, folder in self.now.folders.items():
            old = before.folders.get(path)
            if old is None:
                self._add_new_folder(path, folder)
            elif old is not folder or old.fresh:
                self._compare_folder(path, old, folder)
        unreached = {*self.now.unreached, *self.now.unreadable}
        for path in before.folders.keys() - self.now.folders.keys():
            if not _is_at_or_below(path, unreached):
                self._compare_folder(path, before.folders[path], FolderState(()))
        for path, watched in self._before.paths.items():
            self._compare_path(path, watched)
        self._note_unwatched()
        self._collect()

    def result(self) -> TreeChanges:
        return TreeChanges(tuple(self._changes), tuple(self._uncovered.values()))

    def _compare_folder(self, path: str, old: FolderState, new: FolderState) -> None:
        prefix = path.rstrip("/") + "/"
        positions = old.positions()
        for position, name in enumerate(new.names):
            old_position = positions.pop(name, None)
            now = new.stamp(position)
            if old_position is None:
                if old.partial or name in old.ignored:
                    self._name(prefix + name, "may have been there before", changed=False)
                else:
                    self._created.append(_Changed(prefix + name, None, None, "", now, new, position))
            elif name in old.fresh or old.packed(old_position) != new.packed(position):
                before = old.stamp(old_position)
                source = self._source(prefix + name, old, old_position)
                if source is None and before == now and before.changed < self._before.finished - KERNEL_TICK_NS:
                    continue
                self._changed.append(_Changed(prefix + name, before, source, old.repository, now, new, position))
        if new.partial:
            return
        for name, position in positions.items():
            source = self._source(prefix + name, old, position)
            self._changed.append(_Changed(prefix + name, old.stamp(position), source, old.repository, None))
        if old.others != new.others:
            then, now_others = dict(old.others), dict(new.others)
            for name in then.keys() | now_others.keys():
                if then.get(name) != now_others.get(name) and not (old.partial and name not in then):
                    self._name(prefix + name, "links, pipes and devices are not restored")

    def _source(self, path: str, folder: FolderState, position: int) -> Source:
        """Where the content of a file can be had. Git's index is asked late where there was no time to ask it before."""
        source = folder.sources[position]
        index = self._before.indexes.get(folder.repository)
        if source is None and index is not None and folder.names[position] not in folder.fresh:
            source = index.object_id(path, folder.stamp(position))
        return source

    def _add_new_folder(self, path: str, folder: FolderState) -> None:
        """All files in a folder that was not there before are new, unless nobody had looked."""
        before = self._before.manifest
        parent = before.folders.get(os.path.dirname(path))
        unknown = (
            path in before.unreadable
            or (parent is not None and parent.partial)
            or (parent is not None and os.path.basename(path) in (*parent.subfolders, *parent.ignored))
        )
        prefix = path.rstrip("/") + "/"
        if unknown:
            self._name(path, "may have been there before", changed=False)
            return
        new_folders = self._new_folders(path)
        for position, name in enumerate(folder.names):
            self._created.append(
                _Changed(prefix + name, None, None, "", folder.stamp(position), folder, position, new_folders)
            )
        for name, _ in folder.others:
            self._name(prefix + name, "links, pipes and devices are not restored")

    def _new_folders(self, path: str) -> tuple[str, ...]:
        folders = []
        while path not in self._before.manifest.folders and path in self.now.folders:
            folders.append(path)
            path = os.path.dirname(path)
        return tuple(reversed(folders))

    def _compare_path(self, path: str, before: WatchedPath) -> None:
        now = read_stamp(path)
        if now is None and os.path.isdir(path) and not os.path.islink(path):
            self._add_made_folder(path, before)
        elif now is None and os.path.lexists(path):
            if not before.is_other or os.path.islink(path):
                self._name(path, "links, pipes and devices are not restored", changed=not before.is_other)
        elif before.is_other:
            self._name(path, "links, pipes and devices are not restored")
            return
        if before.stamp is None:
            if now is not None:
                self._created.append(_Changed(path, None, None, "", now, new_folders=before.missing_folders))
        elif now != before.stamp or before.stamp.changed > self._before.started - CLOCK_TICK_NS:
            self._changed.append(_Changed(path, before.stamp, before.source, "", now))

    def _add_made_folder(self, path: str, before: WatchedPath) -> None:
        """A folder where a command was expected to write a file, as `cp -r` does."""
        made = self._snapshots.walk_new(path)
        self.now.unreached += made.unreached
        for folder_path, folder in made.folders.items():
            above = [
                each for each in made.folders if folder_path == each or folder_path.startswith(each.rstrip("/") + "/")
            ]
            for position, name in enumerate(folder.names):
                full = f"{folder_path.rstrip('/')}/{name}"
                folders = (*before.missing_folders, *above)
                self._created.append(_Changed(full, None, None, "", folder.stamp(position), folder, position, folders))

    def _note_unwatched(self) -> None:
        before = self._before.manifest
        why = f"more files than {self._limits.seconds:g} s allow, see bash.snapshotSeconds"
        for words, unreached in (("not looked at", before.unreached), ("not looked at again", self.now.unreached)):
            folders = enclosing_folders(unreached)
            is_whole = len(folders) == len(unreached)
            for path in folders:
                self._name(path, f"{words if is_whole else 'in part ' + words}: {why}", changed=False)
        for path in self.now.unreadable:
            self._name(path, "cannot be read", changed=False)
        for path, folder in before.folders.items():
            if folder.partial:
                self._name(path, "has more entries than were looked at", changed=False)

    def _collect(self) -> None:
        """Get the contents of what changed, what is lost first, and stop at the limits."""
        room, count = self._limits.changed_bytes, 0
        selected: list[_Changed] = []
        for changed in self._changed:
            assert changed.before is not None
            size = changed.before.size + (changed.now.size if changed.now else 0)
            if changed.source is None:
                self._name(changed.path, self._why_no_copy(changed), changed=changed.now != changed.before)
            elif size > room or count >= self._limits.changed_files:
                self._name(changed.path, self._too_much())
            else:
                room, count = room - size, count + 1
                selected.append(changed)
        for batch in _batches(selected, 500):
            contents = self._snapshots.contents((c.path, c.before, c.source, c.repository) for c in batch if c.before)
            for changed in batch:
                self._add_changed(changed, contents.get(changed.path))
        for created in self._created:
            assert created.now is not None
            if created.now.size > self._limits.file_bytes:
                self._name(created.path, too_large(self._limits.file_bytes))
            elif created.now.size > room or count >= self._limits.changed_files:
                self._name(created.path, self._too_much())
            else:
                room, count = room - created.now.size, count + 1
                self._add_created(created)

    def _add_changed(self, changed: _Changed, before: bytes | None) -> None:
        assert changed.before is not None
        if before is None:
            where = "git no longer has its content" if isinstance(changed.source, bytes) else "its copy is damaged"
            self._name(changed.path, where)
            return
        if changed.now is None:
            self._changes.append(FileChange(changed.path, before, None, changed.path, changed.before.permissions))
            return
        after = self._snapshots.read(changed.path, self._limits.changed_bytes)
        if isinstance(after, str):
            self._name(changed.path, after)
            return
        if changed.folder is not None:
            self._snapshots.keep_copy(changed.folder, changed.position, after)
        if after != before:
            self._changes.append(FileChange(changed.path, before, after, changed.path))
        if changed.now.permissions != changed.before.permissions:
            old, new = changed.before.permissions, changed.now.permissions
            self._name(changed.path, f"its permissions changed from {old:o} to {new:o}", content=False)

    def _add_created(self, created: _Changed) -> None:
        after = self._snapshots.read(created.path, self._limits.file_bytes)
        if isinstance(after, str):
            self._name(created.path, after)
            return
        if created.folder is not None:
            self._snapshots.keep_copy(created.folder, created.position, after)
        assert created.now is not None
        mode = created.now.permissions
        self._changes.append(FileChange(created.path, None, after, created.path, mode, created.new_folders))

    def _why_no_copy(self, changed: _Changed) -> str:
        assert changed.before is not None
        if changed.before.size > self._limits.file_bytes:
            return too_large(self._limits.file_bytes)
        return self._before.copy_problem or "there was no time to copy it"

    def _too_much(self) -> str:
        return f"beyond the {self._limits.changed_bytes >> 20} MB or {self._limits.changed_files} files of changes that are kept"

    def _name(self, path: str, reason: str, *, changed: bool = True, content: bool = True) -> None:
        if path not in self._uncovered:
            self._uncovered[path] = Uncovered(path, reason, changed, path_state(path) if changed and content else "")


def too_large(limit: int) -> str:
    return f"larger than {limit >> 20} MB"


def _read_all(descriptor: int, limit: int) -> bytes:
    """All bytes, or one more than the limit."""
    content = os.read(descriptor, min(limit, os.fstat(descriptor).st_size) + 1)
    while len(content) <= limit and (more := os.read(descriptor, min(1 << 20, limit + 1 - len(content)))):
        content += more
    return content


def _wait_for_tick(snapshot: TreeSnapshot) -> None:
    """Let the kernel's clock tick once where a file without a copy has just been written: a change will then show."""
    newest = max(
        (
            folder.stamp(position).changed
            for folder in snapshot.manifest.folders.values()
            if folder.fresh
            for position, name in enumerate(folder.names)
            if folder.sources[position] is None and name in folder.fresh
        ),
        default=0,
    )
    wait = newest + KERNEL_TICK_NS - time.time_ns()
    if 0 <= wait <= KERNEL_TICK_NS:
        time.sleep((wait + 1) / 1e9)


def _missing_folders(path: str) -> tuple[str, ...]:
    folders: list[str] = []
    folder = os.path.dirname(path)
    while folder and not os.path.lexists(folder):
        folders.append(folder)
        folder = os.path.dirname(folder)
    return tuple(reversed(folders))


def _is_at_or_below(path: str, folders: set[str]) -> bool:
    while path not in folders:
        parent = os.path.dirname(path)
        if parent == path:
            return False
        path = parent
    return True


def _batches(items: Iterable[_Changed], size: int) -> Iterator[list[_Changed]]:
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch
