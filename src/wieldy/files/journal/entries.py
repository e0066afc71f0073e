"""The records of the journal: an entry for each call that changed files, with each file's content by hash; and what undo
cannot restore, in words.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Literal, TypeAlias

from msgspec import Struct

from wieldy.core.text import printable_path
from wieldy.files.writing.disk import WriteMethod
from wieldy.files.writing.tree_commit import NodeChange

# "command" entries hold what a shell command changed, as seen by the snapshots around it.
EntryKind: TypeAlias = Literal["edit", "command", "undo", "redo"]
# An entry is pending while its files are being written; "abandoned" means that recovery lacked an intact copy.
EntryState: TypeAlias = Literal["pending", "done", "rolled_back", "abandoned"]


class FileChange(Struct, frozen=True):
    """The content of a file before and after; None means that there is no such file.

    `real_path` is where the permission check saw `path` lead: if it leads elsewhere now, nothing is written. `mode` are the
    permission bits of a new file, where they are not the usual ones. `folders` were made for a new file. `in_place` says
    whether the file kept its inode, and with it its other names (hard links); None means that this is not known.
    """

    path: str
    before: bytes | None
    after: bytes | None
    real_path: str | None = None
    mode: int | None = None
    folders: tuple[str, ...] = ()
    in_place: bool | None = None


class Uncovered(Struct, frozen=True):
    """A path that a command changed, or may have changed (`changed` is false), and that undo cannot restore.

    `state` identifies the state the command left it in, where that is known.
    """

    path: str
    reason: str
    changed: bool = True
    state: str = ""


class ChangeOrigin(Struct, frozen=True):
    """Which call makes a change. `reverses` are the entries that an undo or redo reverses."""

    session: str
    call_id: str
    tool: str
    turn: str | None = None
    kind: EntryKind = "edit"
    reverses: tuple[int, ...] = ()
    uncovered: tuple[Uncovered, ...] = ()


class EntryFile(Struct, frozen=True):
    """One file of an entry. The last four fields tell recovery how it was being written."""

    path: str
    real_path: str
    before_hash: str | None
    after_hash: str | None
    mode: int | None = None
    method: WriteMethod = "replace"
    temp: str = ""
    backup: str = ""
    folders: tuple[str, ...] = ()


class JournalEntry(Struct, frozen=True):
    """The changes of one call. `active` is false once they have been undone. `uncovered` is what undo cannot restore.

    `nodes` are symlinks, folders and permissions that changed.
    """

    id: int
    kind: EntryKind
    session: str
    call_id: str
    tool: str
    time: float
    files: tuple[EntryFile, ...]
    turn: str | None = None
    reverses: tuple[int, ...] = ()
    uncovered: tuple[Uncovered, ...] = ()
    active: bool = True
    nodes: tuple[NodeChange, ...] = ()

    @property
    def is_known(self) -> bool:
        """Whether any change is known; false for a command that was not watched."""
        return not self.uncovered or bool(self.files or self.nodes) or any(each.changed for each in self.uncovered)

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of everything that changed."""
        return tuple(dict.fromkeys((*(file.path for file in self.files), *(node.path for node in self.nodes))))


def content_hash(data: bytes) -> str:
    """The key of a content in the journal."""
    return sha256(data).hexdigest()[:40]  # processors have instructions for it


SHOWN_PATHS = 3
# An entry of the journal names so many paths; of more, the folders that they are in.
MAX_PATHS = 500
MAX_FOLDERS = 50


def limit_uncovered(uncovered: Sequence[Uncovered]) -> tuple[Uncovered, ...]:
    """At most so many as a journal entry names, those that are known to have changed first, and folders for the rest."""
    ordered = sorted(uncovered, key=lambda each: not each.changed)
    named, rest = ordered[:MAX_PATHS], ordered[MAX_PATHS:]
    for changed, reason in ((True, "more files in it changed than are named"), (False, "in part not looked at")):
        paths = [each.path for each in rest if each.changed is changed]
        named += [Uncovered(folder, reason, changed) for folder in enclosing_folders(paths)]
    return tuple(named)


def enclosing_folders(paths: Iterable[str], most: int = MAX_FOLDERS) -> list[str]:
    """The paths, or where they are too many the folders that they are in."""
    folders = set(paths)
    while len(folders) > most:
        depth = max(path.count("/") for path in folders)
        above = {os.path.dirname(path) if path.count("/") == depth else path for path in folders}
        if above == folders:
            break
        folders = above
    return sorted(folders)


def summarize_uncovered(uncovered: Sequence[Uncovered], root: str = "") -> str:
    """One phrase for each reason: the first paths, how many more, and why."""
    return "; ".join(uncovered_lines(uncovered, root))


def uncovered_lines(uncovered: Sequence[Uncovered], root: str = "") -> list[str]:
    """The same as lines, for a list of changes."""
    by_reason: dict[str, list[str]] = {}
    for each in uncovered:
        by_reason.setdefault(each.reason, []).append(each.path)
    return [_phrase(paths, reason, root) for reason, paths in by_reason.items()]


def _phrase(paths: list[str], reason: str, root: str) -> str:
    names = ", ".join(_name(path, root) for path in paths[:SHOWN_PATHS])
    more = f" and {len(paths) - SHOWN_PATHS} more" if len(paths) > SHOWN_PATHS else ""
    return f"{names}{more} ({reason})"


def _name(path: str, root: str) -> str:
    inside = root and path.startswith(root.rstrip("/") + "/")
    return printable_path(os.path.relpath(path, root) if inside else path)
