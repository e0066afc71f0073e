"""Find out what a command changed in a tree, and keep what is needed to take it back. Never writes to the tree.

Before the command: a walk that reads no content, then copies of files whose content cannot be had otherwise, as many as a
fraction of a second allows. After the command: a look into the folders that changed meanwhile, or a second walk where the
system does not tell which these are; then at the contents of what changed. What may have changed unseen, or changed and has
no copy, is named.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path

from wieldy.files.journal.file_copies import FileCopies
from wieldy.files.journal.folder_watch import FolderWatch, WatchedChanges, open_watch
from wieldy.files.journal.snapshot_comparison import SnapshotComparison
from wieldy.files.journal.snapshot_contents import SnapshotContents
from wieldy.files.journal.snapshot_types import SnapshotLimits, SnapshotScope, TreeChanges, TreeSnapshot, WatchedPath
from wieldy.files.journal.tree_manifest import (
    KERNEL_TICK_NS,
    Source,
    TimeLimit,
    TreeManifest,
    TreeWalker,
    read_stamp,
)
from wieldy.files.writing.nodes import look_at
from wieldy.files.writing.target import is_at_or_below

# Where the second walk is saved, the first one may take this much longer than one of two.
SINGLE_WALK_FACTOR = 1.5


class TreeSnapshots:
    """Takes and compares snapshots of one project. Its methods block: call them in a thread.

    `walked` counts the files that were looked at. `watch_folders` opens a watch, or says that there is none to be had.
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

    @property
    def copies(self) -> FileCopies | None:
        return self.contents.copies

    @property
    def limits(self) -> SnapshotLimits:
        return self.contents.limits

    @limits.setter
    def limits(self, limits: SnapshotLimits) -> None:
        self.contents.limits = limits

    def take(self, scope: SnapshotScope) -> TreeSnapshot:
        """Look at the files in a scope, and copy those whose content could not be had after the command."""
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
        """Go on copying while the command runs. A file that it has changed meanwhile is left out."""
        while snapshot.uncopied and not stop.is_set():
            with self._lock:
                if self.copies is None:
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
            limit = self._limit(self.limits.seconds * (1 if watch is None else SINGLE_WALK_FACTOR))
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
        """Look again at folders in which somebody changed something after they had been looked at."""
        skip = frozenset(manifest.unreached)
        limit = self._limit(self.limits.seconds)
        again = self._walker.walk(scope.folders, manifest.folders, limit, skip=skip, watch=watch, changes=changes)
        again.started = manifest.started
        again.unreached += manifest.unreached
        return again

    def _find_contents(self, snapshot: TreeSnapshot) -> None:
        """Find out where the content of each file can be had, and copy what is nowhere else."""
        contents, seconds = self.contents, self.limits.seconds
        if not self._in_use:
            contents.compact_if_full()
        for path in snapshot.scope.paths:
            self._watch_path(path, snapshot)
        # A walk of half the time leaves little for copies: the walk after the command may take as long.
        limit = self._limit(max(0.6 * seconds - snapshot.seconds, 0.1 * seconds))
        contents.find_sources(snapshot, limit)
        contents.copy(snapshot, limit.is_up)
        contents.copy_small_repositories(snapshot, limit)
        if self.copies is not None:
            try:
                self.copies.flush()
            except OSError as error:
                snapshot.copy_problem = error.strerror or "could not be copied"
        _wait_for_tick(snapshot)
        snapshot.finished = time.time_ns()

    def _walk_again(self, before: TreeSnapshot, keep_rules: bool) -> TreeManifest:
        """The second walk: only where something has changed, if that is known."""
        known = before.manifest.folders
        # The second walk takes as long as the first one, or somewhat longer.
        limit = self._limit(max(self.limits.seconds, 1.25 * before.seconds))
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
        return self._walker.walk((folder,), {}, self._limit(self.limits.seconds))

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
        if stamp.size <= self.limits.changed_bytes:
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
