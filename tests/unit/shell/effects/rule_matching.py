"""A minimal rule matcher for tests of command parts: prefix rules that end at a word boundary."""

from __future__ import annotations

from wieldy.core.effects import Fetches, Reads, Writes
from wieldy.shell.effects.analysis import Analysis, analyze
from wieldy.shell.effects.command_part import CommandPart

HOME = "/home/me"
ROOT = "/home/me/work"


def analysis_of(command: str) -> Analysis:
    return analyze(command, cwd=ROOT, home=HOME, root=ROOT)


def matches(text: str, rule: str) -> bool:
    return text == rule or text.startswith(rule + " ")


def denied(command: str, *rules: str) -> bool:
    return any(matches(text, rule) for part in analysis_of(command).parts for text in part.rules.deny for rule in rules)


def uncovered(command: str, *rules: str) -> list[CommandPart]:
    """The parts that neither an allow rule nor a proof covers, and those that write outside the null device."""
    analysis = analysis_of(command)
    if analysis.problems:
        return list(analysis.parts) or [CommandPart(command, (), None, (), False, False)]
    return [part for part in analysis.parts if not (part.read_only or (_named(part, rules) and not _escapes(part)))]


def _named(part: CommandPart, rules: tuple[str, ...]) -> bool:
    return any(matches(text, rule) for text in part.rules.allow for rule in rules)


def _escapes(part: CommandPart) -> bool:
    return any(isinstance(effect, Writes | Fetches) for effect in part.effects)


def reads(command: str) -> set[str]:
    return {effect.path for effect in analysis_of(command).effects if isinstance(effect, Reads)}


def writes(command: str) -> set[str]:
    return {effect.path for effect in analysis_of(command).effects if isinstance(effect, Writes)}
