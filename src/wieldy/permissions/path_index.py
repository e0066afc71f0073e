"""Path rules filed by the folder or the name they are about, so that a thousand of them cost one path a few look-ups."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache

from wieldy.permissions.needles import Needles
from wieldy.permissions.paths import below, key
from wieldy.permissions.pattern import PathPattern
from wieldy.permissions.rule import Rule

REMEMBERED = 1024


class PathIndex:
    """Path rules, on volumes that fold case or on ones that do not."""

    def __init__(self, entries: Sequence[tuple[PathPattern, Rule]], fold: bool = False) -> None:
        self._fold = fold
        self._entries = tuple(entries)
        self._by_folder: dict[str, list[tuple[PathPattern, Rule]]] = {}
        self._by_name: dict[str, list[tuple[PathPattern, Rule]]] = {}
        loose: list[tuple[str, tuple[PathPattern, Rule]]] = []
        for pattern, rule in entries:
            if pattern.plain_name is not None:
                self._by_name.setdefault(key(pattern.plain_name, fold), []).append((pattern, rule))
            elif pattern.floating:
                loose.append((key(pattern.needle, fold), (pattern, rule)))
            else:
                self._by_folder.setdefault(key(pattern.folder, fold), []).append((pattern, rule))
        self._loose = Needles(loose)
        self.matching = lru_cache(maxsize=REMEMBERED)(self._matching)

    def find(self, path: str) -> Rule | None:
        """A rule that covers a path."""
        return next(iter(self.matching(path)), None)

    def _matching(self, path: str) -> Sequence[Rule]:
        """Every rule that covers a path, in no particular order."""
        if not self._entries:
            return ()
        path = key(path, self._fold)
        found: list[Rule] = []
        for folder in _lineage(path):
            if (filed := self._by_folder.get(folder)) is not None:
                found += [rule for pattern, rule in filed if self._reaches(pattern, folder, path)]
        if self._by_name:
            self._by_component(path, found)
        for pattern, rule in self._loose.held_by(path):
            if below(path, pattern.folder, self._fold):
                relative = _from(key(pattern.folder, self._fold), path)
                if relative and pattern.matches_below(relative, self._fold):
                    found.append(rule)
        return found

    def _reaches(self, pattern: PathPattern, folder: str, path: str) -> bool:
        return not pattern.rest or (folder != path and pattern.matches_below(_from(folder, path), self._fold))

    def _by_component(self, path: str, found: list[Rule]) -> None:
        names = path.split("/")
        for at, name in enumerate(names):
            if at and (filed := self._by_name.get(name)) is not None:
                place = "/".join(names[:at]) or "/"
                found += [rule for pattern, rule in filed if below(place, pattern.folder, self._fold)]

    def surely_inside(self, folder: str) -> Rule | None:
        """A rule that names one path inside a folder."""
        named, rules = self._named
        return _first_below(key(folder, self._fold), named, rules)

    def perhaps_inside(self, folder: str) -> Rule | None:
        """A rule that could cover something inside a folder."""
        folder = key(folder, self._fold)
        filed, rules, spreading = self._filed
        for above in _lineage(folder):
            if (rule := spreading.get(above)) is not None:
                return rule
        return rules.get(folder) or _first_below(folder, filed, rules)

    @cached_property
    def _named(self) -> tuple[list[str], dict[str, Rule]]:
        """Where there are rules that name just one path."""
        rules: dict[str, Rule] = {}
        for folder, filed in self._by_folder.items():
            for pattern, rule in filed:
                if not pattern.rest:
                    rules.setdefault(folder, rule)
        return sorted(rules), rules

    @cached_property
    def _filed(self) -> tuple[list[str], dict[str, Rule], dict[str, Rule]]:
        """Where there are rules at all, and where there are some that reach further down."""
        rules: dict[str, Rule] = {}
        spreading: dict[str, Rule] = {}
        for pattern, rule in self._entries:
            folder = key(pattern.folder, self._fold)
            rules.setdefault(folder, rule)
            if pattern.rest:
                spreading.setdefault(folder, rule)
        return sorted(rules), rules, spreading


def _first_below(folder: str, filed: Sequence[str], rules: Mapping[str, Rule]) -> Rule | None:
    from bisect import bisect_left

    start = folder.rstrip("/") + "/"
    at = bisect_left(filed, start)
    return rules[filed[at]] if at < len(filed) and filed[at].startswith(start) else None


@lru_cache(maxsize=1024)
def _lineage(path: str) -> tuple[str, ...]:
    """The path and every folder above it."""
    folders, end = [path], len(path)
    while (end := path.rfind("/", 0, end)) > 0:
        folders.append(path[:end])
    return (*folders, "/") if len(path) > 1 else ("/",)


def _from(folder: str, path: str) -> str:
    return path[len(folder) :].lstrip("/")


def both_ways(
    entries: Sequence[tuple[PathPattern, Rule]], real: Callable[[str], str], followed: Callable[[Rule], bool]
) -> list[tuple[PathPattern, Rule]]:
    """The entries, and those to be followed again under the real name of their folder where that is another."""
    out = list(entries)
    targets: dict[str, str] = {}
    for pattern, rule in entries:
        if not followed(rule):
            continue
        if (target := targets.get(pattern.folder)) is None:
            target = targets[pattern.folder] = real(pattern.folder)
        if target != pattern.folder:
            out.append((PathPattern(target, pattern.rest, pattern.floating), rule))
    return out
