"""Find out what a command changed in a tree, and keep what is needed to take it back. Never writes to the tree.

Before the command: a walk that reads no content, then copies of files whose content is not available elsewhere, as many as a
fraction of a second allows. After the command: the folders that changed meanwhile, or a second walk where the system does not
tell which these are; then the contents of what changed. What may have changed unseen, or changed and has no copy, is named.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from wieldy.files.journal.entries import FileChange, Uncovered, enclosing_folders
from wieldy.files.journal.snapshot_contents import (
    SnapshotContents,
    SnapshotLimits,
    SnapshotScope,
    TreeChanges,
    TreeSnapshot,
    WatchedPath,
    too_large,
)
from wieldy.files.journal.tree_manifest import (
    CLOCK_TICK_NS,
    KERNEL_TICK_NS,
    FileStamp,
    FolderState,
    FolderWatch,
    Source,
    TimeLimit,
    TreeManifest,
    TreeWalker,
    WatchedChanges,
    open_watch,
    path_state,
    read_stamp,
)
from wieldy.files.writing.disk import is_at_or_below
from wieldy.files.writing.tree_commit import Node, NodeChange, look_at

OTHERS_NOT_RESTORED = "pipes, sockets and devices are not restored"
OWNER_CHANGED = "its owner changed, which is not restored"


class _Changed(NamedTuple):
    """A file that is not as it was: its state before, or None, and its state now, or None."""

    path: str
    before: FileStamp | None
    source: Source
    repository: str
    now: FileStamp | None
    folder: FolderState | None = None
    position: int = 0


class SnapshotComparison:
    """Two manifests side by side, then the contents of what differs. `walk_new` looks at a folder that is new."""

    def __init__(
        self,
        before: TreeSnapshot,
        now: TreeManifest,
        contents: SnapshotContents,
        walk_new: Callable[[str], TreeManifest],
    ) -> None:
        self.now = now
        self._before = before
        self._contents = contents
        self._limits = contents.limits
        self._walk_new = walk_new
        self._changed: list[_Changed] = []
        self._created: list[_Changed] = []
        self._changes: list[FileChange] = []
        self._nodes_before: dict[str, Node] = {}  # symlinks and folders that are not as they were
        self._nodes_now: dict[str, Node] = {}
        self._permissions: list[NodeChange] = []
        self._uncovered: dict[str, Uncovered] = {}

    def run(self) -> TreeChanges:
        before = self._before.manifest
        for path, folder in self.now.folders.items():
            old = before.folders.get(path)
            if old is None:
                self._add_new_folder(path, folder)
            elif old is not folder:
                self._compare_folder(path, old, folder)
        unreached = {*self.now.unreached, *self.now.unreadable}
        for path in before.folders.keys() - self.now.folders.keys():
            if not is_at_or_below(path, unreached):
                self._compare_folder(path, before.folders[path], None)
        for path in before.folders.keys() & set(self.now.unreadable):
            self._compare_modes(path, before.folders[path].mode, look_at(path))
        for top in self._before.scope.folders:
            if top in before.folders and top not in self.now.folders:
                self._compare_path(top, WatchedPath(None, None, Node("folder", before.folders[top].mode)))
        for path, watched in self._before.paths.items():
            self._compare_path(path, watched)
        self._note_unwatched()
        self._collect()
        return TreeChanges(tuple(self._changes), tuple(self._uncovered.values()), self._collect_nodes())

    def _compare_folder(self, path: str, old: FolderState, now: FolderState | None) -> None:
        """Compare a folder with what it is now; None: it is gone."""
        if now is None:
            self._nodes_before[path] = Node("folder", old.mode)
        else:
            self._compare_modes(path, old.mode, Node("folder", now.mode))
            if old.owner != now.owner:
                self._name(path, OWNER_CHANGED, content=False)
        new = now or FolderState(())
        prefix = path.rstrip("/") + "/"
        self._compare_files(prefix, old, new)
        if not new.partial:
            self._compare_links(prefix, old, new)

    def _compare_files(self, prefix: str, old: FolderState, new: FolderState) -> None:
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

    def _compare_links(self, prefix: str, old: FolderState, new: FolderState) -> None:
        """Compare the symlinks, and what is neither file nor folder."""
        for name, target in sorted(set(old.links) - set(new.links)):
            self._nodes_before[prefix + name] = Node("symlink", target=target)
        for name, target in sorted(set(new.links) - set(old.links)):
            if (old.partial and name not in old.listing) or name in old.ignored:
                self._name(prefix + name, "may have been there before", changed=False)
            else:
                self._nodes_now[prefix + name] = Node("symlink", target=target)
        for name, _ in set(old.others) ^ set(new.others):
            if not (old.partial and name not in old.listing):
                self._name(prefix + name, OTHERS_NOT_RESTORED)

    def _compare_modes(self, path: str, before: int, now: Node | None) -> None:
        """Note that a folder which is still there has other permissions."""
        if now is not None and now.kind == "folder" and now.mode != before:
            self._nodes_before[path] = Node("folder", before)
            self._nodes_now[path] = now

    def _source(self, path: str, folder: FolderState, position: int) -> Source:
        """Where the content of a file is available. Git's index is asked late where there was no time to ask it before."""
        source = folder.sources[position]
        index = self._before.indexes.get(folder.repository)
        if source is None and index is not None and folder.names[position] not in folder.fresh:
            source = index.object_id(path, folder.stamp(position))
        return source

    def _add_new_folder(self, path: str, folder: FolderState) -> None:
        """All files in a folder that was not there before are new, unless it was not looked at before."""
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
        self._nodes_now[path] = Node("folder", folder.mode)
        self._compare_files(prefix, FolderState(()), folder)
        self._compare_links(prefix, FolderState(()), folder)

    def _compare_path(self, path: str, before: WatchedPath) -> None:
        now, node = read_stamp(path), look_at(path)
        for folder in before.missing_folders:
            if (made := look_at(folder)) is not None and made.kind == "folder":
                self._nodes_now[folder] = made
        if node != before.node and "other" in {each.kind for each in (node, before.node) if each is not None}:
            self._name(path, OTHERS_NOT_RESTORED)
        elif node != before.node:
            if before.node is not None:
                self._nodes_before[path] = before.node
            if node is not None and node.kind == "folder":
                self._add_made_folder(path)
            elif node is not None and node.kind == "symlink":
                self._nodes_now[path] = node
        if before.stamp is None:
            if now is not None:
                self._created.append(_Changed(path, None, None, "", now))
        elif now != before.stamp or before.stamp.changed > self._before.started - CLOCK_TICK_NS:
            self._changed.append(_Changed(path, before.stamp, before.source, "", now))

    def _add_made_folder(self, path: str) -> None:
        """A folder where a command was expected to write a file, as `cp -r` does."""
        made = self._walk_new(path)
        self.now.unreached += made.unreached
        for folder_path, folder in made.folders.items():
            self._add_new_folder(folder_path, folder)

    def _note_unwatched(self) -> None:
        before = self._before.manifest
        why = "more files than there is time for, see bash.snapshotSeconds"
        for words, unreached in (("not looked at", before.unreached), ("not looked at again", self.now.unreached)):
            folders = enclosing_folders(unreached)
            is_whole = len(folders) == len(unreached)
            for path in folders:
                self._name(path, f"{words if is_whole else 'in part ' + words}: {why}", changed=False)
        for path in self.now.unreadable:
            self._name(path, "cannot be read", changed=False)
        for path, folder in (*before.folders.items(), *self.now.folders.items()):
            if folder.partial:
                self._name(path, "has more entries than were looked at", changed=False)

    def _collect(self) -> None:
        """Get the contents of what changed, what is lost first, and stop at the limits."""
        room, count = self._limits.changed_bytes, 0
        selected: list[_Changed] = []
        for changed in self._changed:
            assert changed.before is not None
            self._compare_permissions(changed.path, changed.before, changed.now)
            size = changed.before.size + (changed.now.size if changed.now else 0)
            if changed.source is None:
                self._name(changed.path, self._why_no_copy(changed), changed=changed.now != changed.before)
            elif size > room or count >= self._limits.changed_files:
                self._name(changed.path, self._too_much())
            else:
                room, count = room - size, count + 1
                selected.append(changed)
        for batch in _batches(selected, 500):
            contents = self._contents.contents((c.path, c.before, c.source, c.repository) for c in batch if c.before)
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

    def _compare_permissions(self, path: str, before: FileStamp, now: FileStamp | None) -> None:
        if now is not None and now.permissions != before.permissions:
            nodes = Node("file", before.permissions), Node("file", now.permissions)
            self._permissions.append(NodeChange(path, *nodes))

    def _collect_nodes(self) -> tuple[NodeChange, ...]:
        """Symlinks, folders and permissions that changed. Where a file is lost, what is in its place stays."""
        paths = sorted(self._nodes_before.keys() | self._nodes_now.keys())
        nodes = [NodeChange(path, self._nodes_before.get(path), self._nodes_now.get(path)) for path in paths]
        return (
            *(change for change in nodes if change.before != change.after and not self._is_lost(change.path)),
            *self._permissions,
        )

    def _is_lost(self, path: str) -> bool:
        uncovered = self._uncovered.get(path)
        return uncovered is not None and uncovered.state != ""

    def _add_changed(self, changed: _Changed, before: bytes | None) -> None:
        assert changed.before is not None
        if before is None:
            where = "git no longer has its content" if isinstance(changed.source, bytes) else "its copy is damaged"
            self._name(changed.path, where)
            return
        if changed.now is None:
            self._changes.append(FileChange(changed.path, before, None, changed.path, changed.before.permissions))
            return
        after = self._read(changed, self._limits.changed_bytes)
        if after is None:
            return
        if after != before:
            in_place = changed.now.inode == changed.before.inode
            self._changes.append(FileChange(changed.path, before, after, changed.path, in_place=in_place))
        if changed.now.owner != changed.before.owner:
            self._name(changed.path, OWNER_CHANGED, content=False)
        elif after == before and _only_attributes_differ(changed.before, changed.now) and _has_attributes(changed.path):
            self._name(changed.path, "its extended attributes may have changed", content=False, changed=False)

    def _add_created(self, created: _Changed) -> None:
        after = self._read(created, self._limits.file_bytes)
        if after is None:
            return
        assert created.now is not None
        mode = created.now.permissions
        self._changes.append(FileChange(created.path, None, after, created.path, mode))

    def _read(self, changed: _Changed, limit: int) -> bytes | None:
        """The content now, which is kept for the next snapshot; None for one that cannot be read, which is named."""
        content = self._contents.read(changed.path, limit)
        if isinstance(content, str):
            self._name(changed.path, content)
            return None
        if changed.folder is not None:
            self._contents.keep_copy(changed.folder, changed.position, content)
        return content

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


