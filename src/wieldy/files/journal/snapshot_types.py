"""What a snapshot around a command looks at, what it may cost, and what it finds."""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct

from wieldy.files.journal.entries import FileChange, Uncovered
from wieldy.files.journal.folder_watch import FolderWatch
from wieldy.files.journal.git_objects import GitIndex
from wieldy.files.journal.tree_manifest import FileStamp, FolderState, Source, TreeManifest
from wieldy.files.writing.nodes import Node, NodeChange


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
    """What changed: files, and symlinks, folders and permissions; and what may have changed without a way back."""

    changes: tuple[FileChange, ...]
    uncovered: tuple[Uncovered, ...]
    nodes: tuple[NodeChange, ...] = ()


class WatchedPath(NamedTuple):
    """A single path before a command: the stamp and content of a file, or what else was there."""

    stamp: FileStamp | None
    source: Source
    node: Node | None = None
    missing_folders: tuple[str, ...] = ()


class CopyCandidate(NamedTuple):
    """A file that has no copy yet."""

    modified: int
    size: int
    path: str
    folder: FolderState
    position: int


class TreeSnapshot:
    """The files in a scope before a command. `watch` tells in which folders something has changed since, where it can."""

    def __init__(self, scope: SnapshotScope, manifest: TreeManifest, watch: FolderWatch | None = None) -> None:
        self.scope = scope
        self.manifest = manifest
        self.watch = watch
        self.paths: dict[str, WatchedPath] = {}
        self.indexes: dict[str, GitIndex | None] = {}
        self.uncopied: list[CopyCandidate] = []
        self.copy_problem = ""
        self.seconds = 0.0
        self.finished = 0

    @property
    def started(self) -> int:
        return self.manifest.started

    def close(self) -> None:
        if self.watch is not None:
            self.watch.close()
            self.watch = None


def too_large(limit: int) -> str:
    return f"larger than {limit >> 20} MB"
