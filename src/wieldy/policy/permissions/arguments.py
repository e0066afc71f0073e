"""Forbidden commands and files among the arguments of programs whose effects are unknown."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from msgspec import Struct

from wieldy.core.decision import Reason
from wieldy.core.effects import Reads, Writes
from wieldy.policy.permissions.files import DEPENDS_ON_PROCESS, FilePolicy
from wieldy.policy.permissions.findings import DecisionContext, Finding, rule_reason
from wieldy.policy.permissions.ruleset import CommandRules
from wieldy.shell.effects.programs.embedded_code import (
    REMOVE_QUOTES,
    command_words,
    commands_among,
    embedded_code,
    find_commands,
    mentioned_paths,
    packs_folder,
    packs_operands,
    starts_unknown,
)
from wieldy.shell.effects.programs.interpreters import (
    READS_OWN_COMMANDS,
    InlineScript,
    argument_texts,
    inline_scripts,
    interpreters,
    opened_files,
    reads_input,
    unknown_code,
    unknown_file,
)
from wieldy.shell.effects.programs.profiles import profile_of
from wieldy.shell.effects.programs.registry import opens_unnamed_files

if TYPE_CHECKING:
    from wieldy.shell.effects.analysis import Analysis
    from wieldy.shell.effects.command_part import CommandPart


class CommandLine(Struct, frozen=True):
    """What is around a part: the text of the whole command line without quotes, and the files that it writes, if any."""

    text: str
    written: frozenset[str]
    only_reads: bool = False

    @classmethod
    def of(cls, command: str, analysis: Analysis) -> CommandLine:
        written = [effect.path for effect in analysis.effects if isinstance(effect, Writes)]
        only_reads = analysis.verdict == "read_only"
        return cls(command.translate(REMOVE_QUOTES), frozenset(map(os.path.normpath, written)), only_reads)

    def runs_new_file(self, part: CommandPart) -> str | None:
        """Say which file a part runs that the same command line writes."""
        if not self.written or part.program is None:
            return None
        scripts = [word.text for at, _ in interpreters(part) for word in part.argv[at + 1 :] if word.kind == "literal"]
        for name in [part.program, *scripts] if "/" in part.program else scripts:
            if any(os.path.normpath(os.path.join(cwd, name)) in self.written for cwd in part.cwds or ("/",)):
                return f"the content of `{name}`"
        return None

    def feeds(self, part: CommandPart) -> str | None:
        """Say which interpreter of a part may take its script from an input that the line redirects around it."""
        if part.code.texts or any(isinstance(effect, Reads) for effect in part.redirects.effects):
            return None
        if not {"<", "|"} & set(self.text):
            return None
        for position, name in interpreters(part):
            texts = [word.text for word in part.argv[position + 1 :]]
            if name not in READS_OWN_COMMANDS and reads_input(name, texts):
                return f"the script of `{name}`"
        return None


class ArgumentScanner:
    """Raises questions about the arguments of a command part whose effects are not all known."""

    def __init__(self, commands: CommandRules, files: FilePolicy) -> None:
        self._commands = commands
        self._files = files

    def judge(
        self, part: CommandPart, program: Finding, context: DecisionContext, line: CommandLine
    ) -> Iterator[Finding]:
        """Yield the questions; `program` is the finding that allows the program itself, `line` what is around the part."""
        if (rule := self._commands.first_deny or self._files.first_deny) is not None:
            unknown = unknown_code(part) or line.runs_new_file(part) or line.feeds(part)
            if unknown is not None:
                text = f"may forbid it: {unknown} is known only when it runs"
                yield Finding(rule_reason(rule, text, part.text, "ask"))
        # A rule for the program vouches for what it starts; a rule for all commands, or a mode, does not.
        if program.reason is context.blanket or program.reason.kind == "mode":
            yield from self._judge_commands(part, line)
        if self._files.denies_anything:
            yield from self._judge_files(part)

    def judge_attached(self, part: CommandPart) -> Iterator[Finding]:
        """Ask about denied files in words such as `@file` and `-ffile`, which a program may take for more than we know."""
        if not self._files.denies_anything:
            return
        for path in mentioned_paths(part, tuple(word for word in part.argv[1:] if word.prefix.startswith(("-", "@")))):
            if (rule := self._files.deny_rule_for(path)) is not None:
                yield Finding(rule_reason(rule, f"may forbid what is done with {path}", part.text, "ask"))

    def _judge_files(self, part: CommandPart) -> Iterator[Finding]:
        scripts = list(inline_scripts(part))
        paths = chain(mentioned_paths(part, part.argv[1:]), *(opened_files(script, part.cwds) for script in scripts))
        for path in paths:
            if (rule := self._files.deny_rule_for(path)) is not None:
                yield Finding(rule_reason(rule, f"may forbid what is done with {path}", part.text, "ask"))
            elif packs_operands(part) and (rule := self._files.rule_inside(path)) is not None:
                yield Finding(rule_reason(rule, f"may forbid something in {path}", part.text, "ask"))
        if packs_folder(part) or any(script.packs for script in scripts):
            for folder in part.cwds or ("/",):
                if (rule := self._files.rule_inside(folder)) is not None:
                    yield Finding(rule_reason(rule, f"may forbid something in {folder}", part.text, "ask"))
        yield from self._judge_unknown_files(part, scripts)
        if (rule := self._files.deny_rule_mentioned(argument_texts(part))) is not None:
            yield Finding(rule_reason(rule, "may forbid a file that it mentions", part.text, "ask"))
        for folder in {folder for word in part.argv[1:] for folder in word.scope}:
            if (rule := self._files.rule_inside(folder)) is not None:
                yield Finding(rule_reason(rule, f"may forbid something in {folder}", part.text, "ask"))

    def _judge_unknown_files(self, part: CommandPart, scripts: Sequence[InlineScript]) -> Iterator[Finding]:
        """Ask where it is not known which files a part opens, and rules forbid some."""
        unknown = unknown_file(part)
        in_process = next((text for text in argument_texts(part, plain=True) if DEPENDS_ON_PROCESS.search(text)), None)
        code = next((script for script in scripts if script.files is None), None)
        if unknown is not None:
            text = f"{unknown} is known only when it runs"
        elif in_process is not None:
            text = f"where `{in_process}` leads is known only when it runs"
        elif code is not None:
            text = f"which files the code for `{code.interpreter}` opens is known only when it runs"
        elif opens_unnamed_files(part):
            text = f"which files it opens is not known: {part.why}"
        else:
            return
        if (rule := self._files.first_deny) is not None:
            yield Finding(rule_reason(rule, f"may forbid it: {text}", part.text, "ask"))

    def _judge_commands(self, part: CommandPart, line: CommandLine) -> Iterator[Finding]:
        programs = self._commands.forbidden_programs
        if not programs:
            return
        if part.argv and part.program is None:
            yield Finding(Reason("analysis", "ask", f"{part.why}, and rules forbid some programs", part=part.text))
            return
        started_by = part.program or part.text
        code = list(embedded_code(part))
        readings = dict.fromkeys(text for one in code for text in (one, one.translate(REMOVE_QUOTES)))
        in_code = (text for one in readings for text in find_commands(one, programs))
        takes_commands = not profile_of(part.program).subcommands or command_words(part)
        in_line = find_commands(line.text, programs) if takes_commands else ()
        for text in chain(commands_among(command_words(part), programs), in_code, in_line):
            rule = next((rule for rule in self._commands.covering(text) if rule.behavior != "allow"), None)
            if rule is not None:
                yield Finding(rule_reason(rule, f"may forbid what `{started_by}` starts", part.text, "ask"))
                return
        rule = self._commands.first_deny
        if rule is None:
            return
        if starts_unknown(part, code):
            text = f"may forbid what the code for `{started_by}` starts"
            yield Finding(rule_reason(rule, text, part.text, "ask"))
