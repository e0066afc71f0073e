"""The policy for shell commands: every simple command is judged on its own, the whole as strictly as its strictest part."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from msgspec.structs import replace

from wieldy.core.decision import Behavior, Reason
from wieldy.core.effects import Fetches, Reads, Writes
from wieldy.core.text import describe_invisible, escape_invisible
from wieldy.policy.permissions.arguments import ArgumentScanner, CommandLine
from wieldy.policy.permissions.files import FileAccess, FilePolicy, NetworkPolicy
from wieldy.policy.permissions.findings import DecisionContext, Finding, rule_reason
from wieldy.policy.permissions.repository_links import outside_reads
from wieldy.policy.permissions.rules import CommandRule, Rule
from wieldy.policy.permissions.ruleset import RuleIndex
from wieldy.shell.effects.programs.git import repository_folders
from wieldy.shell.effects.programs.interpreters import argument_texts
from wieldy.shell.effects.programs.offers import escalating_option, tested_paths
from wieldy.shell.effects.programs.profiles import profile_of
from wieldy.shell.effects.programs.transfers import linked_paths, list_folder, overwritten, transfers, written_patterns
from wieldy.shell.effects.programs.wrappers import takes_input_arguments
from wieldy.shell.effects.sweeps import UncertainNames, enclosing_folders, find_links, ignore_file_links

if TYPE_CHECKING:
    from wieldy.shell.effects.analysis import Analysis
    from wieldy.shell.effects.command_part import CommandPart
    from wieldy.shell.effects.programs.catastrophic import Danger
    from wieldy.shell.effects.programs.subcommands import OtherSpellings

RESTRICTING: tuple[Behavior, ...] = ("deny", "ask")


class CommandPolicy:
    """Judges the commands a call runs."""

    def __init__(self, rules: RuleIndex, files: FilePolicy, network: NetworkPolicy) -> None:
        self._deny, self._ask = rules.deny, rules.ask
        self._rules = rules.commands
        self._files = files
        self._network = network
        self._arguments = ArgumentScanner(rules.commands, files)

    def judge(self, command: str, analysis: Analysis, context: DecisionContext) -> Iterator[Finding]:
        """Yield what is found about a whole command and each of its parts."""
        for rules in (self._deny, self._ask):
            rule = self._rules.naming(command, rules.behavior) or rules.for_tool("Bash")
            if rule is not None:
                yield Finding(rule_reason(rule))
        exact_rule = self._rules.naming(command, "allow")
        for danger in analysis.catastrophic:
            if danger.behavior == "deny":
                yield Finding(Reason("guard", "deny", f"{danger.why}; no mode or rule lifts this", part=danger.text))
            elif exact_rule is None and not self._is_excused(danger, context):
                yield Finding(Reason("guard", "ask", danger.why, part=danger.text))
        if exact_rule is None:
            yield from self._judge_readability(command, analysis, context)
        line = CommandLine.of(command, analysis)
        for part in analysis.parts:
            yield from self._judge_part(part, line, exact_rule, context)
        yield from self._judge_sweeps(command, analysis, exact_rule, context)
        yield from self._judge_repositories(command, analysis, exact_rule, context)

    def _judge_repositories(
        self, command: str, analysis: Analysis, exact_rule: Rule | None, context: DecisionContext
    ) -> Iterator[Finding]:
        """Judge what git and rg read elsewhere, because of links and names in a repository and of ignore files."""
        if exact_rule is not None or (context.mode.accepts_all and not self._files.denies_anything):
            return
        try:
            for program, folder, path in self._led_elsewhere(analysis):
                access = FileAccess(Reads(path), command, recursive=True)
                finding = self._files.judge(access, context)
                if finding.behavior != "allow":
                    text = f"{finding.reason.text}, and {program} in {folder} may read it"
                    yield replace(finding, reason=replace(finding.reason, text=text))
        except UncertainNames as error:
            yield Finding(Reason("path", "ask", str(error), part=command))

    def _led_elsewhere(self, analysis: Analysis) -> Iterator[tuple[str, str, str]]:
        """The programs, folders and paths of what is read elsewhere. Raises `UncertainNames`."""
        files = self._files.files
        for part in analysis.parts:
            for folder in repository_folders(part):
                yield from ((str(part.program), folder, path) for path in outside_reads(folder, files))
            if profile_of(part.program).quotes_ignore_files:
                searched = (*part.cwds, *(effect.path for effect in part.effects if isinstance(effect, Reads)))
                for folder in enclosing_folders(searched, self._files.is_inside):
                    links = ignore_file_links(folder, files)
                    excludes = outside_reads(folder, files) if files.exists(os.path.join(folder, ".git")) else ()
                    yield from ((str(part.program), folder, path) for path in chain(links, excludes))

    def _judge_sweeps(
        self, command: str, analysis: Analysis, exact_rule: Rule | None, context: DecisionContext
    ) -> Iterator[Finding]:
        """Judge what the symlinks lead to that globs, find and xargs hand to programs."""
        if not analysis.sweeps or (context.mode.accepts_all and not self._files.denies_anything):
            return
        try:
            for link in find_links(analysis.sweeps, self._files.files):
                access = FileAccess(
                    Reads(link),
                    command,
                    exact=exact_rule is not None,
                    recursive=True,
                    as_on_disk=analysis.verdict == "read_only"
                    and all(not profile_of(part.program).reads_history for part in analysis.parts),
                )
                finding = self._files.judge(access, context)
                if finding.behavior != "allow":
                    yield finding
        except UncertainNames as error:
            if exact_rule is None and not context.mode.accepts_all:
                yield Finding(Reason("path", "ask", str(error), part=command))

    def _is_excused(self, danger: Danger, context: DecisionContext) -> bool:
        return self._rules.naming(danger.text, "allow") is not None or (danger.only_if_dirty and context.clean_tree)

    def _judge_readability(self, command: str, analysis: Analysis, context: DecisionContext) -> Iterator[Finding]:
        """Ask about a command with hidden characters, or one that the analysis does not understand."""
        hidden = describe_invisible(command)
        if hidden:
            yield Finding(Reason("guard", "ask", f"the command contains {hidden}", part=escape_invisible(command)))
        problems = analysis.problems or (() if analysis.parts else ("there is no command in it",))
        if not problems:
            return
        text = f"the command cannot be understood: {'; '.join(problems)}"
        if context.mode.read_only:
            yield Finding(Reason("mode", "deny", f"plan mode changes nothing, and {text}"))
        elif self._deny.reach_commands or self._ask.reach_commands:
            yield Finding(Reason("analysis", "ask", text))
        elif context.mode.accepts_all:
            yield context.mode_allows()
        elif context.sandboxed and context.blanket is not None:
            yield Finding(context.blanket)
        else:
            yield Finding(Reason("analysis", "ask", text))

    def _judge_part(
        self, part: CommandPart, line: CommandLine, exact_rule: Rule | None, context: DecisionContext
    ) -> Iterator[Finding]:
        spellings = _spellings(part)
        covering = self._covering_rules(part, spellings)
        for behavior in RESTRICTING:
            rule = next((rule for rules in covering.values() for rule in rules if rule.behavior == behavior), None)
            if rule is not None:
                yield Finding(rule_reason(rule, part=part.text))
        rule = self._rules.restricting(part.program) if (word := spellings.uncertain) else None
        if rule is not None:
            text = f"may forbid it: the settings may give `{word}` the meaning of another command"
            yield Finding(rule_reason(rule, text, part.text, "ask"))
        program, is_exact = self._judge_program(part, covering, exact_rule, context)
        yield program
        if not is_exact:
            if part.known:
                yield from self._arguments.judge_attached(part)
            else:
                yield from self._arguments.judge(part, program, context, line)
                rule = self._deny.for_mentioned_host(argument_texts(part, plain=True))
                if rule is not None:
                    yield Finding(rule_reason(rule, "may forbid a host that it mentions", part.text, "ask"))
            if not part.read_only:
                yield from _judge_unknown_writes(part, self._files)
                yield from self._judge_linked(part, program, context)
        unnamed = () if part.read_only else _unnamed_writes(part, self._files)
        for effect in (*part.effects, *unnamed):
            if isinstance(effect, (Reads, Writes)):
                redirected = effect in part.redirects.effects
                access = FileAccess(
                    effect,
                    part.text,
                    program,
                    exact=exact_rule is not None or (is_exact and not redirected),
                    redirected=redirected,
                    recursive=isinstance(effect, Writes) or effect.path in part.bulk_reads,
                    as_on_disk=line.only_reads and not profile_of(part.program).reads_history,
                )
                yield self._files.judge(access, context)
            elif isinstance(effect, Fetches):
                yield from self._network.judge(effect.url, context, part.text, None if part.only_fetches else program)

    def _judge_linked(self, part: CommandPart, program: Finding, context: DecisionContext) -> Iterator[Finding]:
        """Judge what new links lead to as if it were touched: whatever uses the link later names only the link."""
        for path in linked_paths(part, self._files.files):
            for effect in (Reads(path), Writes(path)):
                finding = self._files.judge(FileAccess(effect, part.text, program, recursive=True), context)
                may_reach = finding.reason.kind == "path" and isinstance(effect, Reads) and finding.behavior == "ask"
                if may_reach or (finding.reason.kind in ("rule", "guard") and finding.behavior != "allow"):
                    text = f"{finding.reason.text}, through the new link"
                    yield Finding(replace(finding.reason, behavior="ask", text=text))

    def _covering_rules(self, part: CommandPart, spellings: OtherSpellings) -> dict[str, Sequence[Rule]]:
        """Find, for every spelling of a part, the rules that cover it."""
        texts = (part.text, *part.rules.allow, *part.rules.deny, *spellings.texts)
        return {text: self._rules.covering(text) for text in dict.fromkeys(texts)}

    def _judge_program(
        self,
        part: CommandPart,
        covering: Mapping[str, Sequence[Rule]],
        exact_rule: Rule | None,
        context: DecisionContext,
    ) -> tuple[Finding, bool]:
        """Find what allows the program itself, and whether by its full text; or the question it leaves."""
        if context.mode.read_only and not part.read_only:
            why = part.why or "it may change something"
            return Finding(Reason("mode", "deny", f"plan mode changes nothing, and {why}", part=part.text)), False
        naming = exact_rule or self._rule_naming(part)
        if naming is not None:
            return Finding(rule_reason(naming, part=part.text)), True
        if not context.always_confirm and (reason := _harmless_reason(part)) is not None:
            return Finding(reason), False
        if (rule := self._pattern_rule(part, covering)) is not None:
            return Finding(rule_reason(rule, part=part.text)), False
        if context.mode.accepts_all:
            return context.mode_allows(part.text), False
        if context.blanket is not None:
            return Finding(context.blanket), False
        reason = Reason("default", "ask", part.why or "no rule covers it", part=part.text)
        return Finding(reason, self._suggest_rule(part) if self._may_have_rule(part) else None), False

    def _rule_naming(self, part: CommandPart) -> Rule | None:
        """Find an allow rule for a text of the part: without harmless wrappers too, but never without one that runs anything."""
        texts = part.rules.allow[:1] if part.rules.exact or takes_input_arguments(part.wrappers) else part.rules.allow
        for text in texts:
            if (rule := self._rules.naming(text, "allow")) is not None:
                return rule if self._may_have_rule(part) else None
        return None

    def _pattern_rule(self, part: CommandPart, covering: Mapping[str, Sequence[Rule]]) -> Rule | None:
        if part.rules.exact or not self._may_have_rule(part):
            return None
        for index, text in enumerate(part.rules.allow):
            for rule in covering[text]:
                specifier = rule.specifier or ""
                if rule.behavior != "allow" or escalating_option(part, specifier) is not None:
                    continue
                if self._tests_elsewhere(part, specifier):
                    continue
                if index == 0 or not takes_input_arguments(part.wrappers) or _is_open_ended(rule):
                    return rule
        return None

    def _tests_elsewhere(self, part: CommandPart, specifier: str) -> bool:
        """Whether a test runner is given code outside the project. Rules for commands are about the project."""
        return any(
            not self._files.is_inside(os.path.join(cwd, os.path.expanduser(path)))
            for path in tested_paths(part, specifier)
            for cwd in part.cwds
        )

    def _suggest_rule(self, part: CommandPart) -> str | None:
        suggestion = _suggest_rule(part)
        if suggestion is not None and self._tests_elsewhere(part, suggestion):
            return CommandRule.offer_for(part.program, part.rules.allow[0], exact=True)
        return suggestion

    def _may_have_rule(self, part: CommandPart) -> bool:
        """Rules for commands are about the project: elsewhere the same words may do anything.

        A rule for a program by its path, such as `./build.sh`, is about the root folder: elsewhere it is another program.
        """
        if not part.argv:
            return True
        program = part.argv[0].text
        if "/" in program and not program.startswith("/"):
            return part.cwds == (self._files.root,)
        return bool(part.cwds) and all(map(self._files.is_inside, part.cwds))


def _spellings(part: CommandPart) -> OtherSpellings:
    from wieldy.shell.effects.programs.subcommands import other_spellings

    return other_spellings(part.argv)


def _is_open_ended(rule: Rule) -> bool:
    specifier = rule.specifier or ""
    return specifier.endswith("*") and not specifier.endswith("\\*")


def _suggest_rule(part: CommandPart) -> str | None:
    if not part.rules.allow:
        return None
    if not part.argv:
        # PATH and the like decide what every later command is.
        return None if part.code.code_variable else CommandRule.offer_for(None, part.rules.allow[0], exact=True)
    suggestion = CommandRule.offer_for(part.program, part.rules.allow[-1], exact=part.rules.exact)
    if suggestion is not None and escalating_option(part, suggestion) is not None:
        # A rule with a wildcard would not cover it.
        return CommandRule.offer_for(part.program, part.rules.allow[0], exact=True)
    if part.rules.exact or (takes_input_arguments(part.wrappers) and not (suggestion or "").endswith("*)")):
        return CommandRule.offer_for(part.program, part.rules.allow[0], exact=True)
    return suggestion


def _harmless_reason(part: CommandPart) -> Reason | None:
    if part.read_only:
        return Reason("analysis", "allow", "it only reads", part=part.text)
    if part.program_read_only:
        return Reason("analysis", "allow", "apart from its redirection it only reads", part=part.text)
    if part.only_fetches:
        return Reason("analysis", "allow", "apart from what it fetches it only reads", part=part.text)
    if not part.argv and part.known:
        return Reason("analysis", "allow", "it runs no program", part=part.text)
    return None


def _unnamed_writes(part: CommandPart, files: FilePolicy) -> Iterator[Writes]:
    """Yield the files that come into a folder under the name they had elsewhere, as when a file is copied into it."""
    sources = [effect.path for effect in part.effects if isinstance(effect, Reads)]
    for effect in part.effects if sources else ():
        if isinstance(effect, Writes) and files.is_folder(effect.path):
            yield from (Writes(os.path.join(effect.path, os.path.basename(source))) for source in sources)
    for folder, source in transfers(part):
        yield from (Writes(os.path.join(folder, name)) for name in list_folder(source, files.files) or ())
    yield from (Writes(path) for path in overwritten(part, files.files) if files.is_protected(path))
    yield from (Writes(path) for pattern in written_patterns(part) for path in files.protected_matches(pattern))


def _judge_unknown_writes(part: CommandPart, files: FilePolicy) -> Iterator[Finding]:
    """Ask where unknown files may come into a folder that has protected ones."""
    for folder, source in transfers(part):
        if list_folder(source, files.files) is None and files.may_hold_protected(folder):
            text = f"what comes into {folder} is unknown, and protected files may be among it"
            yield Finding(Reason("guard", "ask", text, part=part.text))
            return
