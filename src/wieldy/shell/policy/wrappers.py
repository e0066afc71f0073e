"""Programs that run another program: what they run, and whether a rule or a proof may look through them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TypeAlias

from msgspec import Struct

from wieldy.shell.policy.programs.options import Parsed, names, read, table
from wieldy.shell.policy.words import Word, plain

_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=")
_SHELL_FLAGS = re.compile(r"-[ceuxlivn]+")


class Peeled(Struct, frozen=True):
    """What a wrapper runs: a command (`inner`) or shell text (`script`).

    `transparent`: a rule for what is inside is enough. `quiet`: the wrapper adds nothing that changes anything. `fed`: it adds
    arguments from its input, which are `whole` file names only where they are not split at blanks.
    """

    inner: tuple[Word, ...] = ()
    script: Word | None = None
    transparent: bool = False
    quiet: bool = False
    reads: tuple[Word, ...] = ()
    variables: tuple[str, ...] = ()
    fed: bool = False
    placeholder: str = ""
    whole: bool = False
    problem: str = ""


Peeler: TypeAlias = Callable[[tuple[Word, ...]], Peeled | None]


def peel(words: tuple[Word, ...], program: str) -> Peeled | None:
    """What `words` run, if their program is a wrapper and runs anything."""
    peeler = _PEELERS.get(program)
    return peeler(words[1:]) if peeler else None


class Plain(Struct, frozen=True):
    """A wrapper with options, a fixed number of operands, and then a command."""

    spec: str
    operands: int = 0
    transparent: bool = False
    quiet: bool = False
    assigns: bool = False

    def __call__(self, args: tuple[Word, ...]) -> Peeled | None:
        """What these arguments run."""
        parsed = read(args, table(self.spec, stops_at_operand=True))
        if parsed.problem:
            return Peeled(problem=parsed.problem)
        head, inner = parsed.operands[: self.operands], tuple(parsed.operands[self.operands :])
        while self.assigns and inner and _ASSIGNMENT.match(inner[0].prefix):
            inner = inner[1:]
        if any(not word.static for word in head):
            return Peeled(problem="an operand that cannot be told")
        if not inner:
            return None
        return Peeled(
            inner, transparent=self.transparent, quiet=self.quiet and not parsed.writes, reads=tuple(parsed.reads)
        )


def _env(args: tuple[Word, ...]) -> Peeled | None:
    parsed = read(
        args,
        table("-i0v -u: --ignore-environment --null --unset= --debug !--split-string !--chdir", stops_at_operand=True),
    )
    if parsed.problem:
        return Peeled(problem=parsed.problem)
    variables: list[str] = []
    rest = parsed.operands
    cleared = parsed.has("-i", "--ignore-environment")
    if rest and rest[0].static and rest[0].text == "-":
        rest, cleared = rest[1:], True
    while rest and (found := _ASSIGNMENT.match(rest[0].prefix)):
        if rest[0].kind == "multiple":
            return Peeled(problem="an assignment that cannot be told")
        variables.append(found.group(1))
        rest = rest[1:]
    # Unsetting is setting, too: PATH and the like decide what runs.
    unset = [word.text for name in ("-u", "--unset") for word in parsed.found.get(name, []) if word is not None]
    if not rest:
        return None if not variables else Peeled(problem="`env` with assignments and no command")
    return Peeled(tuple(rest), quiet=not cleared, variables=(*variables, *unset))


def _command(args: tuple[Word, ...]) -> Peeled | None:
    if args and args[0].static and args[0].text in ("-v", "-V", "-pv", "-pV"):
        return None
    return Plain("-p", transparent=True, quiet=True)(args)


def _xargs(args: tuple[Word, ...]) -> Peeled | None:
    spec = (
        "-0rtx -n: -P: -I: -L: -d: -s: -E: -a:r --null --no-run-if-empty --verbose --exit --max-args= --max-procs= --replace=? "
        "--max-lines=? --delimiter= --max-chars= --arg-file=r !--interactive !--open-tty !--process-slot-var"
    )
    parsed = read(args, table(spec, stops_at_operand=True))
    if parsed.problem:
        return Peeled(problem=parsed.problem)
    inner = tuple(parsed.operands) or (plain("echo"),)
    return Peeled(
        inner,
        transparent=not parsed.found,
        quiet=True,
        reads=tuple(parsed.reads),
        fed=True,
        placeholder=_placeholder(parsed),
        whole=parsed.has("-0", "--null"),
    )


def _placeholder(parsed: Parsed) -> str:
    if "--replace" in parsed.found:
        value = parsed.found["--replace"][-1]
        return value.text if value is not None else "{}"
    value = parsed.found.get("-I", [None])[-1]
    return value.text if value is not None else ""


def _shell(args: tuple[Word, ...]) -> Peeled | None:
    if len(args) == 1 and args[0].text == "--version":
        return None
    index, command, quiet = 0, False, True
    while index < len(args) and args[index].prefix.startswith(("-", "+")):
        word = args[index]
        index += 1
        if not word.static:
            return Peeled(problem="options that cannot be told")
        if word.text in ("-o", "+o", "-O", "+O"):
            if index >= len(args) or not args[index].static:
                return Peeled(problem="a setting that cannot be told")
            index += 1
        elif word.text == "--":
            break
        elif _SHELL_FLAGS.fullmatch(word.text):
            command = command or "c" in word.text
            quiet = quiet and not set(word.text) & set("liv")
        elif word.text not in ("--norc", "--noprofile"):
            return Peeled(problem=f"the option `{word.text}`")
    if not command:
        return None
    if index >= len(args):
        return Peeled(problem="`-c` without a script")
    return Peeled(script=args[index], quiet=quiet, transparent=quiet)


def _foreign_shell(args: tuple[Word, ...]) -> Peeled | None:
    """Another shell's language: read as bash to find what rules forbid, never to prove anything."""
    found = _shell(args)
    return found and Peeled(script=found.script, problem=found.problem)


