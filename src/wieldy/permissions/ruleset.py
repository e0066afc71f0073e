"""Rules from several sources, filed so that one call looks only at the few that could concern it."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cached_property, lru_cache, partial
from typing import Any, Generic, TypeAlias, TypeVar

from msgspec import Struct

from wieldy.core.decision import Behavior
from wieldy.permissions import rules as domain
from wieldy.permissions.paths import PathResolver, ResolvedPath, below, key
from wieldy.permissions.risk_levels import as_text
from wieldy.permissions.rules import CHOICES, PATH_RULES_OF, CommandPattern, PathPattern, Rule, resolve, wildcard

T = TypeVar("T")

WIDTH = 3
# So few are looked for one by one.
FEW = 16
# In a longer text nearly every piece occurs, so looking for each needle is no slower than cutting the text up.
LONGEST = 400


class Needles(Generic[T]):
    """Things that each need a piece of text, filed by the three letters of it that the fewest others need."""

    def __init__(self, entries: Iterable[tuple[str, T]]) -> None:
        self._entries = list(entries)
        self._short = [at for at, (needle, _) in enumerate(self._entries) if len(needle) < WIDTH]

    def __bool__(self) -> bool:
        return bool(self._entries)

    def held_by(self, text: str) -> list[T]:
        """What needs nothing that the text does not hold, in the order given."""
        if len(self._entries) <= FEW or len(text) > LONGEST:
            return [thing for needle, thing in self._entries if needle in text]
        near = self._short
        if self._any_piece.search(text):
            there = self._by_piece
            hits = {piece for at in range(len(text) - WIDTH + 1) if (piece := text[at : at + WIDTH]) in there}
            near = sorted({*near, *(at for piece in hits for at in there[piece])})
        return [thing for at in near for needle, thing in (self._entries[at],) if needle in text]

    @cached_property
    def _by_piece(self) -> dict[str, list[int]]:
        common = Counter(piece for needle, _ in self._entries for piece in _pieces(needle))
        filed: dict[str, list[int]] = {}
        for at, (needle, _) in enumerate(self._entries):
            if len(needle) >= WIDTH:
                rarest = min(_pieces(needle), key=lambda piece: (common[piece], piece))
                filed.setdefault(rarest, []).append(at)
        return filed

    @cached_property
    def _any_piece(self) -> re.Pattern[str]:
        """Finds out in one go whether there is any piece at all; mostly there is none."""
        endings: dict[str, list[str]] = {}
        for piece in self._by_piece:
            endings.setdefault(piece[0], []).append(re.escape(piece[1:]))
        return re.compile(
            "|".join(f"{re.escape(first)}(?:{'|'.join(rest)})" for first, rest in endings.items()) or "(?!)"
        )


def _pieces(text: str) -> set[str]:
    return {text[at : at + WIDTH] for at in range(len(text) - WIDTH + 1)}


NO_RULES: Sequence[Rule] = ()
# The same few parts, such as `cd src` or `head -20`, return in most commands of a session.
REMEMBERED = 512


class CommandIndex:
    """The command rules of any behaviour."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._exact: dict[str, list[Rule]] = {}
        self._by_word: dict[str, list[tuple[CommandPattern, Rule]]] = {}
        loose: list[tuple[str, tuple[CommandPattern, Rule]]] = []
        for rule in rules:
            if rule.kind != "command":
                continue
            pattern = CommandPattern(rule.specifier or "")
            if pattern.shape == "exact":
                self._exact.setdefault(pattern.literal, []).append(rule)
            elif pattern.first_word is not None:
                self._by_word.setdefault(pattern.first_word, []).append((pattern, rule))
            else:
                loose.append((pattern.needle, (pattern, rule)))
        self._loose = Needles(loose)
        self.covering = lru_cache(maxsize=REMEMBERED)(self._covering)

    @cached_property
    def forbidden_programs(self) -> frozenset[str]:
        """The programs that rules which deny or ask begin with."""
        exact = (literal.split()[:1] for literal, rules in self._exact.items() if _forbids(rules))
        fixed = ([word] for word, filed in self._by_word.items() if _forbids(rule for _, rule in filed))
        return frozenset(word for words in (*exact, *fixed) for word in words)

    @property
    def names_any(self) -> bool:
        """Whether any rule names a command with no pattern in it."""
        return bool(self._exact)

    def exactly(self, text: str) -> Sequence[Rule]:
        """The rules that name this very command, with no pattern in them."""
        return self._exact.get(text.strip(), NO_RULES)

    def _covering(self, text: str) -> Sequence[Rule]:
        """The rules that cover one simple command, those that name it first."""
        words = text.split(maxsplit=1)
        near = [*self._by_word.get(words[0] if words else "", ()), *self._loose.held_by(text)]
        exact = self._exact.get(text, NO_RULES)
        return [*exact, *(rule for pattern, rule in near if pattern.matches(text))] if near else exact