def _batches(items: Iterable[_Changed], size: int) -> Iterator[list[_Changed]]:
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch


def _only_attributes_differ(before: FileStamp, now: FileStamp) -> bool:
    """Whether a file was changed without its content, permissions and owner, as far as its stamps tell."""
    return before.changed != now.changed and before._replace(changed=now.changed) == now


def _has_attributes(path: str) -> bool:
    try:
        return bool(os.listxattr(path, follow_symlinks=False))
    except (OSError, AttributeError):  # a system or file system without them
        return False


# Where the second walk is saved, the first one may take this much longer than one of two.
SINGLE_WALK_FACTOR = 1.5


class TreeSnapshots:
    """Takes and compares snapshots of one project. Its methods block: call them in a thread.

    `walked` counts the files that were looked at. `watch_folders` opens a watch, or returns None where none is available.
    """

    def __init__(
        self,
        slots: Path,
        env: Mapping[str, str],
        limits: SnapshotLimits | None = None,
        clock: Callable[[], float] | None = None,
        excluded: Iterable[str] = (),
        watch_folders: Callable[[Iterable[str]], FolderWatch | None] = open_watch,
    ) -> None:
        self.walked = 0
        self.contents = SnapshotContents(slots, env, limits or SnapshotLimits())
        self._clock = clock
        self._walker = TreeWalker(env, tuple(excluded))
        self.watch_folders = watch_folders
        self._in_use = 0  # snapshots whose command is running
        self._lock = threading.Lock()  # subagents use the same service

    def take(self, scope: SnapshotScope) -> TreeSnapshot:
        """Look at the files in a scope, and copy those whose content would not be available after the command."""
        with self._lock:
            problem = self.contents.open()
            snapshot = self._walk(scope)
            snapshot.copy_problem = problem
            try:
                self._find_contents(snapshot)
            except BaseException:
                snapshot.close()
                raise
            self._in_use += 1
            return snapshot

    def copy_more(self, snapshot: TreeSnapshot, stop: threading.Event) -> None:
        """Continue copying while the command runs. A file that it has changed meanwhile is left out."""
        while snapshot.uncopied and not stop.is_set():
            with self._lock:
                if self.contents.copies is None:
                    return
                self.contents.copy_next(snapshot)

    def compare(self, before: TreeSnapshot, *, keep_rules: bool = True) -> TreeChanges:
        """Find what the files in the scope of a snapshot are now that they were not then.

        Ignored is what was ignored then, also where the command has changed ignore files; recovery does not know that.
        """
        with self._lock:
            try:
                comparison = SnapshotComparison(
                    before, self._walk_again(before, keep_rules), self.contents, self._walk_new
                )
                changes = comparison.run()
                self._remember(comparison.now, before.scope.folders)
                return changes
            finally:
                self._in_use -= 1
                before.close()

    def release(self, snapshot: TreeSnapshot) -> None:
        """Forget a snapshot that will not be compared."""
        with self._lock:
            self._in_use -= 1
            snapshot.close()

    def close(self) -> None:
        with self._lock:
            self.contents.close()

    def _walk(self, scope: SnapshotScope) -> TreeSnapshot:
        """The first walk. What changes while it is under way is looked at again."""
        watch = self.watch_folders(scope.folders) if scope.folders else None
        try:
            limit = self._limit(self.contents.limits.seconds * (1 if watch is None else SINGLE_WALK_FACTOR))
            manifest = self._walker.walk(scope.folders, self.contents.known, limit, first=scope.first, watch=watch)
            if watch is not None and (changes := watch.changes()) is not None and changes.changed:
                manifest = self._look_again(scope, manifest, watch, changes)
        except BaseException:
            if watch is not None:
                watch.close()
            raise
        self.walked += manifest.file_count
        self._remember(manifest, scope.folders)
        snapshot = TreeSnapshot(scope, manifest, watch)
        snapshot.seconds = limit.spent
        return snapshot

    def _look_again(
        self, scope: SnapshotScope, manifest: TreeManifest, watch: FolderWatch, changes: WatchedChanges
    ) -> TreeManifest:
        """Look again at folders that changed after they had been looked at."""
        skip = frozenset(manifest.unreached)
        limit = self._limit(self.contents.limits.seconds)
        again = self._walker.walk(scope.folders, manifest.folders, limit, skip=skip, watch=watch, changes=changes)
        again.started = manifest.started
        again.unreached += manifest.unreached
        return again

    def _find_contents(self, snapshot: TreeSnapshot) -> None:
        """Find out where the content of each file can be had, and copy what is nowhere else."""
        contents, seconds = self.contents, self.contents.limits.seconds
        if not self._in_use:
            contents.compact_if_full()
        for path in snapshot.scope.paths:
            self._watch_path(path, snapshot)
        # A walk of half the time leaves little for copies: the walk after the command may take as long.
        limit = self._limit(max(0.6 * seconds - snapshot.seconds, 0.1 * seconds))
        contents.find_sources(snapshot, limit)
        contents.copy(snapshot, limit.is_up)
        contents.copy_small_repositories(snapshot, limit)
        if self.contents.copies is not None:
            try:
                self.contents.copies.flush()
            except OSError as error:
                snapshot.copy_problem = error.strerror or "could not be copied"
        _wait_for_tick(snapshot)
        snapshot.finished = time.time_ns()

    def _walk_again(self, before: TreeSnapshot, keep_rules: bool) -> TreeManifest:
        """The second walk: only where something has changed, if that is known."""
        known = before.manifest.folders
        # The second walk takes as long as the first one, or somewhat longer.
        limit = self._limit(max(self.contents.limits.seconds, 1.25 * before.seconds))
        walk = partial(
            self._walker.walk,
            before.scope.folders,
            known,
            limit,
            first=before.scope.first,
            keep_rules=keep_rules,
            skip=frozenset(before.manifest.unreached),
        )
        changes = before.watch.changes() if before.watch is not None else None
        now = walk(changes=changes)
        if changes is not None and any(
            folder.has_hard_links and folder is not known.get(path) for path, folder in now.folders.items()
        ):
            # A write by the name of a new hard link shows nothing in the folder of the file's other name.
            now = walk()
        return now

    def _walk_new(self, folder: str) -> TreeManifest:
        return self._walker.walk((folder,), {}, self._limit(self.contents.limits.seconds))

    def _limit(self, seconds: float) -> TimeLimit:
        return TimeLimit(seconds, self._clock)

    def _remember(self, manifest: TreeManifest, tops: Iterable[str]) -> None:
        known = self.contents.known
        if not manifest.unreached:
            above = set(tops)
            for path in [path for path in known.keys() - manifest.folders.keys() if is_at_or_below(path, above)]:
                del known[path]
        known.update(manifest.folders)

    def _watch_path(self, path: str, snapshot: TreeSnapshot) -> None:
        if path in snapshot.paths:
            return
        stamp = read_stamp(path)
        if stamp is None:
            node = look_at(path)
            snapshot.paths[path] = WatchedPath(None, None, node, _missing_folders(path) if node is None else ())
            if os.path.islink(path) and not os.path.isdir(target := os.path.realpath(path)):
                self._watch_path(target, snapshot)
            return
        source: Source = None
        if stamp.size <= self.contents.limits.changed_bytes:
            source = self.contents.copy_path(path, stamp)
        snapshot.paths[path] = WatchedPath(stamp, source)


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
