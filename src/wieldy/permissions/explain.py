"""The permission engine in words: what would be decided and why, which rules there are, what they promise, what would change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any

from msgspec import Struct

from wieldy.core.call import PlannedCall
from wieldy.core.decision import STRICTNESS, Behavior, Decision, Opinion, Reason
from wieldy.core.effects import Effect, Fetches, Opaque, Reads, Runs, Writes
from wieldy.core.realpath import plain
from wieldy.core.visible_text import one_line
from wieldy.permissions import rules as domain
from wieldy.permissions.decide import Policy
from wieldy.permissions.paths import PathResolver
from wieldy.permissions.rules import CommandPattern, Rule, host_of, wildcard
from wieldy.permissions.ruleset import PathIndex, pattern_of


def failing(rule: Rule, paths: PathResolver) -> list[str]:
    """What a rule's examples promise and the rule does not keep, in words."""
    return list(_broken_promises(rule, paths))


def _broken_promises(rule: Rule, paths: PathResolver) -> Iterator[str]:
    for example in rule.examples.match:
        if not matches_example(rule, example, paths):
            yield f"should match `{example}` and does not"
    for example in rule.examples.not_match:
        if matches_example(rule, example, paths):
            yield f"should not match `{example}` and does"


def matches_example(rule: Rule, example: str, paths: PathResolver) -> bool:
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


class ExplainedPart(Struct, frozen=True):
    """One simple command that was found in a call, what it touches, and why."""

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
        """For programs."""
        return {
            "tool": self.tool,
            "behavior": self.decision.behavior,
            "reasons": [_reason_json(reason) for reason in self.decision.reasons],
            "suggestions": list(self.decision.suggestions),
            "effects": list(self.effects),
            "parts": [
                {
                    "text": part.text,
                    "program": part.program,
                    "effects": list(part.effects),
                    "read_only": part.read_only,
                    "why": part.why,
                    "via": list(part.via),
                }
                for part in self.parts
            ],
            "problems": list(self.problems),
        }

    def lines(self) -> list[str]:
        """For people."""
        out = [f"{self.decision.behavior.upper()} {self.tool}"]
        for part in self.parts:
            kept = "read-only" if part.read_only else f"not read-only: {part.why}" if part.why else "not read-only"
            through = f", through {' '.join(part.via)}" if part.via else ""
            out.append(f"  command  {one_line(part.text)}  ({kept}{through})")
            out += [f"             {one_line(effect)}" for effect in part.effects]
        if not self.parts:
            out += [f"  effect   {one_line(effect)}" for effect in self.effects]
        out += [f"  problem  {one_line(problem)}" for problem in self.problems]
        out += [f"  {reason.behavior:<7}  {one_line(_reason_line(reason))}" for reason in self.decision.reasons]
        if self.decision.suggestions:
            out.append("  to allow it: " + ", ".join(self.decision.suggestions))
        return out


def explain(policy: Policy, plan: PlannedCall, opinions: Sequence[Opinion] = ()) -> Explanation:
    """What would be decided about a call, with every simple command found in it."""
    parts: list[ExplainedPart] = []
    problems: list[str] = []
    for effect in plan.effects:
        if isinstance(effect, Runs):
            analysis = policy.analyze(effect.command)
            problems += analysis.problems
            for part in analysis.parts:
                touched = tuple(_effect_line(one) for one in part.effects if not isinstance(one, Runs))
                parts.append(
                    ExplainedPart(part.text, part.program, touched, part.read_only, part.why, tuple(part.wrappers))
                )
    effects = tuple(_effect_line(effect) for effect in plan.effects)
    return Explanation(plan.tool.name, policy.decide(plan, opinions), effects, tuple(parts), tuple(problems))


def _effect_line(effect: Effect) -> str:
    match effect:
        case Reads(path):
            return f"reads {path}"
        case Writes(path):
            return f"writes {path}"
        case Fetches(url):
            return f"talks to {url}"
        case Runs(command):
            return f"runs {command}"
        case Opaque():
            return "touches who knows what"


def _reason_line(reason: Reason) -> str:
    return str(reason).partition(": ")[2]


def _reason_json(reason: Reason) -> dict[str, Any]:
    return {
        "kind": reason.kind,
        "behavior": reason.behavior,
        "text": reason.text,
        "rule": reason.rule,
        "file": reason.file,
        "line": reason.line,
        "part": reason.part,
    }


def listing(rules: Iterable[Rule]) -> list[dict[str, Any]]:
    """Every rule with where it is written, strictest first."""
    ordered = sorted(rules, key=lambda rule: -STRICTNESS[rule.behavior])
    return [
        {
            "behavior": rule.behavior,
            "rule": rule.text,
            "layer": rule.origin.layer,
            "file": rule.origin.file,
            "line": rule.origin.line,
        }
        for rule in ordered
    ]


def listing_lines(rules: Iterable[Rule]) -> list[str]:
    """Every rule on a line, for people."""
    rows = listing(rules)
    width = max((len(one_line(row["rule"])) for row in rows), default=0)
    layers = max((len(row["layer"]) for row in rows), default=0)
    return [f"{row['behavior']:<5}  {one_line(row['rule']):<{width}}  {_place(row, layers)}".rstrip() for row in rows]


def _place(row: dict[str, Any], width: int) -> str:
    file, line = row["file"], row["line"]
    return f"{row['layer']:<{width}}  {file or ''}{f':{line}' if file and line else ''}"


class ExampleResult(Struct, frozen=True):
    """How a rule did on its own examples."""

    rule: Rule
    examples: int
    failures: tuple[str, ...]


def try_examples(policy: Policy, left_out: Sequence[Rule] = ()) -> list[ExampleResult]:
    """Every rule that carries examples, put to them; `left_out` are those that have failed before."""
    return [
        ExampleResult(rule, len(rule.examples.match) + len(rule.examples.not_match), tuple(failing(rule, policy.paths)))
        for rule in (*policy.rules.rules, *left_out)
        if rule.examples.match or rule.examples.not_match
    ]


class ChangedDecision(Struct, frozen=True):
    """A past call that would now be decided otherwise."""

    plan: PlannedCall
    before: Behavior
    now: Decision

    @property
    def widened(self) -> bool:
        """Whether more would be allowed than was."""
        return STRICTNESS[self.now.behavior] < STRICTNESS[self.before]


def replay(policy: Policy, past: Iterable[tuple[PlannedCall, Behavior]]) -> Iterator[ChangedDecision]:
    """Past calls against the rules in force: only those that would come out differently, in order."""
    for plan, before in past:
        now = policy.decide(plan)
        if now.behavior != before:
            yield ChangedDecision(plan, before, now)
