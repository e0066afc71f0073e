"""What a command leaves open until it runs: which program or script it runs, and which files it names.

Where rules forbid commands or files, such a command could reach them unseen, so a person is asked in every mode.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from wieldy.shell.effects.programs.spec import word_set

if TYPE_CHECKING:
    from wieldy.shell.effects.command_part import CommandPart
    from wieldy.shell.effects.words import Word

# Programs whose sub-command says what they do: a rule names both.
WITH_SUBCOMMANDS = word_set(
    "apt apt-get brew bun bundle cargo composer conda deno docker dotnet gcloud gh git go gradle helm hg jj just kubectl "
    "make mix mvn npm nx pip pip3 pipenv pnpm podman poetry rails rake rustup svn systemctl terraform tox turbo uv yarn"
)
SHELL = re.compile(r"(ba|da|z|k|fi|a|c|tc|rba)?sh|eval|source|\.")
# These run their input as commands whatever their arguments are.
READS_COMMANDS = re.compile(r"ssh|su|at|batch|parallel|crontab")
INTERPRETER = re.compile(
    r"(python|pypy|perl|ruby|php|lua|node|tclsh)[\d.]*|nodejs|luajit|deno|bun|expect|Rscript|osascript|pwsh|powershell"
    r"|julia|elixir|erl|guile|racket|sbcl|groovy|emacs|n?vim|view|vi|ex|ed|gdb|lldb|sqlite3|psql|mysql|g?make|bc|dc"
)
ARGUMENTS_ARE_CODE = re.compile(r"[gmn]?awk|g?sed|alias|trap|complete|compgen|bind|mapfile|readarray|fc")
# Of these, the code is for a shell; awk and sed have languages of their own, which the analysis understands or not.
_SHELL_CODE = re.compile(r"alias|trap|complete|compgen|bind|mapfile|readarray|fc")
_SCRIPT_LANGUAGE = re.compile(r"[gmn]?awk|g?sed")
# What a shell expands, so that the text does not say which program runs.
SHELL_SPECIAL = re.compile(r"[$`*?\[{]")
CODE_OPTION = re.compile(r"-[A-Za-z]*[ceErpx]|--(eval|print|command|execute|run|batch)\b.*|-[ce].*|\+.*", re.DOTALL)
# These read commands of their own from the input, whatever their arguments are.
READS_OWN_COMMANDS = frozenset(
    {"ed", "ex", "vi", "vim", "nvim", "view", "gdb", "lldb", "sqlite3", "psql", "mysql", "bc", "dc"}
)
READS_INPUT = frozenset({"-", "-s", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"})
# The word after these is their value, of some interpreters at least, and no script.
_VALUE_OPTIONS = frozenset(
    {"-o", "+o", "-O", "+O", "--rcfile", "--init-file", "-W", "-X", "-I", "--require", "--import", "--loader"}
)
# Code that can start programs. What it computes is not followed, so it could start any.
STARTS_PROGRAMS = re.compile(
    r"system|popen|subprocess|spawn|exec|fork|eval|compile|child_process|importlib|__\w+__|getattr|globals|vars\(|ctypes|cffi|pty"
    r"|pexpect|plumbum|import sh\b|from sh\b|fabric|pickle|marshal|runpy|multiprocessing|modules|builtins|syscall|dlopen|posix\b"
    r"|`|qx\b|%x|getline|shell|Open3|Process|^\s*:?!|\|\s*\"",
    re.IGNORECASE | re.MULTILINE,
)
_PLAIN_WORD = re.compile(r"[\w./~-]*")
# The values of these options are text for people.
_TEXT_OPTIONS = {
    **dict.fromkeys(("git", "hg", "jj", "svn"), frozenset({"-m", "-am", "--message", "--date", "--author"})),
    "gh": frozenset({"-b", "-t", "--body", "--title", "--notes", "-n"}),
}


def unknown_code(part: CommandPart) -> str | None:
    """Say which program or script of a part is known only when it runs; None where all it runs is named."""
    from wieldy.shell.effects.words import PROCESS_SUBSTITUTION_PATH
    from wieldy.shell.effects.wrappers import WRAPPERS

    if any("$" in value or "`" in value for value in part.variable_values):
        return "the value of a variable that programs obey"
    if part.code_variable:
        return f"what runs with this `{part.code_variable}`"
    if part.program is None:
        return "which program runs" if part.argv else None
    name = os.path.basename(part.program)
    if name in WRAPPERS and not SHELL.fullmatch(name):
        return f"what `{name}` runs"
    if name in ("alias", "hash", "enable") and any(re.match("-|.*=", word.text) for word in part.argv[1:]):
        return f"what runs by the names that `{name}` gives"
    if name == "git" and any(word.prefix.startswith(("--config-env", "--exec-path=")) for word in part.argv):
        return "the value of a git setting"
    if _SCRIPT_LANGUAGE.fullmatch(name):
        return f"what the script of `{name}` runs"
    if SHELL.fullmatch(name) and (word := next((word for word in part.argv[1:] if not word.static), None)) is not None:
        return _name_of(word)
    if _SHELL_CODE.fullmatch(name) or READS_COMMANDS.fullmatch(name):
        text = next((word.text for word in part.argv[1:] if SHELL_SPECIAL.search(word.text)), None)
        if text is not None:
            return f"what `{text}` becomes"
    if name not in WITH_SUBCOMMANDS or INTERPRETER.fullmatch(name):
        word = next((word for word in argument_words(part) if word.dynamic and not word.scope), None)
        if word is not None:
            return _name_of(word)
    for position, interpreter in interpreters(part):
        texts = [word.text for word in part.argv[position + 1 :]]
        if PROCESS_SUBSTITUTION_PATH in texts or (
            reads_input(interpreter, texts) and _has_unknown_input(part, is_shell=bool(SHELL.fullmatch(interpreter)))
        ):
            return f"the script of `{interpreter}`"
    return None


def interpreters(part: CommandPart) -> Iterator[tuple[int, str]]:
    """Yield the words of a part that name a shell or another interpreter: the program, or what an unknown one may start."""
    is_single = part.program in WITH_SUBCOMMANDS
    for position, word in enumerate(part.argv[:1] if is_single else part.argv):
        name = os.path.basename(word.text) if word.static else ""
        if SHELL.fullmatch(name) or INTERPRETER.fullmatch(name) or (not position and READS_COMMANDS.fullmatch(name)):
            yield position, name


def reads_input(interpreter: str, texts: Sequence[str]) -> bool:
    """Whether an interpreter with these arguments takes its code, or commands beside it, from its input."""
    if not READS_INPUT.isdisjoint(texts) or READS_COMMANDS.fullmatch(interpreter):
        return True
    if interpreter in READS_OWN_COMMANDS:
        return True
    return interpreter not in ("source", ".", "make", "gmake") and not names_script(texts)


def names_script(texts: Sequence[str]) -> bool:
    """Whether there may be a script among the arguments of an interpreter, so that it does not run its input."""
    return READS_INPUT.isdisjoint(texts) and any(
        not text.startswith(("-", "+")) and not (position and texts[position - 1] in _VALUE_OPTIONS)
        for position, text in enumerate(texts)
    )


def _has_unknown_input(part: CommandPart, *, is_shell: bool) -> bool:
    if part.piped or part.redirect_problem:
        return True
    return any(SHELL_SPECIAL.search(text) if is_shell else "$" in text for text in part.input_texts)


def unknown_file(part: CommandPart) -> str | None:
    """Say which file of a part is known only when it runs; None where all its words are known."""
    if part.redirect_problem:
        return part.redirect_problem
    words = list(argument_words(part))
    word = next((word for word in words if word.dynamic and not word.scope), None)
    if word is not None:
        return _name_of(word)
    if not part.cwds and part.program not in WITH_SUBCOMMANDS:
        relative = next((word for word in words if not word.prefix.startswith(("/", "-"))), None)
        return f"the folder of `{relative.source}`" if relative is not None else None
    return None


def _name_of(word: Word) -> str:
    return f"`{word.source}`" if word.source else "what its input names"


def argument_words(part: CommandPart) -> Iterator[Word]:
    """Yield the arguments of a part without the text that is written for people, such as the message of a commit."""
    text_options = _TEXT_OPTIONS.get(part.program or "", frozenset())
    is_text = False
    for word in part.argv[1:]:
        if not is_text and word.prefix.partition("=")[0] not in text_options - {word.text}:
            yield word
        is_text = word.static and word.text in text_options


def argument_texts(part: CommandPart, *, plain: bool = False) -> list[str]:
    """List the texts of a part in which a file may be named: arguments, input and variables; plain words if wanted."""
    words = [word.text if word.static else word.source for word in argument_words(part)]
    # A plain word is judged as a path.
    words = [word for word in words if plain or not _PLAIN_WORD.fullmatch(word)]
    return [*words, *part.input_texts, *part.variable_values]
