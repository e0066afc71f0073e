"""Path rules of one workspace: which of them cover a path under each of its names, and which reach into a folder."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TypeAlias

from wieldy.core.decision import Behavior
from wieldy.permissions.path_index import PathIndex, both_ways
from wieldy.permissions.paths import Paths, Seen
from wieldy.permissions.pattern import PathPattern, resolve
from wieldy.permissions.rule import Rule

Covering: TypeAlias = Sequence[Sequence[Rule]]


class PathRules:
    """The path rules of all behaviours, compiled once for each kind of volume."""

    def __init__(self, rules: Iterable[Rule], paths: Paths) -> None:
        self._rules = tuple(rule for rule in rules if rule.kind == "path")
        self._paths = paths
        self._whole: dict[bool, PathIndex] = {}
        self._forbidding: dict[tuple[str, bool], PathIndex] = {}

    @cached_property
    def forbidden(self) -> frozenset[str]:
        """Which of Read and Edit have rules that deny."""
        return frozenset(rule.subject for rule in self._rules if rule.behavior == "deny")

    def covering(self, seen: Seen) -> Covering:
        """For each name of a path, the rules that cover it."""
        index = self._whole.get(seen.fold)
        if index is None:
            index = self._whole[seen.fold] = PathIndex(self._entries, seen.fold)
        return [index.matching(view) for view in seen.views]

    def names(self, path: str, seen: Seen) -> bool:
        """Whether a rule that allows writing names this very file, by its path or by its name, with no pattern in it."""
        rules = (rule for rules in self.covering(seen) for rule in rules)
        allowing = (rule for rule in rules if rule.behavior == "allow" and rule.subject == "Edit")
        patterns = (pattern_of(rule, self._paths) for rule in allowing)
        return any(path == one.literal or os.path.basename(path) == one.plain_name for one in patterns)

    def surely_inside(self, seen: Seen) -> Rule | None:
        """A deny rule that names one path inside a folder."""
        for subject in ("Edit", "Read"):
            if subject in self.forbidden:
                index = self._denying(subject, seen.fold)
                for view in seen.views:
                    if (rule := index.surely_inside(view)) is not None:
                        return rule
        return None

    def perhaps_inside(self, subject: str, seen: Seen) -> Rule | None:
        """A deny rule that could cover something inside a folder."""
        index = self._denying(subject, seen.fold)
        return next((rule for view in seen.views if (rule := index.perhaps_inside(view)) is not None), None)

    def _denying(self, subject: str, fold: bool) -> PathIndex:
        index = self._forbidding.get((subject, fold))
        if index is None:
            wanted = [entry for entry in self._entries if entry[1].behavior == "deny" and entry[1].subject == subject]
            index = self._forbidding[subject, fold] = PathIndex(wanted, fold)
        return index

    @cached_property
    def _entries(self) -> list[tuple[PathPattern, Rule]]:
        homes = dict.fromkeys((self._paths.home, self._paths.real(self._paths.home)))
        entries = [
            (pattern, rule)
            for rule in self._rules
            for pattern in dict.fromkeys(pattern_of(rule, self._paths, home) for home in homes)
        ]
        # An allow rule must match a link and its target alike, so its folder is never followed for it.
        return both_ways(entries, self._paths.real, lambda rule: rule.behavior != "allow")


def first_of(rules: Iterable[Rule], behavior: Behavior, subject: str) -> Rule | None:
    """The first rule of a behaviour about one subject."""
    return next((rule for rule in rules if rule.behavior == behavior and rule.subject == subject), None)


def pattern_of(rule: Rule, paths: Paths, home: str | None = None) -> PathPattern:
    """What a path rule's specifier stands for in a workspace."""
    return resolve(
        rule.specifier or "", rule.behavior, cwd=paths.root, home=home or paths.home, folder=rule.origin.folder
    )
