"""Path rules filed by the folder or the name they are about, so that a thousand of them cost one path a few look-ups."""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, lru_cache

from wieldy.permissions.paths import below, key
from wieldy.permissions.pattern import PathPattern
from wieldy.permissions.rule import Rule


class PathIndex:
    """Rules of one behaviour about reading or writing, on volumes that fold case or on ones that do not."""

    def __init__(self, entries: Sequence[tuple[PathPattern, Rule]], fold: bool = False) -> None:
        self._fold = fold
        self._by_folder: dict[str, list[tuple[PathPattern, Rule]]] = {}
        self._by_name: dict[str, list[tuple[PathPattern, Rule]]] = {}
        self._loose: list[tuple[str, PathPattern, Rule]] = []
        for pattern, rule in entries:
            self._file(pattern, rule)

    def _file(self, pattern: PathPattern, rule: Rule) -> None:
        if pattern.plain_name is not None:
            self._by_name.setdefault(key(pattern.plain_name, self._fold), []).append((pattern, rule))
        elif pattern.floating:
            self._loose.append((key(pattern.needle, self._fold), pattern, rule))
        else:
            self._by_folder.setdefault(key(pattern.folder, self._fold), []).append((pattern, rule))

    def find(self, path: str) -> Rule | None:
        """A rule that covers a path."""
        return next(self.matching(path), None)

    def matching(self, path: str) -> Iterator[Rule]:
        """Every rule that covers a path, in no particular order."""
        path = key(path, self._fold)
        if self._by_folder:
            yield from self._by_ancestor(path)
        if self._by_name:
            yield from self._by_component(path)
        for needle, pattern, rule in self._loose:
            if needle in path and below(path, pattern.folder, self._fold):
                relative = _from(key(pattern.folder, self._fold), path)
                if relative and pattern.matches_below(relative, self._fold):
                    yield rule

    def _by_ancestor(self, path: str) -> Iterator[Rule]:
        for folder in _lineage(path):
            for pattern, rule in self._by_folder.get(folder, ()):
                if not pattern.rest or (folder != path and pattern.matches_below(_from(folder, path), self._fold)):
                    yield rule

    def _by_component(self, path: str) -> Iterator[Rule]:
        place = ""
        for name in path.split("/")[1:]:
            for pattern, rule in self._by_name.get(name, ()):
                if below(place or "/", pattern.folder, self._fold):
                    yield rule
            place = f"{place}/{name}"

    def surely_inside(self, folder: str) -> Rule | None:
        """A rule that names one path inside a folder."""
        start = key(folder, self._fold).rstrip("/") + "/"
        at = bisect_left(self._named, start)
        if at == len(self._named) or not self._named[at].startswith(start):
            return None
        return next(rule for pattern, rule in self._by_folder[self._named[at]] if not pattern.rest)

    def perhaps_inside(self, folder: str) -> Rule | None:
        """A rule that could cover something inside a folder."""
        folder = key(folder, self._fold)
        for filed, entries in self._by_folder.items():
            for pattern, rule in entries:
                if below(filed, folder) or (pattern.rest and below(folder, filed)):
                    return rule
        names = (entry for entries in self._by_name.values() for entry in entries)
        for pattern, rule in (*names, *((pattern, rule) for _, pattern, rule in self._loose)):
            filed = key(pattern.folder, self._fold)
            if below(folder, filed) or below(filed, folder):
                return rule
        return None

    @cached_property
    def _named(self) -> list[str]:
        return sorted(
            folder for folder, entries in self._by_folder.items() if any(not pattern.rest for pattern, _ in entries)
        )


@lru_cache(maxsize=1024)
def _lineage(path: str) -> tuple[str, ...]:
    """The path and every folder above it."""
    folders = [path]
    while (above := os.path.dirname(folders[-1])) != folders[-1]:
        folders.append(above)
    return tuple(folders)


def _from(folder: str, path: str) -> str:
    return path[len(folder) :].lstrip("/")


def both_ways(
    entries: Sequence[tuple[PathPattern, Rule]], real: Callable[[str], str]
) -> list[tuple[PathPattern, Rule]]:
    """The entries, and again under the real name of their folder where that is another."""
    out = list(entries)
    targets = {folder: real(folder) for folder in {pattern.folder for pattern, _ in entries}}
    for pattern, rule in entries:
        target = targets[pattern.folder]
        if target != pattern.folder:
            out.append((PathPattern(target, pattern.rest, pattern.floating), rule))
    return out
