"""List a folder as a tree of names, bounded: every folder gets its fair share of entries before one of them gets more."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from msgspec import Struct

from wieldy.core.backend import FolderEntry
from wieldy.core.filesystem import LOCAL_FILES, Entry, FileSystem, ListedEntry
from wieldy.core.realpath import open_resolved
from wieldy.core.text import display_path, printable_path
from wieldy.files.search.patterns import (
    HiddenTest,
    IgnoreRules,
    PathTest,
    compile_globs,
    load_parent_rules,
)

MAX_ENTRIES = 1000


@dataclass(slots=True)
class TreeEntry:
    """One name in the tree. `more` counts the children that are not listed; None means that the folder was not opened."""

    name: str
    path: str
    is_folder: bool = False
    target: str | None = None
    rules: IgnoreRules | None = None
    children: list[TreeEntry] = field(default_factory=list)
    more: int | None = None
    unreadable: bool = False


class Tree(Struct, frozen=True):
    """A listed folder: how many entries are listed, and how many were left out because they are hidden or ignored."""

    top: TreeEntry
    listed: int
    hidden: int
    ignored: int

    @property
    def complete(self) -> bool:
        """Whether nothing was left out because of the limit."""
        return all(entry.more == 0 or entry.unreadable for entry in self._folders())

    def lines(self) -> Iterator[str]:
        """The tree as text, two blanks a level; folders end in `/`, links show their target."""
        yield from _format(self.top.children, self.top.more, "")

    def names(self) -> list[str]:
        """Paths relative to the folder, in the order listed; folders end in `/`."""
        return [display_path(path) for path in _relative_paths(self.top.children, "")]

    def _folders(self) -> Iterator[TreeEntry]:
        pending = [self.top]
        while pending:
            entry = pending.pop()
            yield entry
            pending.extend(child for child in entry.children if child.is_folder)


def list_tree(
    folder: str,
    ignore: Iterable[str] = (),
    hidden: HiddenTest | None = None,
    limit: int = MAX_ENTRIES,
    stopped: Callable[[], bool] = lambda: False,
    respect_ignore_files: bool = True,
    files: FileSystem = LOCAL_FILES,
) -> Tree:
    """List the realpath of a folder. Raises OSError when it cannot be opened, BadGlob for an `ignore` that cannot be read."""
    lister = _Lister(files, folder, compile_globs(ignore), hidden, limit, stopped)
    if respect_ignore_files:
        lister.top.rules = load_parent_rules(lister.top.path, files=files)
    return lister.build()


def fair_shares(demands: Sequence[int], total: int) -> list[int]:
    """Share out a total: small demands are met in full, the others get equal parts of the rest."""
    shares = [0] * len(demands)
    order = sorted(range(len(demands)), key=lambda index: demands[index])
    for done, index in enumerate(order):
        shares[index] = min(demands[index], total // (len(order) - done))
        total -= shares[index]
    return shares


class _Lister:
    """Opens folders level by level until the limit is reached."""

    def __init__(
        self,
        files: FileSystem,
        root: str,
        excluded: PathTest | None,
        hidden: HiddenTest | None,
        limit: int,
        stopped: Callable[[], bool],
    ) -> None:
        self.files = files
        self.prefix = len(root.rstrip("/")) + 1
        self.excluded = excluded
        self.is_hidden = hidden
        self.limit = self.left = limit
        self.stopped = stopped
        self.hidden = self.ignored = 0
        self.top = TreeEntry("", root, is_folder=True)

    def build(self) -> Tree:
        cut_short: list[tuple[TreeEntry, list[TreeEntry]]] = []
        level = [(self.top, self.open(self.top))]
        while level and self.left > 0 and not self.stopped():
            # At first a huge folder gets only a part, so that it does not keep the others closed.
            most = self.limit * 3 // 4 if level[0][0] is self.top else self.limit // 4
            self.add(level, [min(len(entries), max(most, 1)) for _, entries in level])
            cut_short += [(folder, entries) for folder, entries in level if folder.more]
            folders = [entry for folder, _ in level for entry in folder.children if entry.is_folder]
            # A folder that would show next to nothing is not worth opening.
            level = [(entry, self.open_or_mark(entry)) for entry in folders[: self.left // 3]]
        self.add(cut_short, [len(entries) for _, entries in cut_short])
        return Tree(self.top, self.limit - self.left, self.hidden, self.ignored)

    def add(self, folders: list[tuple[TreeEntry, list[TreeEntry]]], demands: list[int]) -> None:
        extra = [demand - len(folder.children) for (folder, _), demand in zip(folders, demands, strict=True)]
        for (folder, entries), share in zip(folders, fair_shares(extra, self.left), strict=True):
            self.left -= share
            folder.children = entries[: len(folder.children) + share]
            folder.more = len(entries) - len(folder.children)

    def open_or_mark(self, folder: TreeEntry) -> list[TreeEntry]:
        try:
            return self.open(folder)
        except OSError:
            folder.unreadable = True
            return []

    def open(self, folder: TreeEntry) -> list[TreeEntry]:
        dir_entries = _list_folder(folder.path) if self.files is LOCAL_FILES else self.files.list_folder(folder.path)
        rules = folder.rules and folder.rules.enter(folder.path, {entry.name for entry in dir_entries})
        entries = (self.entry(entry, rules) for entry in dir_entries)
        return sorted((entry for entry in entries if entry), key=lambda entry: entry.name)

    def entry(self, dir_entry: Entry, rules: IgnoreRules | None) -> TreeEntry | None:
        is_link = dir_entry.is_symlink()
        is_folder = not is_link and dir_entry.is_dir()
        if self.excluded and self.excluded(dir_entry.path[self.prefix :]):
            return None
        if self.is_hidden and self.is_hidden(dir_entry.path):
            return None
        if dir_entry.name.startswith("."):
            self.hidden += 1
            return None
        if rules and rules.ignores(dir_entry.path, is_folder):
            self.ignored += 1
            return None
        return TreeEntry(
            dir_entry.name, dir_entry.path, is_folder, getattr(dir_entry, "target", "?") if is_link else None, rules
        )


def _list_folder(path: str) -> Sequence[Entry]:
    """List a folder of this machine. Raises `PathChanged` where a symlink has come in between."""
    descriptor = open_resolved(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with os.scandir(descriptor) as entries:
            return [
                ListedEntry(LOCAL_FILES, os.path.join(path, each.name), _listed(each, descriptor)) for each in entries
            ]
    finally:
        os.close(descriptor)


def _listed(entry: os.DirEntry[str], descriptor: int) -> FolderEntry:
    """One name in an open folder, as it was when the folder was listed."""
    if not entry.is_symlink():
        is_folder = entry.is_dir(follow_symlinks=False)
        return FolderEntry(entry.name, "folder" if is_folder else "file" if entry.is_file() else "other")
    try:
        return FolderEntry(entry.name, "link", os.readlink(entry.name, dir_fd=descriptor))
    except OSError:
        return FolderEntry(entry.name, "link", "?")


def _format(entries: Iterable[TreeEntry], more: int | None, indent: str) -> Iterator[str]:
    for entry in entries:
        name = printable_path(entry.name)
        if name.startswith("~"):
            name = f"./{name}"
        if entry.target is not None:
            yield f"{indent}{name} -> {printable_path(entry.target)}"
        elif not entry.is_folder:
            yield indent + name
        else:
            note = " (cannot be read)" if entry.unreadable else " (not opened)" if entry.more is None else ""
            yield f"{indent}{name}/{note}"
            yield from _format(entry.children, entry.more, indent + "  ")
    if more:
        yield f"{indent}… {more} more"


def _relative_paths(entries: Iterable[TreeEntry], prefix: str) -> Iterator[str]:
    for entry in entries:
        path = prefix + entry.name
        yield f"{path}/" if entry.is_folder else path
        yield from _relative_paths(entry.children, f"{path}/")
