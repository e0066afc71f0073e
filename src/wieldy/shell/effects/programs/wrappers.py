"""Unwrap programs that run another program, such as `timeout`, `env`, `xargs` and `bash -c`."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Mapping
from typing import TypeAlias

from msgspec import Struct

from wieldy.shell.effects.programs.pipeline_input import PipelineInput
from wieldy.shell.effects.programs.spec import ParsedArgs, UnknownArguments, option_table, parse_args, word_set
from wieldy.shell.effects.words import Word, command_text, literal, unquoted_text

MAX_WRAPPERS = 12
_STANDARD_FOLDERS = frozenset({"/bin", "/usr/bin", "/usr/local/bin", "/sbin", "/usr/sbin"})
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=")
_FEW = re.compile(r"0*([1-9]|[1-5]\d|6[0-4])")
_SHELL_FLAGS = re.compile(r"-[ceuxlivn]+")


class UnwrappedCommand(Struct, frozen=True):
    """A command without its wrappers: `words` (or the shell text `script`) is what finally runs.

    `program`: the name to look it up by, without its folder if that is one of the system's; None if unknown.
    `harmless`: the wrappers themselves change nothing. `transparent`: a rule for the inner command is enough.
    `reads`: files the wrappers read; `variables`: names of variables they set. `splits_input`: xargs splits the names in its
    input at blanks.
    """

    words: tuple[Word, ...]
    program: str | None
    script: Word | None
    wrappers: tuple[str, ...]
    allow_texts: tuple[str, ...]
    deny_texts: tuple[str, ...]
    harmless: bool
    transparent: bool
    reads: tuple[Word, ...]
    variables: tuple[str, ...]
    problem: str
    splits_input: bool = False


def unwrap(words: tuple[Word, ...], piped: PipelineInput) -> UnwrappedCommand:
    """Look through the wrappers of a command that reads `piped` from its standard input."""
    wrappers: list[str] = []
    deny = _deny_texts(words)
    allow = deny[:1]
    harmless = transparent = True
    reads: list[Word] = []
    variables: list[str] = []
    script, problem, splits_input = None, "", False
    while (name := _program_name(words)) and name in _UNWRAPPERS and len(wrappers) < MAX_WRAPPERS:
        try:
            inner = _UNWRAPPERS[name](words[1:])
        except UnknownArguments as error:
            wrappers.append(name)
            harmless = transparent = False
            problem = f"`{name}`: {error}"
            deny.extend(text for index in range(1, min(len(words), 9)) for text in _deny_texts(words[index:]))
            break
        if inner is None:
            break
        wrappers.append(name)
        harmless, transparent = harmless and inner.harmless, transparent and inner.transparent
        reads.extend(inner.reads)
        variables.extend(inner.variables)
        if inner.script is not None:
            script = inner.script
            break
        splits_input = splits_input or (inner.takes_input_arguments and not inner.null_separated)
        words = _with_input_arguments(inner, piped) if inner.takes_input_arguments else inner.words
        deny.extend(_deny_texts(words))
        if transparent:
            allow.append(command_text(words))
    return UnwrappedCommand(
        words,
        name,
        script,
        tuple(wrappers),
        tuple(allow),
        tuple(dict.fromkeys(deny)),
        harmless,
        transparent,
        tuple(reads),
        tuple(variables),
        problem,
        splits_input,
    )


def _program_name(words: tuple[Word, ...]) -> str | None:
    if not words or words[0].kind != "literal":
        return None
    folder, name = os.path.split(words[0].text)
    return name if folder in _STANDARD_FOLDERS else words[0].text


def _deny_texts(words: tuple[Word, ...]) -> list[str]:
    return [command_text(words), unquoted_text(words)]


def _with_input_arguments(inner: InnerCommand, piped: PipelineInput) -> tuple[Word, ...]:
    """The command as `xargs` completes it. A file name split at a blank may continue with a dash, so its prefix is unknown."""
    piped = piped if inner.null_separated or piped.on_disk else PipelineInput(piped.folders)
    if not inner.placeholder:
        return (*inner.words, Word("", "multiple", "", piped.prefix, piped.folders))
    return fill_placeholder(inner.words, inner.placeholder, piped)


def fill_placeholder(words: tuple[Word, ...], placeholder: str, piped: PipelineInput) -> tuple[Word, ...]:
    """The command of `xargs -I` or `find -exec`, with a placeholder for each file name."""
    return tuple(_fill_word(word, placeholder, piped) for word in words)


def _fill_word(word: Word, placeholder: str, piped: PipelineInput) -> Word:
    if word.kind != "literal" or placeholder not in word.text:
        return word
    if word.text == placeholder:
        return Word(word.source, "single", "", piped.prefix, piped.folders)
    return Word(word.source, "single", word.text, word.text.partition(placeholder)[0])


class InnerCommand(Struct, frozen=True):
    """What one wrapper runs: a command (`words`) or shell text (`script`); the other fields as in `UnwrappedCommand`.

    `takes_input_arguments`: it adds arguments from its input, which are whole file names only if `null_separated`.
    """

    words: tuple[Word, ...] = ()
    script: Word | None = None
    transparent: bool = False
    harmless: bool = False
    reads: tuple[Word, ...] = ()
    variables: tuple[str, ...] = ()
    takes_input_arguments: bool = False
    placeholder: str = ""
    null_separated: bool = False


# Returns None if the wrapper runs nothing.
Unwrapper: TypeAlias = Callable[[tuple[Word, ...]], InnerCommand | None]


class CommandWrapper(Struct, frozen=True):
    """A wrapper with options, a fixed number of operands, and then a command."""

    options: str
    operands: int = 0
    transparent: bool = False
    harmless: bool = False
    takes_assignments: bool = False

    def __call__(self, args: tuple[Word, ...]) -> InnerCommand | None:
        parsed = parse_args(args, option_table(self.options, stops_at_operand=True))
        operands, words = parsed.operands[: self.operands], tuple(parsed.operands[self.operands :])
        while self.takes_assignments and words and _ASSIGNMENT.match(words[0].prefix):
            words = words[1:]
        if any(word.kind != "literal" for word in operands):
            raise UnknownArguments("an operand is not known in advance")
        if not words:
            return None
        harmless = self.harmless and not parsed.writes
        return InnerCommand(words, transparent=self.transparent, harmless=harmless, reads=tuple(parsed.reads))


def _env(args: tuple[Word, ...]) -> InnerCommand | None:
    options = "-i0v -u: --ignore-environment --null --unset= --debug !--split-string !--chdir"
    parsed = parse_args(args, option_table(options, stops_at_operand=True))
    variables: list[str] = []
    rest = parsed.operands
    cleared = parsed.has("-i", "--ignore-environment")
    if rest and rest[0].kind == "literal" and rest[0].text == "-":
        rest, cleared = rest[1:], True
    while rest and (match := _ASSIGNMENT.match(rest[0].prefix)):
        if rest[0].kind == "multiple":
            raise UnknownArguments("an assignment is not known in advance")
        variables.append(match.group(1))
        rest = rest[1:]
    if not rest:
        if variables:
            raise UnknownArguments("it sets variables for no command")
        return None
    # Unsetting PATH and the like decides what runs, as setting them does.
    unset = [word.text for word in parsed.values("-u", "--unset")]
    return InnerCommand(tuple(rest), harmless=not cleared, variables=(*variables, *unset))


def _command(args: tuple[Word, ...]) -> InnerCommand | None:
    if args and args[0].kind == "literal" and args[0].text in ("-v", "-V", "-pv", "-pV"):
        return None
    # With `-p` another program by the same name may run than the one on PATH, which is the one that is looked at.
    keeps_path = not (args and args[0].text.startswith("-p"))
    return CommandWrapper("-p", transparent=True, harmless=keeps_path)(args)


def _xargs(args: tuple[Word, ...]) -> InnerCommand | None:
    options = (
        "-0rtx -n: -P: -I: -L: -d: -s: -E: -a:r --null --no-run-if-empty --verbose --exit --max-args= --max-procs= --replace=? "
        "--max-lines=? --delimiter= --max-chars= --arg-file=r !--interactive !--open-tty !--process-slot-var"
    )
    parsed = parse_args(args, option_table(options, stops_at_operand=True))
    if parsed.reads:
        raise UnknownArguments("its arguments come from a file")
    for count in parsed.values("-P", "--max-procs"):
        if not _FEW.fullmatch(count.text):
            raise UnknownArguments("it runs processes in parallel without a small bound")
    return InnerCommand(
        tuple(parsed.operands) or (literal("echo"),),
        transparent=not parsed.options,
        harmless=True,
        takes_input_arguments=True,
        placeholder=_xargs_placeholder(parsed),
        null_separated=parsed.has("-0", "--null"),
    )


def _xargs_placeholder(parsed: ParsedArgs) -> str:
    if "--replace" in parsed.options:
        value = parsed.options["--replace"][-1]
        return value.text if value is not None else "{}"
    value = parsed.options.get("-I", [None])[-1]
    return value.text if value is not None else ""


def _shell(args: tuple[Word, ...]) -> InnerCommand | None:
    if len(args) == 1 and args[0].text == "--version":
        return None
    index, has_command, harmless = 0, False, True
    while index < len(args) and args[index].prefix.startswith(("-", "+")):
        word = args[index]
        index += 1
        if word.kind != "literal":
            raise UnknownArguments("its options are not known in advance")
        if word.text in ("-o", "+o", "-O", "+O"):
            if index >= len(args) or args[index].kind != "literal":
                raise UnknownArguments("a setting is not known in advance")
            index += 1
        elif word.text == "--":
            break
        elif _SHELL_FLAGS.fullmatch(word.text):
            has_command = has_command or "c" in word.text
            harmless = harmless and not set(word.text) & set("liv")
        elif word.text not in ("--norc", "--noprofile"):
            raise UnknownArguments(f"what the option `{word.text}` does is not known")
    if not has_command:
        return None
    if index >= len(args):
        raise UnknownArguments("the script of `-c` is missing")
    return InnerCommand(script=args[index], harmless=harmless, transparent=harmless)


def _foreign_shell(args: tuple[Word, ...]) -> InnerCommand | None:
    """A shell with another language: read as bash to find what rules forbid, never to prove anything."""
    inner = _shell(args)
    return inner and InnerCommand(script=inner.script)


def _eval(args: tuple[Word, ...]) -> InnerCommand | None:
    if args and args[0].kind == "literal" and args[0].text == "--":
        args = args[1:]
    if any(word.kind != "literal" for word in args):
        raise UnknownArguments("the text is not known in advance")
    return InnerCommand(script=_joined(args), harmless=True, transparent=True) if args else None


def _watch(args: tuple[Word, ...]) -> InnerCommand | None:
    options = "-bcdegtpwx -n: -q: --differences=? --interval= --no-title --exec --color"
    parsed = parse_args(args, option_table(options, stops_at_operand=True))
    if parsed.has("-x", "--exec"):
        return InnerCommand(tuple(parsed.operands))
    if any(word.kind != "literal" for word in parsed.operands):
        raise UnknownArguments("the text is not known in advance")
    return InnerCommand(script=_joined(tuple(parsed.operands))) if parsed.operands else None


def _joined(words: tuple[Word, ...]) -> Word:
    return literal(" ".join(word.text for word in words))


def _flock(args: tuple[Word, ...]) -> InnerCommand | None:
    options = "-senouxFv -w: -E: --shared --exclusive --nonblock --wait= --timeout= --close"
    parsed = parse_args(args, option_table(options, stops_at_operand=True))
    if len(parsed.operands) < 2:
        raise UnknownArguments("the command after the lock is missing")
    words = tuple(parsed.operands[1:])
    if words[0].text in ("-c", "--command") and len(words) == 2:
        return InnerCommand(script=words[1])
    return InnerCommand(words)


def _script_option(options: str) -> Unwrapper:
    """A wrapper whose `-c` or `--command` is shell text."""

    def unwrapper(args: tuple[Word, ...]) -> InnerCommand | None:
        parsed = parse_args(args, option_table(options))
        scripts = parsed.values("-c", "--command")
        if not scripts:
            raise UnknownArguments("the command is missing")
        return InnerCommand(script=scripts[-1])

    return unwrapper


_SUDO_OPTIONS = (
    "-AbEHKknPS -u: -g: -h: -p: -C: -D: -R: -T: --user= --group= --preserve-env=? --non-interactive --set-home --stdin"
)
_TIMEOUT_OPTIONS = "-fpv -k: -s: --foreground --preserve-status --verbose --kill-after= --signal="
_BASH_LIKE = ("sh", "bash", "dash")
SHELLS = word_set("sh bash dash zsh ksh fish ash")
_UNWRAPPERS: Mapping[str, Unwrapper] = {
    "timeout": CommandWrapper(_TIMEOUT_OPTIONS, 1, transparent=True, harmless=True),
    "time": CommandWrapper("-pqv --portability --quiet --verbose", transparent=True, harmless=True),
    "nice": CommandWrapper("-n: -# --adjustment=", transparent=True, harmless=True),
    "nohup": CommandWrapper("", transparent=True, harmless=True),
    "stdbuf": CommandWrapper("-i: -o: -e: --input= --output= --error=", transparent=True, harmless=True),
    "builtin": CommandWrapper("", transparent=True, harmless=True),
    # A keyword of zsh: in bash it would be some program of that name.
    "noglob": CommandWrapper("", transparent=True),
    "command": _command,
    "exec": CommandWrapper("-cl -a:"),
    "env": _env,
    "ionice": CommandWrapper("-t -c: -n: --class= --classdata= --ignore", harmless=True),
    "setsid": CommandWrapper("-cfw --ctty --fork --wait"),
    "chronic": CommandWrapper("-ev"),
    "unbuffer": CommandWrapper("-p"),
    "sudo": CommandWrapper(_SUDO_OPTIONS, takes_assignments=True),
    "doas": CommandWrapper("-nL -u: -C:"),
    **dict.fromkeys(("busybox", "toybox", "coreutils"), CommandWrapper("")),
    "chroot": CommandWrapper("--userspec= --groups= --skip-chdir", 1),
    "strace": CommandWrapper("-fqvtT -e: -o:w -s:"),
    "ltrace": CommandWrapper("-fS -e: -o:w"),
    "taskset": CommandWrapper("-c -a", 1),
    "chrt": CommandWrapper("-bfiorR", 1),
    "unshare": CommandWrapper("-rmnpuiUCf --map-root-user --mount --net --pid --fork"),
    "xargs": _xargs,
    "parallel": CommandWrapper("-k -j: -0 --jobs= --keep-order --will-cite"),
    "watch": _watch,
    "flock": _flock,
    "eval": _eval,
    "script": _script_option("-aefqV -c: -I: -O: -B: --command= --return --quiet --flush --append"),
    "su": _script_option("-lmpP -c: -s: -g: --command= --login --shell="),
    **dict.fromkeys(_BASH_LIKE, _shell),
    "zsh": _foreign_shell,
    "ksh": _foreign_shell,
    "fish": _foreign_shell,
}
WRAPPERS = frozenset(_UNWRAPPERS)
# These run whatever they are given, so that only a rule for the exact command may allow them.
EXACT_RULE_WRAPPERS = word_set("watch setsid ionice flock")
SAME_SHELL_WRAPPERS = word_set("command builtin")
# Its script runs in the shell itself.
SAME_SHELL_SCRIPT = "eval"
# These are often another shell than bash.
POSIX_SHELLS = word_set("sh dash")


def takes_input_arguments(wrappers: Collection[str]) -> bool:
    """Whether one of these wrappers adds words of its input, so that the text is only the beginning of the command."""
    return "xargs" in wrappers
