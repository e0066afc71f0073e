"""Explains the permission engine to people and programs: decisions, rules, the examples of rules, replayed calls."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec import Struct, to_builtins

from wieldy.core.call import PlannedCall
from wieldy.core.decision import STRICTNESS, Behavior, Decision, Opinion
from wieldy.core.effects import Delegates, Effect, Fetches, Reads, Runs, UsesServer, Writes, only_orders
from wieldy.core.text import escape_to_line
from wieldy.policy.permissions.decide import Policy
from wieldy.policy.permissions.paths import PathResolver
from wieldy.policy.permissions.rules import Rule


class ExplainedPart(Struct, frozen=True):
    """One simple command found in a call, what it touches, and why."""

    text: str
    program: str | None
    effects: tuple[str, ...]
    read_only: bool
    why: str
    via: tuple[str, ...]


class Explanation(Struct, frozen=True):
    """A decision with everything that led to it; nothing was run."""

    tool: str
    decision: Decision
    effects: tuple[str, ...]
    parts: tuple[ExplainedPart, ...]
    problems: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        fields: dict[str, Any] = to_builtins(self)
        return {"tool": fields.pop("tool"), **fields.pop("decision"), **fields}

    def lines(self) -> list[str]:
        """Format the explanation for a terminal."""
        lines = [f"{self.decision.behavior.upper()} {self.tool}"]
        for part in self.parts:
            verdict = "read-only" if part.read_only else f"not read-only: {part.why}" if part.why else "not read-only"
            wrappers = f", through {' '.join(part.via)}" if part.via else ""
            lines.append(f"  command  {escape_to_line(part.text)}  ({verdict}{wrappers})")
            lines += [f"             {escape_to_line(effect)}" for effect in part.effects]
        if not self.parts:
            lines += [f"  effect   {escape_to_line(effect)}" for effect in self.effects]
        lines += [f"  problem  {escape_to_line(problem)}" for problem in self.problems]
        for reason in self.decision.reasons:
            lines.append(f"  {reason.behavior:<7}  {escape_to_line(str(reason).partition(': ')[2])}")
        if self.decision.suggestions:
            lines.append(f"  to allow it: wieldy permissions allow {shlex.join(self.decision.suggestions)}")
        return lines


def explain(policy: Policy, plan: PlannedCall, opinions: Sequence[Opinion] = ()) -> Explanation:
    """Decide about a call without running it, and list every simple command found in it."""
    parts: list[ExplainedPart] = []
    problems: list[str] = []
    for _, analysis in policy.analyses(plan):
        problems += analysis.problems
        for part in analysis.parts:
            effects = tuple(_describe_effect(one) for one in part.effects if not isinstance(one, Runs))
            parts.append(ExplainedPart(part.text, part.program, effects, part.read_only, part.why, part.wrappers))
    effects = tuple(_describe_effect(effect) for effect in plan.effects if not only_orders(effect))
    return Explanation(plan.tool.name, policy.decide(plan, opinions), effects, tuple(parts), tuple(problems))


def _describe_effect(effect: Effect) -> str:
    match effect:
        case Reads(path):
            return f"reads {path}"
        case Writes(path):
            return f"writes {path}"
        case Fetches(url):
            return f"talks to {url}"
        case Runs(command):
            return f"runs {command}"
        case UsesServer(rule_name):
            return f"asks a server: {rule_name}"
        case Delegates():
            return "hands work to a subagent"
        case _:
            return "does what is not known in advance"


def rules_as_json(rules: Iterable[Rule]) -> list[dict[str, Any]]:
    """List every rule with where it is written, strictest first."""
    return [
        {
            "behavior": rule.behavior,
            "rule": rule.text,
            "layer": rule.origin.layer,
            "file": rule.origin.file,
            "line": rule.origin.line,
        }
        for rule in sorted(rules, key=lambda rule: -STRICTNESS[rule.behavior])
    ]


def format_rules(rules: Iterable[Rule]) -> list[str]:
    """Format every rule as a line for a terminal."""
    rows = rules_as_json(rules)
    rule_width = max((len(escape_to_line(row["rule"])) for row in rows), default=0)
    layer_width = max((len(row["layer"]) for row in rows), default=0)
    lines = []
    for row in rows:
        line_number = f":{row['line']}" if row["file"] and row["line"] else ""
        place = f"{row['layer']:<{layer_width}}  {row['file'] or ''}{line_number}"
        lines.append(f"{row['behavior']:<5}  {escape_to_line(row['rule']):<{rule_width}}  {place}".rstrip())
    return lines


class ExampleResult(Struct, frozen=True):
    """How a rule did on its own examples."""

    rule: Rule
    examples: int
    failures: tuple[str, ...]


def check_examples(policy: Policy, left_out: Sequence[Rule] = ()) -> list[ExampleResult]:
    """Check every rule that carries examples; `left_out` are those that failed when the settings were loaded."""
    return [
        ExampleResult(
            rule, len(rule.examples.match) + len(rule.examples.not_match), failed_examples(rule, policy.paths)
        )
        for rule in (*policy.rules.rules, *left_out)
        if rule.examples.match or rule.examples.not_match
    ]


def failed_examples(rule: Rule, paths: PathResolver) -> tuple[str, ...]:
    """Say which of its own examples a rule does not satisfy."""
    missed = [example for example in rule.examples.match if not rule.matches_example(example, paths)]
    matched = [example for example in rule.examples.not_match if rule.matches_example(example, paths)]
    return (
        *(f"should match `{example}` and does not" for example in missed),
        *(f"should not match `{example}` and does" for example in matched),
    )


class ChangedDecision(Struct, frozen=True):
    """A past call that would now be decided otherwise."""

    plan: PlannedCall
    before: Behavior
    now: Decision

    @property
    def widened(self) -> bool:
        """Whether more would be allowed than was."""
        return STRICTNESS[self.now.behavior] < STRICTNESS[self.before]


def replay(
    policy: Policy, past: Iterable[tuple[PlannedCall, Behavior, Sequence[Opinion]]]
) -> Iterator[ChangedDecision]:
    """Decide about past calls again, with the opinions of advisers, and yield those that come out differently."""
    for plan, before, opinions in past:
        now = policy.decide(plan, opinions)
        if now.behavior != before:
            yield ChangedDecision(plan, before, now)
