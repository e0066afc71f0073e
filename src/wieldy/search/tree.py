"""A folder as a tree of names, bounded: every folder gets its fair part of the room before one of them gets more."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from msgspec import Struct

from wieldy.search.format import escape_controls, readable
from wieldy.search.ignore import Matches, Rules, compile_any, inside_repository, rules_above
from wieldy.search.query import Omit

ENTRIES = 1000


@dataclass(slots=True)
class Entry:
    """One name in the tree. `more` counts the entries of a folder that are not shown; None means it was not opened."""

    name: str
    path: str
    is_folder: bool = False
    target: str | None = None
    rules: Rules | None = None
    below: list[Entry] = field(default_factory=list)
    more: int | None = None
    unreadable: bool = False


class Tree(Struct, frozen=True):
    """A folder with what is shown of it, and how much was left out on purpose."""

    top: Entry
    shown: int
    hidden: int
    ignored: int

    @property
    def whole(self) -> bool:
        """Whether nothing was left out for lack of room."""
        return all(entry.more == 0 or entry.unreadable for entry in self._folders())

    def lines(self) -> Iterator[str]:
        """The tree as text, two blanks a level; folders end in `/`, links say where they point."""
        yield from _written(self.top.below, self.top.more, "")

    def names(self) -> list[str]:
        """Paths relative to the folder, in the order shown; folders end in `/`."""
        return [readable(path) for path in _relative(self.top.below, "")]

    def _folders(self) -> Iterator[Entry]:
        waiting = [self.top]
        while waiting:
            entry = waiting.pop()
            yield entry
            waiting.extend(below for below in entry.below if below.is_folder)


def list_tree(
    folder: str,
    ignore: Iterable[str] = (),
    omit: Omit | None = None,
    limit: int = ENTRIES,
    stopped: Callable[[], bool] = lambda: False,
    obedient: bool = True,
) -> Tree:
    """List an absolute folder, leaving out what ignore files say if `obedient`.

    Raises OSError when it cannot be opened, BadGlob for an `ignore` that cannot be read.
    """
    growth = _Growth(os.path.realpath(folder), compile_any(ignore), omit, limit, stopped)
    if obedient:
        growth.top.rules = rules_above(growth.top.path, inside_repository(growth.top.path))
    return growth.grow()


def fair_shares(wishes: Sequence[int], room: int) -> list[int]:
    """How much each wish gets of the room: small ones all they want, the others equal parts of the rest."""
    shares = [0] * len(wishes)
    order = sorted(range(len(wishes)), key=lambda index: wishes[index])
    for done, index in enumerate(order):
        shares[index] = min(wishes[index], room // (len(order) - done))
        room -= shares[index]
    return shares


class _Growth:
    """Opens folders level by level until there is no room left."""

    def __init__(
        self, root: str, excluded: Matches | None, omit: Omit | None, limit: int, stopped: Callable[[], bool]
    ) -> None:
        self.above = len(root.rstrip("/")) + 1
        self.excluded = excluded
        self.omit = omit
        self.limit = self.room = limit
        self.stopped = stopped
        self.hidden = self.ignored = 0
        self.top = Entry("", root, is_folder=True)

    def grow(self) -> Tree:
        held_back: list[tuple[Entry, list[Entry]]] = []
        opened = [(self.top, self.open(self.top))]
        while opened and self.room > 0 and not self.stopped():
            # At first a huge folder gets only a part of the room, so that it does not keep the others closed.
            most = self.limit * 3 // 4 if opened[0][0] is self.top else self.limit // 4
            self.show(opened, [min(len(found), max(most, 1)) for _, found in opened])
            held_back += [(folder, found) for folder, found in opened if folder.more]
            level = [entry for folder, _ in opened for entry in folder.below if entry.is_folder]
            # A folder that would show next to nothing is not worth opening.
            opened = [(entry, self.open_below(entry)) for entry in level[: self.room // 3]]
        self.show(held_back, [len(found) for _, found in held_back])
        return Tree(self.top, self.limit - self.room, self.hidden, self.ignored)

    def show(self, opened: list[tuple[Entry, list[Entry]]], wishes: list[int]) -> None:
        extra = [wish - len(folder.below) for (folder, _), wish in zip(opened, wishes, strict=True)]
        for (folder, found), share in zip(opened, fair_shares(extra, self.room), strict=True):
            self.room -= share
            folder.below = found[: len(folder.below) + share]
            folder.more = len(found) - len(folder.below)

    def open_below(self, folder: Entry) -> list[Entry]:
        try:
            return self.open(folder)
        except OSError:
            folder.unreadable = True
            return []

    def open(self, folder: Entry) -> list[Entry]:
        with os.scandir(folder.path) as opened:
            entries = list(opened)
        rules = folder.rules and folder.rules.entering(folder.path, {entry.name for entry in entries})
        kept = (self.entry(entry, rules) for entry in entries)
        return sorted((entry for entry in kept if entry), key=lambda entry: entry.name)

    def entry(self, found: os.DirEntry[str], rules: Rules | None) -> Entry | None:
        is_link = found.is_symlink()
        is_folder = not is_link and found.is_dir()
        if (self.excluded and self.excluded(found.path[self.above :])) or (self.omit and self.omit(found.path)):
            return None
        if found.name.startswith("."):
            self.hidden += 1
            return None
        if rules and rules.ignored(found.path, is_folder):
            self.ignored += 1
            return None
        target = _target(found.path) if is_link else None
        return Entry(found.name, found.path, is_folder, target, rules)


def _target(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return "?"


def _written(entries: Iterable[Entry], more: int | None, indent: str) -> Iterator[str]:
    for entry in entries:
        name = escape_controls(readable(entry.name))
        if name.startswith("~"):
            name = f"./{name}"
        if entry.target is not None:
            yield f"{indent}{name} -> {escape_controls(readable(entry.target))}"
        elif not entry.is_folder:
            yield indent + name
        else:
            note = " (cannot be read)" if entry.unreadable else " (not opened)" if entry.more is None else ""
            yield f"{indent}{name}/{note}"
            yield from _written(entry.below, entry.more, indent + "  ")
    if more:
        yield f"{indent}… {more} more"


def _relative(entries: Iterable[Entry], above: str) -> Iterator[str]:
    for entry in entries:
        path = above + entry.name
        yield f"{path}/" if entry.is_folder else path
        yield from _relative(entry.below, f"{path}/")