def _eval(args: tuple[Word, ...]) -> Peeled | None:
    if args and args[0].static and args[0].text == "--":
        args = args[1:]
    if any(not word.static for word in args):
        return Peeled(problem="`eval` of text that cannot be told")
    return Peeled(script=plain(" ".join(word.text for word in args)), quiet=True, transparent=True) if args else None


def _watch(args: tuple[Word, ...]) -> Peeled | None:
    parsed = read(
        args, table("-bcdegtpwx -n: -q: --differences=? --interval= --no-title --exec --color", stops_at_operand=True)
    )
    if parsed.problem:
        return Peeled(problem=parsed.problem)
    if parsed.has("-x", "--exec"):
        return Peeled(tuple(parsed.operands))
    if any(not word.static for word in parsed.operands):
        return Peeled(problem="`watch` of text that cannot be told")
    return Peeled(script=plain(" ".join(word.text for word in parsed.operands))) if parsed.operands else None


def _flock(args: tuple[Word, ...]) -> Peeled | None:
    parsed = read(
        args,
        table("-senouxFv -w: -E: --shared --exclusive --nonblock --wait= --timeout= --close", stops_at_operand=True),
    )
    if parsed.problem or len(parsed.operands) < 2:
        return Peeled(problem=parsed.problem or "a lock without a command")
    behind = tuple(parsed.operands[1:])
    if behind[0].text in ("-c", "--command") and len(behind) == 2:
        return Peeled(script=behind[1])
    return Peeled(behind)


def _text_option(spec: str, *options: str) -> Peeler:
    def peeler(args: tuple[Word, ...]) -> Peeled | None:
        parsed = read(args, table(spec))
        found = [word for name in options for word in parsed.found.get(name, []) if word is not None]
        if parsed.problem or not found:
            return Peeled(problem=parsed.problem or "no command")
        return Peeled(script=found[-1])

    return peeler


_SUDO = Plain(
    "-AbEHKknPS -u: -g: -h: -p: -C: -D: -R: -T: --user= --group= --preserve-env=? --non-interactive --set-home --stdin",
    assigns=True,
)
_SHELLS = names("sh bash dash")
SHELLS = _SHELLS | names("zsh ksh fish ash")
_PEELERS: Mapping[str, Peeler] = {
    "timeout": Plain(
        "-fpv -k: -s: --foreground --preserve-status --verbose --kill-after= --signal=", 1, transparent=True, quiet=True
    ),
    "time": Plain("-pqv --portability --quiet --verbose", transparent=True, quiet=True),
    "nice": Plain("-n: -# --adjustment=", transparent=True, quiet=True),
    "nohup": Plain("", transparent=True, quiet=True),
    "stdbuf": Plain("-i: -o: -e: --input= --output= --error=", transparent=True, quiet=True),
    "builtin": Plain("", transparent=True, quiet=True),
    # A word of another shell: here it would be some program of that name.
    "noglob": Plain("", transparent=True),
    "command": _command,
    "exec": Plain("-cl -a:"),
    "env": _env,
    "ionice": Plain("-t -c: -n: --class= --classdata= --ignore", quiet=True),
    "setsid": Plain("-cfw --ctty --fork --wait"),
    "chronic": Plain("-ev"),
    "unbuffer": Plain("-p"),
    "sudo": _SUDO,
    "doas": Plain("-nL -u: -C:"),
    "busybox": Plain(""),
    "chroot": Plain("--userspec= --groups= --skip-chdir", 1),
    "strace": Plain("-fqvtT -e: -o:w -s:"),
    "ltrace": Plain("-fS -e: -o:w"),
    "taskset": Plain("-c -a", 1),
    "chrt": Plain("-bfiorR", 1),
    "unshare": Plain("-rmnpuiUCf --map-root-user --mount --net --pid --fork"),
    "xargs": _xargs,
    "parallel": Plain("-k -j: -0 --jobs= --keep-order --will-cite"),
    "watch": _watch,
    "flock": _flock,
    "eval": _eval,
    "script": _text_option("-aefqV -c: -I: -O: -B: --command= --return --quiet --flush --append", "-c", "--command"),
    "su": _text_option("-lmpP -c: -s: -g: --command= --login --shell=", "-c", "--command"),
    **dict.fromkeys(_SHELLS, _shell),
    "zsh": _foreign_shell,
    "ksh": _foreign_shell,
    "fish": _foreign_shell,
}
WRAPPERS = frozenset(_PEELERS)