def _forbids(rules: Iterable[Rule]) -> bool:
    return any(rule.behavior != "allow" for rule in rules)


REMEMBERED_PATH_INDEX = 1024


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
        self.matching = lru_cache(maxsize=REMEMBERED_PATH_INDEX)(self._matching)

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


Covering: TypeAlias = Sequence[Sequence[Rule]]


class PathRules:
    """The path rules of all behaviours, compiled once for each kind of volume."""

    def __init__(self, rules: Iterable[Rule], paths: PathResolver) -> None:
        self._rules = tuple(rule for rule in rules if rule.kind == "path")
        self._paths = paths
        self._whole: dict[bool, PathIndex] = {}
        self._forbidding: dict[tuple[str, bool], PathIndex] = {}

    @cached_property
    def forbidden(self) -> frozenset[str]:
        """Which of Read and Edit have rules that deny."""
        return frozenset(rule.subject for rule in self._rules if rule.behavior == "deny")

    def covering(self, seen: ResolvedPath) -> Covering:
        """For each name of a path, the rules that cover it."""
        index = self._whole.get(seen.fold)
        if index is None:
            index = self._whole[seen.fold] = PathIndex(self._entries, seen.fold)
        return [index.matching(view) for view in seen.views]

    def names(self, path: str, seen: ResolvedPath) -> bool:
        """Whether a rule that allows writing names this very file, by its path or by its name, with no pattern in it."""
        rules = (rule for rules in self.covering(seen) for rule in rules)
        allowing = (rule for rule in rules if rule.behavior == "allow" and rule.subject == "Edit")
        patterns = (pattern_of(rule, self._paths) for rule in allowing)
        return any(path == one.literal or os.path.basename(path) == one.plain_name for one in patterns)

    def surely_inside(self, seen: ResolvedPath) -> Rule | None:
        """A deny rule that names one path inside a folder."""
        for subject in ("Edit", "Read"):
            if subject in self.forbidden:
                index = self._denying(subject, seen.fold)
                for view in seen.views:
                    if (rule := index.surely_inside(view)) is not None:
                        return rule
        return None

    def perhaps_inside(self, subject: str, seen: ResolvedPath) -> Rule | None:
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


def pattern_of(rule: Rule, paths: PathResolver, home: str | None = None) -> PathPattern:
    """What a path rule's specifier stands for in a workspace."""
    return resolve(
        rule.specifier or "", rule.behavior, cwd=paths.root, home=home or paths.home, folder=rule.origin.folder
    )


WHOLE_SERVER = re.compile(r"mcp__[^*]+__\*")


class RuleSet(Struct, frozen=True):
    """Every rule in force, each with where it is written. `broken` says why nothing may be allowed unasked."""

    rules: tuple[Rule, ...] = ()
    broken: str | None = None

    def plus(self, *rules: Rule) -> RuleSet:
        """These rules and more."""
        return RuleSet((*self.rules, *rules), self.broken)

    def of(self, behavior: Behavior) -> tuple[Rule, ...]:
        """The rules of one behaviour."""
        return tuple(rule for rule in self.rules if rule.behavior == behavior)


