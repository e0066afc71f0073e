"""What a program that nobody knows is told of: commands and files among its words that a rule forbids. It may use them."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING

from wieldy.core.decision import Reason
from wieldy.permissions.command_index import CommandIndex
from wieldy.permissions.files import Files
from wieldy.permissions.finding import Case, Finding, by_rule
from wieldy.permissions.told import code_of, commands_of, named_in, text_of
from wieldy.schema.pattern import pattern

if TYPE_CHECKING:
    from wieldy.shell.parts import Part
    from wieldy.shell.words import Word

_BETWEEN_COMMANDS = pattern(r"[;&|\n(){}!]+")
_BESIDE_VARIABLES = pattern(r"[\s\"'${}:@,]+")
_LOCAL_ADDRESS = pattern(r"^file:(//[^/]*)?(?=/)", re.IGNORECASE)
MOST_WORDS = 24
MOST_MATCHES = 1_000


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
    from wieldy.shell.parts import bare_text_of

    for at, word in enumerate(words):
        text = text_of(word)
        if os.path.basename(text) in programs:
            yield bare_text_of(words[at : at + MOST_WORDS])
        # An option may be given a command with `=`, and `!` leads out of an editor into a shell.
        for value in dict.fromkeys((text, text.partition("=")[2], text.rpartition("=")[2])):
            for piece in _BETWEEN_COMMANDS.split(value):
                program, _, rest = piece.strip().partition(" ")
                if os.path.basename(program) in programs and (rest or value != text):
                    yield f"{os.path.basename(program)} {rest}".strip()


def _paths(part: Part) -> Iterator[str]:
    """Where its words may lead: each as it stands, and behind `=`, `@` and `file://`, as options spell files."""
    for word in part.argv[1:]:
        for name in _names(word):
            for folder in ("/",) if name.startswith("/") else part.cwds if name else ():
                path = os.path.normpath(os.path.join(folder, name))
                yield from _matching(path) if word.kind == "pattern" else (path,)


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
