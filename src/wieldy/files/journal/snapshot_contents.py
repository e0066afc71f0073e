"""Where the contents that files had before a command come from: copies, and git.

Files that git has need no copy, nor do files that were copied before and have not changed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from heapq import nlargest
from operator import itemgetter
from pathlib import Path

from wieldy.files.journal.file_copies import FileCopies, open_slot
from wieldy.files.journal.git_objects import GitIndex, load_index, read_objects
from wieldy.files.journal.manifest_file import load_manifest, remove_manifests
from wieldy.files.journal.snapshot_types import CopyCandidate, SnapshotLimits, TreeSnapshot, too_large
from wieldy.files.journal.store import ContentUnavailable
from wieldy.files.journal.tree_manifest import (
    FileStamp,
    FolderState,
    Source,
    TimeLimit,
    iter_files,
    read_stamp,
    stamp_of,
)

READ_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
# So few files are read faster than git's index.
FEW_FILES = 200
FEW_BYTES = 4 << 20
# The most recently modified files are copied first; of more than this, only so many are put in order.
SORTED_FILES = 20_000
# Repositories of more files are not copied, however small they are.
SMALL_REPOSITORY_FILES = 5_000


class SnapshotContents:
    """The copies of one process. `known` are the folders as they were last seen, with the source of each content.

    `reads` counts the files that were opened.
    """

    def __init__(self, slots: Path, env: Mapping[str, str], limits: SnapshotLimits) -> None:
        self.reads = 0
        self.limits = limits
        self.copies: FileCopies | None = None
        self.known: dict[str, FolderState] = {}
        self._slots = slots
        self._env = env
        self._room = 0
        self._is_full = False

    def open(self) -> str:
        """Open the copies at first use; returns why that is not possible."""
        if self.copies is None:
            try:
                self.copies = open_slot(self._slots)
                self.known = load_manifest(self.copies)
                self._room = self.limits.copied_bytes - self.copies.size
            except OSError as error:
                return error.strerror or str(error)
        return ""

    def compact_if_full(self) -> None:
        """Drop copies of states that files are no longer in, where they take up much of the room."""
        copies = self.copies
        if copies is None or not self._is_full:
            return
        live = self._live_copies()
        self._is_full = False
        if sum(live.values()) < 0.75 * copies.size:
            remove_manifests(copies.folder)
            moved = copies.compact(live)
            for sources in {id(folder.sources): folder.sources for folder in self.known.values()}.values():
                sources[:] = [moved.get(source) if isinstance(source, int) else source for source in sources]
        self._room = self.limits.copied_bytes - copies.size

    def _live_copies(self) -> dict[int, int]:
        """The copies of files in their present state: offset and size."""
        return {
            source: folder.stamp(position).size
            for folder in self.known.values()
            for position, source in enumerate(folder.sources)
            if isinstance(source, int)
        }

    def find_sources(self, snapshot: TreeSnapshot, limit: TimeLimit) -> None:
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
                snapshot.uncopied.append(CopyCandidate(stamp.modified, stamp.size, prefix + name, folder, position))

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

    def copy(self, snapshot: TreeSnapshot, is_time_up: Callable[[], bool]) -> None:
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
            self.copy_next(snapshot)

    def copy_next(self, snapshot: TreeSnapshot) -> None:
        if not self._copy_file(snapshot.uncopied.pop()):
            snapshot.copy_problem = snapshot.copy_problem or self._room_problem()

    def _room_problem(self) -> str:
        return f"beyond the {self.limits.copied_bytes >> 20} MB that are kept"

    def _copy_file(self, candidate: CopyCandidate) -> bool:
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

    def copy_small_repositories(self, snapshot: TreeSnapshot, limit: TimeLimit) -> None:
        """Copy what only git has, where that is little: a command may remove `.git`."""
        if self.copies is None or snapshot.manifest.file_count > SMALL_REPOSITORY_FILES:
            return
        candidates = [
            CopyCandidate(stamp.modified, stamp.size, path, folder, position)
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

    def close(self) -> None:
        if self.copies is not None:
            self.copies.close()
            self.copies = None

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

    def copy_path(self, path: str, stamp: FileStamp) -> Source:
        """Copy a file in a certain state, whatever its size; None if it is in another state, or cannot be copied."""
        if self.copies is None:
            return None
        content = self.read(path, stamp.size)
        if not isinstance(content, bytes) or read_stamp(path) != stamp:
            return None
        self._room -= len(content)
        return self.copies.add(content)

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


def _read_all(descriptor: int, limit: int) -> bytes:
    """All bytes, or one more than the limit."""
    content = os.read(descriptor, min(limit, os.fstat(descriptor).st_size) + 1)
    while len(content) <= limit and (more := os.read(descriptor, min(1 << 20, limit + 1 - len(content)))):
        content += more
    return content