class ToolRules:
    """The rules of one behaviour, by what they are about."""

    def __init__(self, rules: Iterable[Rule], behavior: Behavior) -> None:
        self._rules = tuple(rules)
        self.behavior: Behavior = behavior
        self._by_tool: dict[str, Rule | None] = {}

    def for_tool(self, name: str) -> Rule | None:
        """A rule about the tool as such. `Read` and `Edit` stand for all tools that read or edit."""
        if name not in self._by_tool:
            self._by_tool[name] = self._find_for_tool(name)
        return self._by_tool[name]

    def _find_for_tool(self, name: str) -> Rule | None:
        exact, globs = self._tools
        for candidate in (name, PATH_RULES_OF.get(name) if self.behavior != "allow" else None, *_servers(name)):
            if candidate is not None and candidate in exact:
                return exact[candidate]
        return next((rule for pattern, rule in globs if fnmatchcase(name, pattern)), None)

    def for_host(self, host: str) -> Rule | None:
        """A rule that covers a host."""
        exact, below, loose = self._domains
        if (found := exact.get(host)) is not None:
            return found
        rest = host
        while "." in rest:
            rest = rest.partition(".")[2]
            if (found := below.get(rest)) is not None:
                return found
        return next((rule for rule in loose if domain.matches(rule.specifier or "", host)), None)

    def looks_at_input(self, tool: str) -> bool:
        """Whether any rule speaks of a parameter of this tool."""
        return tool in self._inputs

    def for_input(self, tool: str, input: Mapping[str, Any]) -> Rule | None:
        """A rule about a parameter of the call, or about what it picks."""
        for rule in self._inputs.get(tool, ()):
            specifier = rule.specifier or ""
            if rule.kind == "choice":
                values = [as_text(input[name]) for name in CHOICES[tool] if name in input]
                covers = CommandPattern(specifier).matches
            else:
                name, _, wanted = specifier.partition(":")
                values = [as_text(input[name])] if name in input else []
                covers = partial(wildcard, wanted)
            if any(value is not None and covers(value) for value in values):
                return rule
        return None

    @cached_property
    def reaches_commands(self) -> bool:
        """Whether any rule could be about a part of a command, or about a file or host that one touches."""
        kinds, subjects = ("command", "path", "domain"), ("Bash", "Read", "Edit", "WebFetch")
        return any(rule.kind in kinds or rule.subject in subjects for rule in self._rules)

    @cached_property
    def _tools(self) -> tuple[dict[str, Rule], list[tuple[str, Rule]]]:
        exact: dict[str, Rule] = {}
        globs: list[tuple[str, Rule]] = []
        for rule in self._rules:
            if rule.kind != "tool":
                continue
            name = rule.subject
            if WHOLE_SERVER.fullmatch(name):
                name = name[:-3]
            if "*" in name:
                globs.append((name, rule))
            else:
                exact.setdefault(name, rule)
        return exact, globs

    @cached_property
    def _domains(self) -> tuple[dict[str, Rule], dict[str, Rule], list[Rule]]:
        exact: dict[str, Rule] = {}
        below: dict[str, Rule] = {}
        loose: list[Rule] = []
        for rule in self._rules:
            if rule.kind != "domain":
                continue
            host = (rule.specifier or "").removeprefix("domain:").strip().rstrip(".").lower()
            if not host.isascii() or "*" in host.removeprefix("*."):
                loose.append(rule)
            elif host.startswith("*."):
                below.setdefault(host[2:], rule)
            else:
                exact.setdefault(host, rule)
        return exact, below, loose

    @cached_property
    def _inputs(self) -> dict[str, list[Rule]]:
        found: dict[str, list[Rule]] = {}
        for rule in self._rules:
            if rule.kind in ("parameter", "choice"):
                found.setdefault(rule.subject, []).append(rule)
        return found


class RuleIndex(Struct, frozen=True):
    """One shelf for each behaviour; rules about commands and paths are looked up for all behaviours at once."""

    deny: ToolRules
    ask: ToolRules
    allow: ToolRules
    commands: CommandIndex
    paths: PathRules


def filed(rules: RuleSet, paths: PathResolver) -> RuleIndex:
    """The rules of a workspace, put where they are looked for."""
    return RuleIndex(
        ToolRules(rules.of("deny"), "deny"),
        ToolRules(rules.of("ask"), "ask"),
        ToolRules(rules.of("allow"), "allow"),
        CommandIndex(rules.rules),
        PathRules(rules.rules, paths),
    )


def _servers(name: str) -> Iterable[str]:
    """For `mcp__a__b`, the names that stand for its whole server."""
    if not name.startswith("mcp__"):
        return
    at = name.find("__", 5)
    while at > 0:
        yield name[:at]
        at = name.find("__", at + 1)
