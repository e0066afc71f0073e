"""What a program that nobody knows is told of: commands and files among its words that a rule forbids. It may use them."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from wieldy.core.decision import Reason
from wieldy.permissions.command_index import CommandIndex
from wieldy.permissions.files import Files
from wieldy.permissions.finding import Case, Finding, by_rule
from wieldy.permissions.suggest import WITH_SUBCOMMANDS
from wieldy.schema.pattern import pattern

if TYPE_CHECKING:
    from wieldy.shell.parts import Part
    from wieldy.shell.words import Word

_BETWEEN_COMMANDS = pattern(r"[;&|\n(){}]+")


class Mentions:
    """Looks through the words of parts whose effects are not all known."""

    def __init__(self, commands: CommandIndex, files: Files) -> None:
        self._commands = commands
        self._files = files

    def judge(self, part: Part, own: Finding, case: Case) -> Iterator[Finding]:
        """The questions that its words raise; `own` is what allows the program itself."""
        # A rule that names the program vouches for what it starts; one for all commands, or a mode, does not know it.
        if own.reason is case.cover or own.reason.kind == "mode":
            yield from self._commands_in(part)
        if self._files.forbids_anything:
            for path in _paths(part):
                if (rule := self._files.forbidding(path)) is not None:
                    yield Finding(by_rule(rule, f"may forbid what is done with {path}", part.text, "ask"))

    def _commands_in(self, part: Part) -> Iterator[Finding]:
        programs = self._commands.forbidden_programs
        if not programs or not part.argv or part.program in WITH_SUBCOMMANDS:
            return
        if part.program is None:
            yield Finding(Reason("analysis", "ask", f"{part.why}, and rules forbid some programs", part=part.text))
            return
        for text in _command_texts(part.argv, programs):
            rule = next((rule for rule in self._commands.covering(text) if rule.behavior != "allow"), None)
            if rule is not None:
                yield Finding(by_rule(rule, f"may forbid what `{part.program}` starts", part.text, "ask"))
                return


def _command_texts(argv: tuple[Word, ...], programs: Collection[str]) -> Iterator[str]:
    """What could be a command of one of these programs: from a word on, or inside a word that holds several."""
    from wieldy.shell.parts import bare_text_of

    for at, word in enumerate(argv[1:], 1):
        if not word.static:
            continue
        if os.path.basename(word.text) in programs:
            yield bare_text_of(argv[at:])
        for piece in _BETWEEN_COMMANDS.split(word.text) if " " in word.text else ():
            program, _, rest = piece.strip().partition(" ")
            if os.path.basename(program) in programs:
                yield f"{os.path.basename(program)} {rest}".strip()


def _paths(part: Part) -> Iterator[str]:
    """Where its words may lead: each as it stands, and behind `=`, `@` and `file://`, as options spell files."""
    for word in part.argv[1:]:
        if not word.static:
            continue
        for text in dict.fromkeys((word.text, word.text.rpartition("=")[2])):
            name = text.removeprefix("@").removeprefix("file://")
            for folder in ("/",) if name.startswith("/") else part.cwds if name else ():
                yield os.path.normpath(os.path.join(folder, name))
