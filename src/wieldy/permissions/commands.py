"""Judges a shell command: every simple command in it on its own, the whole as strictly as its strictest part."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING

from wieldy.core.decision import Behavior, Reason
from wieldy.core.effects import Effect, Fetches, Reads, Writes
from wieldy.core.visible_text import hidden_characters, visible
from wieldy.permissions import indirect_writes as arrivals
from wieldy.permissions import suggest
from wieldy.permissions.embedded_code import code_of, commands_of, named_in, text_of
from wieldy.permissions.files import FileAccess, FilePolicy, NetworkPolicy
from wieldy.permissions.findings import DecisionContext, Finding, by_rule
from wieldy.permissions.rules import Rule, without_git_options
from wieldy.permissions.ruleset import CommandIndex, RuleIndex

if TYPE_CHECKING:
    from wieldy.shell.policy.analysis import Analysis
    from wieldy.shell.policy.catastrophic import Danger
    from wieldy.shell.policy.command_part import CommandPart
    from wieldy.shell.policy.words import Word


_BETWEEN_COMMANDS = re.compile(r"[;&|\n(){}!]+")
_BESIDE_VARIABLES = re.compile(r"[\s\"'${}:@,]+")
_LOCAL_ADDRESS = re.compile(r"^file:(//[^/]*)?(?=/)", re.IGNORECASE)
MOST_WORDS = 24
MOST_MATCHES = 1_000


class ArgumentScanner:
    """Looks through the words of parts whose effects are not all known."""

    def __init__(self, commands: CommandIndex, files: FilePolicy) -> None:
        self._commands = commands
        self._files = files

    def judge(self, part: CommandPart, own: Finding, case: DecisionContext) -> Iterator[Finding]:
        """The questions that its words raise; `own` is what allows the program itself."""
        # A rule that names the program vouches for what it starts; one for all commands, or a mode, does not know it.
        if own.reason is case.cover or own.reason.kind == "mode":
            yield from self._commands_in(part)
        if self._files.forbids_anything:
            for path in _paths(part):
                if (rule := self._files.forbidding(path)) is not None:
                    yield Finding(by_rule(rule, f"may forbid what is done with {path}", part.text, "ask"))

    def _commands_in(self, part: CommandPart) -> Iterator[Finding]:
        programs = self._commands.forbidden_programs
        if not programs:
            return
        if part.argv and part.program is None:
            yield Finding(Reason("analysis", "ask", f"{part.why}, and rules forbid some programs", part=part.text))
            return
        texts = (text for code in code_of(part) for text in named_in(code, programs))
        for text in chain(_command_texts(commands_of(part), programs), texts):
            rule = next((rule for rule in self._commands.covering(text) if rule.behavior != "allow"), None)
            if rule is not None:
                yield Finding(by_rule(rule, f"may forbid what `{part.program or part.text}` starts", part.text, "ask"))
                return


def _command_texts(words: tuple[Word, ...], programs: Collection[str]) -> Iterator[str]:
    """What could be a command of one of these programs: from a word on, or inside a word that holds several."""
    from wieldy.shell.policy.command_part import unquoted_text

    for at, word in enumerate(words):
        text = text_of(word)
        if os.path.basename(text) in programs:
            yield unquoted_text(words[at : at + MOST_WORDS])
        # An option may be given a command with `=`, and `!` leads out of an editor into a shell.
        for value in dict.fromkeys((text, text.partition("=")[2], text.rpartition("=")[2])):
            for piece in _BETWEEN_COMMANDS.split(value):
                program, _, rest = piece.strip().partition(" ")
                if os.path.basename(program) in programs and (rest or value != text):
                    yield f"{os.path.basename(program)} {rest}".strip()


def _paths(part: CommandPart) -> Iterator[str]:
    """Where its words may lead: each as it stands, and behind `=`, `@` and `file://`, as options spell files."""
    for word in part.argv[1:]:
        for name in _names(word):
            for folder in ("/",) if name.startswith("/") else part.cwds if name else ():
                path = os.path.normpath(os.path.join(folder, name))
                yield from _matching(path) if word.kind == "glob" else (path,)


def _names(word: Word) -> Collection[str]:
    if word.dynamic:
        # A default, as in `${x:-file}`, and what stands beside the variable.
        return {name.lstrip("-=+?"): None for name in _BESIDE_VARIABLES.split(word.source)}
    _, equals, value = word.text.rpartition("=")
    names = (_local(value),) if equals else ()
    # The name of an option is no file's.
    return names if word.text.startswith("-") else (_local(word.text), *names)


def _local(name: str) -> str:
    name = name.removeprefix("@")
    return _LOCAL_ADDRESS.sub("", name) if ":" in name else name


def _matching(path: str) -> Iterator[str]:
    """The files that a pattern stands for now."""
    from glob import iglob

    yield from islice(iglob(path.replace("[^", "[!")), MOST_MATCHES)


# These run whatever they are given, so only a rule that names the very command may allow them.
RUNS_ANYTHING = frozenset({"watch", "setsid", "ionice", "flock"})
FORBIDDING: tuple[Behavior, ...] = ("deny", "ask")


class CommandPolicy:
    """The command policy."""

    def __init__(
        self,
        shelves: RuleIndex,
        files: FilePolicy,
        addresses: NetworkPolicy,
        analyze: Callable[[str], Analysis],
    ) -> None:
        self._deny, self._ask, self._allow = shelves.deny, shelves.ask, shelves.allow
        self._rules = shelves.commands
        self._files = files
        self._addresses = addresses
        self._analyze = analyze
        self._mentions = ArgumentScanner(shelves.commands, files)

    def judge(self, command: str, case: DecisionContext) -> Iterator[Finding]:
        """What is found about a command and each of its parts."""
        analysis = self._analyze(command)
        exact = self._rules.exactly(command)
        named = _first(exact, "allow")
        for shelf in (self._deny, self._ask):
            if (rule := _first(exact, shelf.behavior) or shelf.for_tool("Bash")) is not None:
                yield Finding(by_rule(rule))
        yield from self._dangers(analysis, named, case)
        yield from self._unreadable(command, analysis, named, case)
        for part in analysis.parts:
            yield from self._part(part, named, case)

    def effects_of(self, command: str) -> Iterator[Effect]:
        """What the parts of a command touch."""
        for part in self._analyze(command).parts:
            yield from part.effects

    def _dangers(self, analysis: Analysis, named: Rule | None, case: DecisionContext) -> Iterator[Finding]:
        for danger in analysis.catastrophic:
            if danger.behavior == "deny":
                yield Finding(Reason("guard", "deny", f"{danger.why}; no mode or rule lifts this", part=danger.text))
            elif not self._excused(danger, named, case):
                yield Finding(Reason("guard", "ask", danger.why, part=danger.text))

    def _excused(self, danger: Danger, named: Rule | None, case: DecisionContext) -> bool:
        if named is not None or _first(self._rules.exactly(danger.text), "allow") is not None:
            return True
        return danger.only_if_dirty and case.clean_tree

    def _unreadable(
        self, command: str, analysis: Analysis, named: Rule | None, case: DecisionContext
    ) -> Iterator[Finding]:
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
        elif case.mode.accepts_all and not (self._deny.reaches_commands or self._ask.reaches_commands):
            yield Finding(Reason("mode", "allow", f"{case.mode.name} mode"))
        else:
            yield Finding(Reason("analysis", "ask", text))

    def _part(self, part: CommandPart, named: Rule | None, case: DecisionContext) -> Iterator[Finding]:
        covering = self._covering(part)
        for behavior in FORBIDDING if any(covering.values()) else ():
            rule = next((rule for rules in covering.values() if (rule := _first(rules, behavior)) is not None), None)
            if rule is not None:
                yield Finding(by_rule(rule, part=part.text))
        own, exact = self._allowance(part, covering, named, case)
        yield own
        if not part.known and not exact:
            yield from self._mentions.judge(part, own, case)
        if part.program in arrivals.FILLING and not exact:
            yield from arrivals.untold(part, self._files)
        filled = arrivals.named(part, self._files) if arrivals.possible(part) else ()
        for effect in (*part.effects, *filled):
            if isinstance(effect, (Reads, Writes)):
                redirected = effect in part.redirect_effects
                swept = isinstance(effect, Writes) or effect.path in part.bulk_reads
                spelled_out = named is not None or (exact and not redirected)
                yield self._files.judge(FileAccess(effect, part.text, own, spelled_out, redirected, swept), case)
            elif isinstance(effect, Fetches):
                yield from self._addresses.judge(effect.url, case, part.text, own)

    def _covering(self, part: CommandPart) -> dict[str, Sequence[Rule]]:
        """For every way to write a part, the rules that cover it."""
        texts = dict.fromkeys((part.text, *part.allow_texts, *part.deny_texts))
        if part.argv and part.argv[0].text.endswith("git"):
            plainer = without_git_options([word.text or word.source for word in part.argv])
            texts |= {plainer: None} if plainer else {}
        return {text: self._rules.covering(text) for text in texts}

    def _allowance(
        self, part: CommandPart, covering: Mapping[str, Sequence[Rule]], named: Rule | None, case: DecisionContext
    ) -> tuple[Finding, bool]:
        """What allows the command itself, and whether by its full text; or the question it leaves."""
        if case.mode.reads_only and not part.read_only:
            why = part.why or "it may change something"
            return Finding(Reason("mode", "deny", f"plan mode changes nothing, and {why}", part=part.text)), False
        exact = named or self._naming(part)
        if exact is not None:
            return Finding(by_rule(exact, part=part.text)), True
        if not case.careful and (reason := _harmless(part)) is not None:
            return Finding(reason), False
        if (rule := _pattern_rule(part, covering)) is not None:
            return Finding(by_rule(rule, part=part.text)), False
        if case.mode.accepts_all:
            return Finding(Reason("mode", "allow", f"{case.mode.name} mode", part=part.text)), False
        if case.cover is not None:
            return Finding(case.cover), False
        reason = Reason("default", "ask", part.why or "no rule covers it", part=part.text)
        return Finding(reason, _remedy(part)), False

    def _naming(self, part: CommandPart) -> Rule | None:
        for text in _texts(part) if self._rules.names_any else ():
            if (rule := _first(self._rules.exactly(text), "allow")) is not None:
                return rule
        return None


def _first(rules: Sequence[Rule], behavior: Behavior) -> Rule | None:
    for rule in rules:
        if rule.behavior == behavior:
            return rule
    return None


def _pattern_rule(part: CommandPart, covering: Mapping[str, Sequence[Rule]]) -> Rule | None:
    if _needs_exact(part):
        return None
    for index, text in enumerate(part.allow_texts):
        for rule in covering[text]:
            if rule.behavior == "allow" and (index == 0 or not _grows(part) or _open_ended(rule.specifier or "")):
                return rule
    return None


def _grows(part: CommandPart) -> bool:
    """Whether further words are added when it runs, so that its text says only how it begins."""
    return "xargs" in part.wrappers


def _open_ended(specifier: str) -> bool:
    return specifier.endswith("*") and not specifier.endswith("\\*")


def _remedy(part: CommandPart) -> str | None:
    if not part.allow_texts:
        return None
    found = suggest.for_command(part.program, part.allow_texts[-1], exact=_needs_exact(part))
    if _needs_exact(part) or (_grows(part) and not (found or "").endswith("*)")):
        return suggest.for_command(part.program, part.allow_texts[0], exact=True)
    return found


def _needs_exact(part: CommandPart) -> bool:
    return part.exact_rule or not RUNS_ANYTHING.isdisjoint(part.wrappers)


def _texts(part: CommandPart) -> tuple[str, ...]:
    """The texts an allow rule may name: with and without harmless wrappers, but never without one that runs anything."""
    return part.allow_texts[:1] if _needs_exact(part) or _grows(part) else part.allow_texts


def _harmless(part: CommandPart) -> Reason | None:
    if part.read_only:
        return Reason("analysis", "allow", "it only reads", part=part.text)
    if part.program_read_only:
        return Reason("analysis", "allow", "apart from its redirection it only reads", part=part.text)
    if not part.argv and part.known:
        return Reason("analysis", "allow", "it runs no program", part=part.text)
    return None
