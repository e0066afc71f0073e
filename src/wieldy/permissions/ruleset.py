"""Rules from several sources, filed so that one call looks only at the few that could concern it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from functools import cached_property, partial
from typing import Any

from wieldy.core.decision import Behavior
from wieldy.core.record import record
from wieldy.permissions import domain
from wieldy.permissions.command import CommandPattern, wildcard
from wieldy.permissions.command_index import CommandIndex
from wieldy.permissions.levels import as_text
from wieldy.permissions.path_rules import PathRules
from wieldy.permissions.paths import Paths
from wieldy.permissions.rule import CHOICES, PATH_RULES_OF, Rule
from wieldy.schema.pattern import pattern

WHOLE_SERVER = pattern(r"mcp__[^*]+__\*")


@record
class RuleSet:
    """Every rule in force, each with where it is written. `broken` says why nothing may be allowed unasked."""

    rules: tuple[Rule, ...] = ()
    broken: str | None = None

    def plus(self, *rules: Rule) -> RuleSet:
        """These rules and more."""
        return RuleSet((*self.rules, *rules), self.broken)

    def of(self, behavior: Behavior) -> tuple[Rule, ...]:
        """The rules of one behaviour."""
        return tuple(rule for rule in self.rules if rule.behavior == behavior)


class Shelf:
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


@record
class Shelves:
    """One shelf for each behaviour; rules about commands and paths are looked up for all behaviours at once."""

    deny: Shelf
    ask: Shelf
    allow: Shelf
    commands: CommandIndex
    paths: PathRules


def filed(rules: RuleSet, paths: Paths) -> Shelves:
    """The rules of a workspace, put where they are looked for."""
    return Shelves(
        Shelf(rules.of("deny"), "deny"),
        Shelf(rules.of("ask"), "ask"),
        Shelf(rules.of("allow"), "allow"),
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
