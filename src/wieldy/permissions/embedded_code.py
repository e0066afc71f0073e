"""The texts a program that nobody knows may run as commands: code for an interpreter, an alias, a setting of git, its input."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator
from itertools import islice, pairwise
from typing import TYPE_CHECKING

from wieldy.permissions.suggest import WITH_SUBCOMMANDS

if TYPE_CHECKING:
    from wieldy.shell.policy.command_part import CommandPart
    from wieldy.shell.policy.words import Word


LONGEST_COMMAND = 240
MOST_INTERPRETERS = 4
_SHELL = re.compile(r"(ba|da|z|k|fi|a|c|tc|rba)?sh|eval")
# These take what they read for commands whatever words they are given.
_READS_COMMANDS = re.compile(r"ssh|su|at|batch|parallel|crontab")
_INTERPRETER = re.compile(
    r"(python|pypy|perl|ruby|php|lua|node|tclsh)[\d.]*|nodejs|luajit|deno|bun|expect|Rscript|osascript|pwsh|powershell"
    r"|julia|elixir|erl|guile|racket|sbcl|groovy|emacs|n?vim|vi|ex|ed|gdb|lldb|sqlite3|psql|mysql|g?make|bc|dc"
)
_ALL_CODE = re.compile(r"[gmn]?awk|g?sed|alias|trap|complete|bind")
_CODE_OPTION = re.compile(r"-[A-Za-z]*[ceErpx]|--(eval|print|command|execute|run|batch)\b.*|-[ce].*", re.DOTALL)
_READS_INPUT = frozenset({"-", "-s", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"})
# What follows these words of a program is a command that it starts.
_STARTERS = {
    **dict.fromkeys(("docker", "podman", "kubectl"), frozenset({"run", "exec"})),
    **dict.fromkeys(("npm", "pnpm", "yarn"), frozenset({"exec", "x", "dlx"})),
    **dict.fromkeys(("uv", "poetry", "pipenv", "conda"), frozenset({"run"})),
    "bun": frozenset({"x", "exec"}),
    "bundle": frozenset({"exec"}),
    "deno": frozenset({"eval"}),
    "mix": frozenset({"run", "cmd"}),
}
_GIT_STARTERS = {"submodule": "foreach", "bisect": "run", "for-each-repo": "", "filter-branch": "", "config": ""}
_GIT_OPTIONS = {"--exec", "--extcmd", "--upload-pack", "--receive-pack", "--open-files-in-pager", "--config"}
_GIT_OPTIONS |= {"--smtp-server", "--to-cmd", "--cc-cmd", "--exec-path"}
_NAME = re.compile(r"[\w.+@/-]+")
_END = re.compile(r"[\"'`;&|\n(){}\[\]]")
_GLUE = re.compile(r"[\s\"'`,()\[\]]+")


def text_of(word: Word) -> str:
    """What is known of a word: its value, or how it is written."""
    return word.text if word.static else word.source.strip("\"'")


def commands_of(part: CommandPart) -> tuple[Word, ...]:
    """The words among which a command may stand. Most words of a program with sub-commands are names of its own things."""
    starters = _STARTERS.get(part.program or "", frozenset())
    if part.program not in WITH_SUBCOMMANDS:
        return part.argv[1:]
    for at, word in enumerate(part.argv[1:4], 2):
        if word.static and word.text in starters:
            return part.argv[at:]
    return ()


def code_of(part: CommandPart) -> Iterator[str]:
    """The texts in which a command may stand anywhere."""
    yield from part.variable_values
    if part.program == "git":
        yield from _of_git(part.argv[1:])
        return
    words = part.argv if part.program in ("make", "bun", "deno") else (*part.argv[:1], *commands_of(part))
    if part.program in ("make", "gmake"):
        yield from (text_of(word).partition("=")[2] for word in words[1:])
    if len(words) < 2 and not part.input_texts:
        return
    names = [os.path.basename(word.text) if word.static else "" for word in words]
    if names and _READS_COMMANDS.fullmatch(names[0]):
        yield from part.input_texts
    if names and _ALL_CODE.fullmatch(names[0]):
        yield from map(text_of, words[1:])
    found = (at for at, name in enumerate(names) if _SHELL.fullmatch(name) or _INTERPRETER.fullmatch(name))
    for at in islice(found, MOST_INTERPRETERS):
        yield from _of_interpreter(words[at + 1 :], part.input_texts)


def _of_interpreter(words: tuple[Word, ...], input_texts: tuple[str, ...]) -> Iterator[str]:
    """Its code: behind an option that says so, else in a file or, where none is named, in its input."""
    texts = [text_of(word) for word in words]
    open_ended = any(not word.static for word in words)
    if open_ended or any(map(_CODE_OPTION.fullmatch, texts)):
        yield from texts
    if open_ended or not _READS_INPUT.isdisjoint(texts) or all(text.startswith("-") for text in texts):
        yield from input_texts


def _of_git(words: tuple[Word, ...]) -> Iterator[str]:
    """What git would run: settings given with `-c`, options that name programs, and what some sub-commands are for."""
    from wieldy.shell.policy.programs.git import split

    texts = [text_of(word) for word in words]
    call = split(words)
    for text, following in pairwise((*texts, "")):
        option, equals, value = text.partition("=")
        if option in _GIT_OPTIONS or (option.startswith("--") and option.endswith("-filter")):
            yield value if equals else following
        elif text.startswith("-x") and call.command in ("rebase", "difftool"):
            yield text[2:] or following
        elif text.startswith("ext::"):
            yield text
    # Behind most sub-commands `-c` means something else.
    in_front = len(texts) if call.command == "clone" else len(texts) - len(call.args)
    yield from (value for option, value in pairwise(texts[:in_front]) if option == "-c")
    starter = _GIT_STARTERS.get(call.command)
    given = [text_of(word) for word in call.args]
    if starter is not None and (not starter or starter in given):
        yield " ".join(given[given.index(starter) + 1 :] if starter else given)


def named_in(text: str, programs: Collection[str]) -> Iterator[str]:
    """The commands of these programs that a text may hold: up to the end of its string, and as a list of strings."""
    for found in _NAME.finditer(text):
        name = found.group().rstrip(".")
        plain = name if name in programs else os.path.basename(name)
        if plain in programs:
            rest = text[(end := found.start() + len(name)) : end + LONGEST_COMMAND]
            yield f"{plain}{_END.split(rest, maxsplit=1)[0]}".strip()
            yield f"{plain}{_GLUE.sub(' ', rest)}".strip()
