"""Rules for commands: for which one is worth offering, how much of the command it leaves open, and what it does not cover."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from wieldy.shell.effects.programs.interpreters import INTERPRETER, SHELL, names_script
from wieldy.shell.effects.programs.profiles import argument_words, profile_of
from wieldy.shell.effects.programs.spec import word_set

if TYPE_CHECKING:
    from wieldy.shell.effects.command_part import CommandPart

_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*")
# A program by its path, in the project or from the root of the file system.
_PROGRAM_PATH = re.compile(r"(\./|/)?(?!\.\./)[\w.+@-]+(/(?!\.\./)[\w.+@-]+)*")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=\S*")
_SUBCOMMAND = re.compile(r"[a-z][a-z0-9_:-]*")
SHELL_KEYWORDS = word_set("if then else elif fi for while until do done case esac in function select { } [ [[ ! coproc")


def may_have_rule(program: str | None, words: list[str]) -> bool:
    """Whether a rule for the words of a simple command would mean one command."""
    start = next((word for word in words if not _ASSIGNMENT.fullmatch(word)), "")
    if start and (program is None or start in SHELL_KEYWORDS):
        return False
    if start and not _WORD.fullmatch(start) and not _PROGRAM_PATH.fullmatch(start):
        return False
    return not _reads_program_from_stdin(words)


def _reads_program_from_stdin(words: list[str]) -> bool:
    """Whether an interpreter is given no script: a rule for `sh` would allow whatever is piped into it."""
    names = [word.rpartition("/")[2] for word in words]
    for index, name in enumerate(names):
        if SHELL.fullmatch(name) or (INTERPRETER.fullmatch(name) and not name.endswith("make")):
            return not names_script(words[index + 1 :])
    return False


def safe_prefix(words: list[str]) -> str | None:
    """The first words of a command of which a rule may leave the rest open."""
    profile = profile_of(words[0])
    if profile.safe:
        return words[0]
    for group, names in profile.offers.items():
        start = [words[0], group] if group else words[:1]
        name = words[len(start)] if len(words) > len(start) else ""
        is_script = names == "*" and _SUBCOMMAND.fullmatch(name) is not None
        if words[: len(start)] == start and (is_script or name in names.split()):
            return " ".join((*start, name))
    return None


_CLUSTER = re.compile(r"-[A-Za-z0-9]+")
_PLAIN_ASSIGNMENT = re.compile(r"\w+[:+?]{0,2}=[\w.,/+:-]*")
_GOAL_OF_PLUGIN = re.compile(r"[^-].*:.*")


def escalating_option(part: CommandPart, specifier: str) -> str | None:
    """Find a word by which a program writes a file or runs another program, and which the rule itself does not name."""
    program = part.program or ""
    # A rule for all of git means all of git.
    profile = profile_of(program)
    options = profile.escalating.split()
    if not options or (profile.subcommands and specifier.rstrip(":* ") == program):
        return None
    for word in argument_words(part):
        if word.dynamic and word.may_be_option:
            return word.source
        text = _with_usual_dashes(program, word.text)
        if word.text in specifier:
            continue
        if any(is_option(text, option) or _in_cluster(program, text, option) for option in options):
            return word.text
        if program == "make" and "=" in text and not text.startswith("-") and not _PLAIN_ASSIGNMENT.fullmatch(text):
            return word.text  # recipes run what variables hold, and `name!=command` runs at once
        if program == "mvn" and _GOAL_OF_PLUGIN.fullmatch(text):
            return word.text
    return None


def tested_paths(part: CommandPart, specifier: str) -> Iterator[str]:
    """Yield the paths, relative or absolute, that a rule for a test runner lets it run code from, but does not name itself."""
    words = [word.text for word in part.argv]
    start = next((index for index, text in enumerate(words) if profile_of(text.rpartition("/")[2]).runs_tests), None)
    # A rule for all of Python means all of Python.
    if start is None or words[start].rpartition("/")[2] not in specifier:
        return
    for text in words[start + 1 :]:
        path = text.partition("::")[0]
        if path and not text.startswith("-") and path not in specifier:
            yield path


def _with_usual_dashes(program: str, text: str) -> str:
    """An option as the table spells it: npm accepts any number of dashes, go one or two."""
    name = text.lstrip("-")
    if program in ("npm", "pnpm") and text.startswith("-") and len(name) > 1:
        return f"--{name}"
    return f"-{name}" if program == "go" and text.startswith("--") else text


def _in_cluster(program: str, text: str, option: str) -> bool:
    """Whether a short option stands among others, as `-O` in `-nO`."""
    return profile_of(program).clusters and len(option) == 2 and option[1] in text and bool(_CLUSTER.match(text))


def is_option(text: str, option: str) -> bool:
    """Whether a word is this option, perhaps abbreviated or with its value."""
    name = text.partition("=")[0]
    if option.endswith("."):
        return name.startswith(option)
    if option.startswith("--"):
        return name.startswith("--") and len(name) > 3 and option.startswith(name)
    return name == option or (len(option) == 2 and text.startswith(option))
