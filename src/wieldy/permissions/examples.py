"""Rules that carry examples of what they match and what they do not."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase

from wieldy.core.leads import plain
from wieldy.permissions import domain
from wieldy.permissions.command import CommandPattern, wildcard
from wieldy.permissions.domain import host_of
from wieldy.permissions.path_index import PathIndex
from wieldy.permissions.path_rules import pattern_of
from wieldy.permissions.paths import Paths
from wieldy.permissions.rule import Rule


def failing(rule: Rule, paths: Paths) -> list[str]:
    """What a rule's examples promise and the rule does not keep, in words."""
    return list(_broken_promises(rule, paths))


def _broken_promises(rule: Rule, paths: Paths) -> Iterator[str]:
    for example in rule.examples.match:
        if not matches_example(rule, example, paths):
            yield f"should match `{example}` and does not"
    for example in rule.examples.not_match:
        if matches_example(rule, example, paths):
            yield f"should not match `{example}` and does"


def matches_example(rule: Rule, example: str, paths: Paths) -> bool:
    """Whether a rule covers one simple command, path, URL, tool name or parameter value."""
    specifier = rule.specifier or ""
    match rule.kind:
        case "command":
            return CommandPattern(specifier).matches(example.strip())
        case "path":
            expanded = paths.home + example[1:] if example.startswith("~/") else example
            path = plain(expanded if expanded.startswith("/") else f"{paths.root}/{expanded}")
            return PathIndex([(pattern_of(rule, paths), rule)]).find(path) is not None
        case "domain":
            host = host_of(example)
            return host is not None and domain.matches(specifier, host)
        case "parameter":
            name, _, wanted = specifier.partition(":")
            return wildcard(wanted, example.removeprefix(f"{name}:"))
        case "choice":
            return CommandPattern(specifier).matches(example)
    return fnmatchcase(example, rule.subject)
