"""What a program that nobody knows is told of: commands and files among its words that a rule forbids. It may use them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from wieldy.core.decision import Reason
from wieldy.permissions.command_index import CommandIndex
from wieldy.permissions.files import Files
from wieldy.permissions.finding import Case, Finding, by_rule
from wieldy.permissions.rule import Rule
from wieldy.permissions.suggest import WITH_SUBCOMMANDS

if TYPE_CHECKING:
    from wieldy.shell.parts import Part
    from wieldy.shell.words import Word


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
        for at, word in enumerate(part.argv[1:], 1):
            if word.static and os.path.basename(word.text) in programs:
                rule = self._forbidding(part.argv[at:])
                if rule is not None:
                    yield Finding(by_rule(rule, f"may forbid what `{part.program}` starts", part.text, "ask"))
                    return

    def _forbidding(self, argv: tuple[Word, ...]) -> Rule | None:
        from wieldy.shell.parts import bare_text_of

        covering = self._commands.covering(bare_text_of(argv))
        return next((rule for rule in covering if rule.behavior != "allow"), None)


def _paths(part: Part) -> Iterator[str]:
    """Where its words may lead: each as it stands, and behind `=`, `@` and `file://`, as options spell files."""
    for word in part.argv[1:]:
        if not word.static:
            continue
        for text in dict.fromkeys((word.text, word.text.rpartition("=")[2])):
            name = text.removeprefix("@").removeprefix("file://")
            for folder in ("/",) if name.startswith("/") else part.cwds if name else ():
                yield os.path.normpath(os.path.join(folder, name))
