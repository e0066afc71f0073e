"""Judges a shell command: every simple command in it on its own, the whole as strictly as its strictest part."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from wieldy.core.decision import Behavior, Reason
from wieldy.core.effect import Effect, Fetches, Reads, Writes
from wieldy.permissions import suggest
from wieldy.permissions.addresses import Addresses
from wieldy.permissions.files import Files, Touch
from wieldy.permissions.finding import Case, Finding, by_rule
from wieldy.permissions.rule import Rule
from wieldy.permissions.ruleset import Shelf
from wieldy.permissions.visible import hidden_characters, visible

if TYPE_CHECKING:
    from wieldy.shell.analysis import Analysis, Danger, Part

# These run whatever they are given, so a prefix rule would allow anything: a rule must name the very command.
RUNS_ANYTHING = frozenset({"watch", "setsid", "ionice", "flock"})
# These look at a folder's names and not at what is in its files.
LISTERS = frozenset(
    {"ls", "cd", "pushd", "find", "fd", "du", "tree", "stat", "test", "[", "file", "realpath", "readlink"}
)


class Commands:
    """The command policy."""

    def __init__(
        self,
        deny: Shelf,
        ask: Shelf,
        allow: Shelf,
        files: Files,
        addresses: Addresses,
        analyse: Callable[[str], Analysis],
    ) -> None:
        self._deny, self._ask, self._allow = deny, ask, allow
        self._files = files
        self._addresses = addresses
        self._analyse = analyse

    def judge(self, command: str, case: Case) -> Iterator[Finding]:
        """What is found about a command and each of its parts."""
        analysis = self._analyse(command)
        whole = command.strip()
        named = self._allow.for_exact_command(whole)
        for shelf, behavior in self._strict:
            if (rule := shelf.for_exact_command(whole) or shelf.for_tool("Bash")) is not None:
                yield Finding(by_rule(rule, behavior))
        yield from self._dangers(analysis, named, case)
        yield from self._unreadable(command, analysis, named, case)
        for part in analysis.parts:
            yield from self._part(part, named, case)

    def effects_of(self, command: str) -> Iterator[Effect]:
        """What the parts of a command touch."""
        for part in self._analyse(command).parts:
            yield from part.effects
            yield from part.redirects

    @property
    def _strict(self) -> tuple[tuple[Shelf, Behavior], tuple[Shelf, Behavior]]:
        return (self._deny, "deny"), (self._ask, "ask")

    def _dangers(self, analysis: Analysis, named: Rule | None, case: Case) -> Iterator[Finding]:
        for danger in analysis.catastrophic:
            if danger.blocked:
                yield Finding(Reason("guard", "deny", f"{danger.why}; no mode or rule lifts this", part=danger.text))
            elif self._excused(danger, named, case):
                continue
            else:
                yield Finding(Reason("guard", "ask", danger.why, part=danger.text))

    def _excused(self, danger: Danger, named: Rule | None, case: Case) -> bool:
        if named is not None or self._allow.for_exact_command(danger.text) is not None:
            return True
        return danger.if_dirty and case.clean_tree

    def _unreadable(self, command: str, analysis: Analysis, named: Rule | None, case: Case) -> Iterator[Finding]:
        if named is not None:
            return
        odd = hidden_characters(command)
        if odd:
            yield Finding(Reason("guard", "ask", f"the command contains {odd}", part=visible(command)))
        problems = analysis.problems or (() if analysis.parts else ("there is no command in it",))
        if not problems:
            return
        text = f"the command cannot be understood: {'; '.join(problems)}"
        if case.mode.reads_only:
            yield Finding(Reason("mode", "deny", f"plan mode changes nothing, and {text}"))
        elif (case.mode.accepts_all or case.cover is not None) and not self._deny.has_commands:
            yield Finding(case.cover or Reason("mode", "allow", f"{case.mode.name} mode"))
        else:
            yield Finding(Reason("analysis", "ask", text))

    def _part(self, part: Part, named: Rule | None, case: Case) -> Iterator[Finding]:
        texts = dict.fromkeys((part.rule_text, part.text, *part.deny_texts))
        for shelf, behavior in self._strict:
            rule = next((rule for text in texts if (rule := shelf.for_command(text)) is not None), None)
            if rule is not None:
                yield Finding(by_rule(rule, behavior, part=part.text))
        own, exact = self._allowance(part, named, case)
        yield own
        backing = own.reason if own.behavior == "allow" else None
        redirected = {id(effect) for effect in part.redirects}
        for effect in (*part.effects, *part.redirects):
            if isinstance(effect, Reads | Writes):
                lists = part.program in LISTERS
                touch = Touch(effect, part.text, backing, exact, id(effect) in redirected, lists)
                yield self._files.judge(touch, case)
            elif isinstance(effect, Fetches):
                yield from self._addresses.judge(effect.url, case, part.text, backing)

    def _allowance(self, part: Part, named: Rule | None, case: Case) -> tuple[Finding, bool]:
        """What allows the command itself, whether by its full text, or the question it leaves."""
        if case.mode.reads_only and not part.read_only:
            return Finding(Reason("mode", "deny", f"plan mode changes nothing: {part.why}", part=part.text)), False
        exact = named or self._allow.for_exact_command(part.text)
        if exact is not None:
            return Finding(by_rule(exact, "allow", part=part.text)), True
        if part.read_only and not case.careful:
            return Finding(Reason("analysis", "allow", f"only reads: {part.why}", part=part.text)), False
        if (rule := self._prefix_rule(part)) is not None:
            return Finding(by_rule(rule, "allow", part=part.text)), False
        if case.mode.accepts_all:
            return Finding(Reason("mode", "allow", f"{case.mode.name} mode", part=part.text)), False
        if case.cover is not None:
            return Finding(case.cover), False
        remedy = suggest.for_command(part.program, part.rule_text)
        return Finding(Reason("default", "ask", part.why or "no rule covers it", part=part.text), remedy), False

    def _prefix_rule(self, part: Part) -> Rule | None:
        if part.program in RUNS_ANYTHING or (part.program == "find" and not part.read_only):
            return self._allow.for_exact_command(part.rule_text)
        return self._allow.for_command(part.rule_text)
