"""What may stand in the arguments of a command whose effects are unknown: commands that it starts, files that it opens.

Such a program may run its arguments or its input as commands: code for an interpreter, an alias, a git setting, a pipe.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator
from fnmatch import fnmatchcase
from itertools import islice, pairwise
from typing import TYPE_CHECKING

from wieldy.shell.effects.programs.git import HARMLESS_SETTING, commands_in_git_call, split_git_args
from wieldy.shell.effects.programs.interpreters import (
    ARGUMENTS_ARE_CODE,
    CODE_OPTION,
    INTERPRETER,
    READS_COMMANDS,
    READS_INPUT,
    SHELL,
    SHELL_SPECIAL,
    STARTS_PROGRAMS,
)
from wieldy.shell.effects.programs.offers import is_option
from wieldy.shell.effects.programs.profiles import profile_of
from wieldy.shell.effects.words import Word, unquoted_text

if TYPE_CHECKING:
    from wieldy.shell.effects.command_part import CommandPart

MAX_COMMAND_WORDS = 24
MAX_GLOB_MATCHES = 1_000
MAX_COMMAND_CHARS = 240
MAX_INTERPRETERS = 4
_PROGRAM_NAME = re.compile(r"[\w.+@/*?\[\]-]+")
_GLOB = frozenset("*?[")
_COMMAND_END = re.compile(r"[\"'`;&|\n(){}\[\]]")
_LIST_SEPARATORS = re.compile(r"[\s\"'`,()\[\]]+")
_COMMAND_SEPARATORS = re.compile(r"[;&|\n(){}!]+")
_VARIABLE_SYNTAX = re.compile(r"[\s\"'${}:@,]+")
REMOVE_QUOTES = str.maketrans("", "", "\"'\\")
_VALUE_SEPARATORS = re.compile(r"[=:,;@<]")
_FILE_URL = re.compile(r"^file:(//[^/]*)?(?=/)", re.IGNORECASE)


def commands_among(words: tuple[Word, ...], programs: Collection[str]) -> Iterator[str]:
    """Yield what could be a command of these programs: from a word on, or inside a word that holds several."""
    for index, word in enumerate(words):
        text = _known_text(word)
        if os.path.basename(text) in programs:
            yield unquoted_text(words[index : index + MAX_COMMAND_WORDS])
        # An option may be given a command with `=`, and `!` runs a shell from an editor.
        for value in dict.fromkeys((text, text.partition("=")[2], text.rpartition("=")[2])):
            for piece in _COMMAND_SEPARATORS.split(value):
                program, _, rest = piece.strip().partition(" ")
                if os.path.basename(program) in programs and (rest or value != text):
                    yield f"{os.path.basename(program)} {rest}".strip()


def find_commands(text: str, programs: Collection[str]) -> Iterator[str]:
    """Yield the commands of these programs that code may hold: up to the end of its string, and as a list of strings."""
    for match in _PROGRAM_NAME.finditer(text):
        name = match.group().rstrip(".")
        for program in _meant_programs(name, programs):
            end = match.start() + len(name)
            rest = text[end : end + MAX_COMMAND_CHARS]
            yield f"{program}{_COMMAND_END.split(rest, maxsplit=1)[0]}".strip()
            yield f"{program}{_LIST_SEPARATORS.sub(' ', rest)}".strip()


def _meant_programs(name: str, programs: Collection[str]) -> Collection[str]:
    """The programs that a name may mean: itself, or what it matches as a glob."""
    if name in programs:
        return (name,)
    base = os.path.basename(name)
    if base in programs:
        return (base,)
    if _GLOB.isdisjoint(base) or not base.strip("*"):
        return ()
    return [program for program in programs if fnmatchcase(program, base)]


def _known_text(word: Word) -> str:
    """The value of a word where it is known, else its source."""
    return word.text if word.kind == "literal" else word.source.strip("\"'")


def command_words(part: CommandPart) -> tuple[Word, ...]:
    """The words among which a command may stand. Most arguments of a program with sub-commands name its own things."""
    if not profile_of(part.program).subcommands:
        return part.argv[1:]
    run_subcommands = profile_of(part.program).starts.split()
    for position, word in enumerate(part.argv[1:4], 2):
        if word.kind == "literal" and word.text in run_subcommands:
            return part.argv[position:]
    return ()


def embedded_code(part: CommandPart) -> Iterator[str]:
    """Yield the texts in which a command may stand anywhere."""
    yield from part.code.variables
    if part.program == "git":
        yield from commands_in_git_call(part.argv[1:])
        return
    if part.program == "gh" and [word.text for word in part.argv[1:2]] == ["alias"]:
        yield from (_known_text(word).lstrip("!") for word in part.argv[3:])
    words = part.argv if part.program in ("make", "bun", "deno") else (*part.argv[:1], *command_words(part))
    if part.program in ("make", "gmake"):
        yield from (_known_text(word).partition("=")[2] for word in words[1:])
    if len(words) < 2 and not part.code.texts:
        return
    names = [os.path.basename(word.text) if word.kind == "literal" else "" for word in words]
    if names and READS_COMMANDS.fullmatch(names[0]):
        yield from part.code.texts
    if names and ARGUMENTS_ARE_CODE.fullmatch(names[0]):
        yield from map(_known_text, words[1:])
    interpreters = (at for at, name in enumerate(names) if SHELL.fullmatch(name) or INTERPRETER.fullmatch(name))
    for position in islice(interpreters, MAX_INTERPRETERS):
        yield from _interpreter_code(words[position + 1 :], part.code.texts)


def _interpreter_code(words: tuple[Word, ...], input_texts: tuple[str, ...]) -> Iterator[str]:
    """Yield the code of an interpreter: behind an option for code, or its input where no script is named."""
    texts = [_known_text(word) for word in words]
    is_uncertain = any(word.kind != "literal" for word in words)
    if is_uncertain or any(map(CODE_OPTION.fullmatch, texts)):
        yield from texts
    if is_uncertain or not READS_INPUT.isdisjoint(texts) or all(text.startswith("-") for text in texts):
        yield from input_texts


def mentioned_paths(part: CommandPart, words: tuple[Word, ...]) -> Iterator[str]:
    """Yield the paths its words may mean: each as it stands, and behind `=`, `@` and `file://`, as options spell files."""
    for word in words:
        for name in _mentioned_names(word):
            for folder in ("/",) if name.startswith("/") else part.cwds if name else ():
                path = os.path.normpath(os.path.join(folder, name))
                yield from _glob(path) if word.kind == "glob" else (path,)


def _mentioned_names(word: Word) -> Collection[str]:
    if word.dynamic:
        # The default in `${x:-file}`, and what stands beside the variable.
        return {name.lstrip("-=+?"): None for name in _VARIABLE_SYNTAX.split(word.source)}
    text = word.text
    names = [_without_url_prefix(piece) for piece in _VALUE_SEPARATORS.split(text)[1:]]
    if text.startswith("-"):
        # The name of an option is no file, but the value of a short one may follow its letter.
        return names if text.startswith("--") else (*names, text[2:], text[3:])
    return (_without_url_prefix(text), *names)


def _without_url_prefix(name: str) -> str:
    name = name.removeprefix("@")
    return _FILE_URL.sub("", name) if ":" in name else name


def _glob(path: str) -> Iterator[str]:
    from glob import iglob

    yield from islice(iglob(path.replace("[^", "[!")), MAX_GLOB_MATCHES)


def has_open_option(part: CommandPart) -> bool:
    """Whether an option that may name a program has a value that a shell would expand."""
    options = profile_of(part.program).escalating.split()
    texts = [_known_text(word) for word in part.argv[1:]]
    return any(
        SHELL_SPECIAL.search(f"{text} {following}") and any(is_option(text, option) for option in options)
        for text, following in pairwise((*texts, ""))
    )


def packs_operands(part: CommandPart) -> bool:
    """Whether a part takes the folders it is given with all that is in them."""
    profile, subcommand = profile_of(part.program), part.argv[1].text if len(part.argv) > 1 else ""
    return profile.packs_operands and subcommand not in profile.queries.split()


def packs_folder(part: CommandPart) -> bool:
    """Whether a part takes all of its working directory without naming it."""
    profile = profile_of(part.program)
    if profile.packs_folder or not profile.packing:
        return profile.packs_folder
    subcommands = profile.packing.split()
    if part.program == "git":
        call = split_git_args(part.argv[1:])
        # A clone of another machine's repository holds nothing of this one.
        is_remote = call.command == "clone" and any(re.match(r"[\w+-]+://|[\w.@-]+:", word.text) for word in call.args)
        return call.command in subcommands and not is_remote
    return any(word.kind == "literal" and word.text in subcommands for word in part.argv[1:3])


def starts_unknown(part: CommandPart, code: Collection[str]) -> bool:
    """Whether the code in a part may start programs that the text does not name."""
    if part.program == "git":
        return any(SHELL_SPECIAL.search(one) and not HARMLESS_SETTING.fullmatch(one) for one in code)
    return any(map(STARTS_PROGRAMS.search, code)) or has_open_option(part)
