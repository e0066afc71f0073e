"""The permission rules of one source: each read on its own, a broken one left out with a word about it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from wieldy.core.decision import Behavior
from wieldy.permissions.origin import Origin
from wieldy.permissions.paths import Paths
from wieldy.permissions.rule import Examples, Rule, RuleProblem, parse
from wieldy.settings.source import Problem, Source

BEHAVIORS: tuple[Behavior, ...] = ("deny", "ask", "allow")


def rules_of(source: Source, paths: Paths, problems: list[Problem], left_out: list[Rule]) -> Iterator[Rule]:
    """The rules a source gives; what is wrong with the others goes to `problems`, those that break their word to `left_out`."""
    for behavior in BEHAVIORS:
        for value, origin in source.items(("permissions", behavior)):
            rule = _rule(value, behavior, origin, problems)
            if rule is None:
                continue
            if _keeps_its_word(rule, paths, problems):
                yield rule
            else:
                left_out.append(rule)


def _rule(value: Any, behavior: Behavior, origin: Origin, problems: list[Problem]) -> Rule | None:
    text, examples = (value, Examples()) if isinstance(value, str) else (value["rule"], _examples(value))
    try:
        rule = parse(text, behavior, origin, examples)
    except RuleProblem as problem:
        problems.append(Problem(f"{behavior} rule left out: {problem}", origin.file, origin.line))
        return None
    if rule.doubt:
        problems.append(Problem(f"{behavior} rule `{rule}`: {rule.doubt}", origin.file, origin.line))
    return rule


def _examples(value: Mapping[str, Any]) -> Examples:
    return Examples(tuple(value.get("match", ())), tuple(value.get("not_match", ())))


def _keeps_its_word(rule: Rule, paths: Paths, problems: list[Problem]) -> bool:
    """A rule that fails its own examples may not allow anything; one that forbids stays in force."""
    from wieldy.permissions.examples import failing

    broken = failing(rule, paths)
    for text in broken:
        kept = "" if rule.behavior == "allow" else "; the rule stays in force"
        problems.append(Problem(f"{rule.behavior} rule `{rule}` {text}{kept}", rule.origin.file, rule.origin.line))
    return not broken or rule.behavior != "allow"
