"""Notes on a command beside its output: what its exit code means, why it may have hung, what it left running."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping

from msgspec import Struct

from wieldy.shell.running.shell import CommandResult


class ExitMeaning(Struct, frozen=True):
    """Whether an exit code is an error, and what it says."""

    is_error: bool
    note: str


LONG_SILENCE = 10.0
MAX_NAMED = 5
NO_MATCH = "no lines matched"
DIFFERENT = "the inputs differ"
FALSE = "the condition is false"
NOT_FOUND = "not found"

EXIT_1_ANSWERS: Mapping[str, str] = {
    **dict.fromkeys(("grep", "egrep", "fgrep", "zgrep", "rg", "ag", "ack"), NO_MATCH),
    **dict.fromkeys(("diff", "cmp", "colordiff", "zdiff"), DIFFERENT),
    **dict.fromkeys(("test", "[", "[["), FALSE),
    **dict.fromkeys(("pgrep", "pidof"), "no process matched"),
    **dict.fromkeys(("which", "type", "command -v", "command -V"), NOT_FOUND),
    "git grep": NO_MATCH,
    "git diff": "there are differences",
    "git diff-index": "there are differences",
    "git diff-files": "there are differences",
    "git check-ignore": "no path is ignored",
    "git merge-base": "it is not an ancestor",
    "expr": "the result is empty or zero",
}
"""Programs whose exit code 1 is an answer, not an error."""

NEVER_FAIL = frozenset(
    {"cd", "echo", "printf", "export", "set", "true", ":", "pwd", "sleep", "ls", "cat", "head", "shopt"}
)
WRAPPERS = frozenset({"env", "command", "builtin", "time", "nice", "nohup", "stdbuf", "sudo", "exec"})

_TOKEN = re.compile(
    r"""(?P<space>[ \t]+|\\\n|\#[^\n]*)
      | (?P<separator>&&|\|\||;;?|\|&?|&(?!>)|\n)
      | (?P<word>(?:[^\s;&|'"\\`$#]|\\.|'[^']*'|"(?:[^"\\]|\\.)*"|\$\([^()]*\)|`[^`]*`
          |[$]|(?<=\S)\#|(?<=[<>])&|&(?=>))+)
    """,
    re.VERBOSE | re.DOTALL,
)
_COMPLEX = re.compile(r"pipefail|<<|\bset\s+-\w*e|errexit|\b(if|for|while|case|function|trap)\b|\(\)|\{")
_CHANGES_DIRECTORY = re.compile(r"(^|[;&|({\s])(cd|pushd|popd)\s")
_REDIRECTION = re.compile(r"\d*(?:&?>>?|<<?<?)")


def explain_exit_code(command: str, code: int) -> ExitMeaning:
    """What the exit code of a command line means."""
    if code == 0:
        return ExitMeaning(False, "")
    if code < 0 or code > 128:
        return ExitMeaning(True, _signal_note(-code if code < 0 else code - 128))
    if code == 1 and (answer := _exit_1_answer(command)):
        return ExitMeaning(False, answer)
    return ExitMeaning(True, {126: "it cannot be executed", 127: "command not found", 124: "timed out"}.get(code, ""))


def _signal_note(number: int) -> str:
    try:
        return f"killed by {signal.Signals(number).name}"
    except ValueError:
        return ""


def _exit_1_answer(command: str) -> str | None:
    """What exit code 1 means, if it can only come from a program that answers with it."""
    if len(command) > 4_000 or _COMPLEX.search(command):
        return None
    stages = _last_chain(command)
    if not stages or (answer := _stage_answer(stages[-1])) is None:
        return None
    if all(_stage_answer(stage) or (stage and stage[0] in NEVER_FAIL) for stage in stages[:-1]):
        return answer
    return None


def _last_chain(command: str) -> list[list[str]] | None:
    """The last `&&` chain of a command line, each link as the words of its pipeline's last stage."""
    links: list[list[str]] = [[]]
    position = 0
    while position < len(command):
        token = _TOKEN.match(command, position)
        if token is None:
            return None
        position = token.end()
        if word := token["word"]:
            links[-1].append(word)
        elif separator := token["separator"]:
            if separator in ("||", "&"):
                return None
            if separator in ("|", "|&"):
                links[-1] = []
            elif separator == "&&":
                links.append([])
            elif command[position:].strip(" \t\n;"):
                links = [[]]
    return [link for link in links if link]


def _stage_answer(words: list[str]) -> str | None:
    """What exit code 1 of this simple command means."""
    arguments = [word for word in words if not _REDIRECTION.match(word)]
    while arguments and (arguments[0] in WRAPPERS or re.match(r"\w+=", arguments[0]) or arguments[0].startswith("-")):
        if arguments[0] == "command" and arguments[1:2] and arguments[1] in ("-v", "-V"):
            return NOT_FOUND
        arguments = arguments[1:]
    if not arguments:
        return None
    name = arguments[0].rsplit("/", 1)[-1]
    if name != "git":
        return EXIT_1_ANSWERS.get(name)
    rest = [word for word in arguments[1:] if not word.startswith("-")]
    verb = f"git {rest[0]}" if rest else ""
    if verb.startswith("git diff") and not {"--exit-code", "--quiet", "-q", "--check"} & set(arguments):
        return None
    if verb == "git merge-base" and "--is-ancestor" not in arguments:
        return None
    return EXIT_1_ANSWERS.get(verb)


def end_notes(
    result: CommandResult, meaning: ExitMeaning | None, limit: float, command: str, *, sandboxed: bool
) -> list[str]:
    """How the command ended, in one or two lines; none for a plain success."""
    notes = []
    if result.reason == "timed out":
        notes.append(f"timed out after {limit:g} s: the command and everything it had started were ended")
        if result.silent_seconds >= min(LONG_SILENCE, limit * 0.9):
            notes.append(
                f"it had printed nothing for {result.silent_seconds:.0f} s: waiting for input, a lock, the network? "
                "There is no terminal; for slow work give a longer timeout or use run_in_background"
            )
    elif meaning and result.code:
        notes.append(f"exit code {_shell_code(result.code)}{f': {meaning.note}' if meaning.note else ''}")
    if sandboxed and (meaning is None or meaning.is_error):
        from wieldy.shell.sandbox.sandbox import refusal_note

        if note := refusal_note(result.text):
            notes.append(note)
    if result.reason == "exited" and result.directory is None and _CHANGES_DIRECTORY.search(command):
        notes.append("where the shell ended is not known (exec, or an EXIT trap): the working directory is unchanged")
    return notes


def leftover_notes(result: CommandResult, task: str | None) -> list[str]:
    """What the command left running, and how to read and end it."""
    if not result.leftovers:
        return []
    names = ", ".join(f"{process.name} (pid {process.pid})" for process in result.leftovers[:MAX_NAMED])
    more = f" and {len(result.leftovers) - MAX_NAMED} more" if len(result.leftovers) > MAX_NAMED else ""
    if result.reason != "exited":
        return [f"could not be ended: {names}{more}"]
    reach = f"; read its output with BashOutput {task}, end it with KillShell {task}" if task else ""
    return [f"still running: {names}{more}{reach}"]


def _shell_code(code: int) -> int:
    """Like bash, report a death by signal as 128 plus its number."""
    return 128 - code if code < 0 else code
