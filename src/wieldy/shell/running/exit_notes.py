"""What there is to say about a command beside its output: how it ended, why it may have hung, what it left running."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping

from msgspec import Struct

from wieldy.shell.running.shell import Ran


class Ending(Struct, frozen=True):
    """How a command ended: whether that is an error, and what there is to say about it."""

    is_error: bool
    words: str


NO_MATCH = "no lines matched"
DIFFERENT = "the inputs differ"
FALSE = "the condition is false"
NOT_FOUND = "not found"

ANSWERS: Mapping[str, str] = {
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
"""Programs that say with exit code 1 what a person would not call a failure."""

SILENT = frozenset({"cd", "echo", "printf", "export", "set", "true", ":", "pwd", "sleep", "ls", "cat", "head", "shopt"})
WRAPPERS = frozenset({"env", "command", "builtin", "time", "nice", "nohup", "stdbuf", "sudo", "exec"})

_TOKEN = re.compile(
    r"""(?P<space>[ \t]+|\\\n|\#[^\n]*)
      | (?P<separator>&&|\|\||;;?|\|&?|&(?!>)|\n)
      | (?P<word>(?:[^\s;&|'"\\`$#]|\\.|'[^']*'|"(?:[^"\\]|\\.)*"|\$\([^()]*\)|`[^`]*`
          |[$]|(?<=\S)\#|(?<=[<>])&|&(?=>))+)
    """,
    re.VERBOSE | re.DOTALL,
)
_INTRICATE = re.compile(r"pipefail|<<|\bset\s+-\w*e|errexit|\b(if|for|while|case|function|trap)\b|\(\)|\{")
_REDIRECTION = re.compile(r"\d*(?:&?>>?|<<?<?)")


def meaning(command: str, code: int) -> Ending:
    """What an exit code of a command line says."""
    if code == 0:
        return Ending(False, "")
    if code < 0 or code > 128:
        return Ending(True, _signal_words(-code if code < 0 else code - 128))
    if code == 1 and (answer := _answer(command)):
        return Ending(False, answer)
    return Ending(True, {126: "it cannot be executed", 127: "command not found", 124: "timed out"}.get(code, ""))


def _signal_words(number: int) -> str:
    try:
        return f"killed by {signal.Signals(number).name}"
    except ValueError:
        return ""


def _answer(command: str) -> str | None:
    """The answer exit code 1 gives, if it can only have come from a program that answers."""
    if len(command) > 4_000 or _INTRICATE.search(command):
        return None
    stages = _last_chain(command)
    if not stages or (said := _question(stages[-1])) is None:
        return None
    if all(_question(stage) or (stage and stage[0] in SILENT) for stage in stages[:-1]):
        return said
    return None


def _last_chain(command: str) -> list[list[str]] | None:
    """The last `&&` chain of a command line, each link as the words of the last stage of its pipeline."""
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


def _question(words: list[str]) -> str | None:
    plain = [word for word in words if not _REDIRECTION.match(word)]
    while plain and (plain[0] in WRAPPERS or re.match(r"\w+=", plain[0]) or plain[0].startswith("-")):
        if plain[0] == "command" and plain[1:2] and plain[1] in ("-v", "-V"):
            return NOT_FOUND
        plain = plain[1:]
    if not plain:
        return None
    name = plain[0].rsplit("/", 1)[-1]
    if name != "git":
        return ANSWERS.get(name)
    rest = [word for word in plain[1:] if not word.startswith("-")]
    verb = f"git {rest[0]}" if rest else ""
    if verb.startswith("git diff") and not {"--exit-code", "--quiet", "-q", "--check"} & set(plain):
        return None
    if verb == "git merge-base" and "--is-ancestor" not in plain:
        return None
    return ANSWERS.get(verb)


LONG_SILENCE = 10.0
MOST_NAMED = 5

_CHANGES_DIRECTORY = re.compile(r"(^|[;&|({\s])(cd|pushd|popd)\s")


def ending_notes(ran: Ran, ending: Ending | None, limit: float, command: str, *, sandboxed: bool) -> list[str]:
    """How the command ended, in one or two lines; none for a plain success."""
    notes = []
    if ran.how == "timed out":
        notes.append(f"timed out after {limit:g} s: the command and everything it had started were ended")
        if ran.silent_seconds >= min(LONG_SILENCE, limit * 0.9):
            notes.append(
                f"it had printed nothing for {ran.silent_seconds:.0f} s: waiting for input, a lock, the network? "
                "There is no terminal; for slow work give a longer timeout or use run_in_background"
            )
    elif ending and ran.code:
        notes.append(f"exit code {_shown(ran.code)}{f': {ending.words}' if ending.words else ''}")
    if sandboxed and (ending is None or ending.is_error):
        from wieldy.shell.sandbox.sandbox import refusal_note

        if note := refusal_note(ran.text):
            notes.append(note)
    if ran.how == "exited" and ran.directory is None and _CHANGES_DIRECTORY.search(command):
        notes.append("where the shell ended is not known (exec, or an EXIT trap): the working directory is unchanged")
    return notes


def leftover_notes(ran: Ran, task: str | None) -> list[str]:
    """What the command left running, and how to reach it."""
    if not ran.leftovers:
        return []
    named = ", ".join(f"{process.name} (pid {process.pid})" for process in ran.leftovers[:MOST_NAMED])
    more = f" and {len(ran.leftovers) - MOST_NAMED} more" if len(ran.leftovers) > MOST_NAMED else ""
    if ran.how != "exited":
        return [f"could not be ended: {named}{more}"]
    reach = f"; read its output with BashOutput {task}, end it with KillShell {task}" if task else ""
    return [f"still running: {named}{more}{reach}"]


def _shown(code: int) -> int:
    """Bash itself reports a death by signal as 128 and the signal's number; so do we."""
    return 128 - code if code < 0 else code
