"""Notes on a command beside its output: what its exit code means, why it may have hung, what it left running."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable

from msgspec import Struct

from wieldy.shell.effects.programs.exit_codes import NEVER_FAIL, exit_1_answer
from wieldy.shell.parsing.parser import parse
from wieldy.shell.parsing.syntax import Command, ConditionCommand, SimpleCommand, Unparsable
from wieldy.shell.running.shell import CommandResult, Shell


class ExitMeaning(Struct, frozen=True):
    """Whether an exit code is an error, and what it says."""

    is_error: bool
    note: str


LONG_SILENCE = 10.0
MAX_NAMED = 5

# What changes how an exit code comes about; `!` is not in the syntax tree.
_CONTROLS_EXIT = re.compile(
    r"pipefail|<<|\bset\s+-\w*e|errexit|\b(if|for|while|case|function|trap)\b|\(\)|\{|(^|[\s;&|])!\s"
)
_CHANGES_DIRECTORY = re.compile(r"(^|[;&|({\s])(cd|pushd|popd)\s")


MAX_SEARCHED = 4_000
_NO_MEMORY = re.compile(
    r"^[\w.-]+: .*(memory exhausted|[Cc]an(not|'t) allocate|failed to allocate|[Oo]ut of memory)"
    r"|^fatal: [Oo]ut of memory|std::bad_alloc|^memory allocation of \d+ bytes failed",
    re.MULTILINE,
)
_FILE_TOO_LARGE = re.compile(r"File too large|File size limit exceeded|EFBIG")


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
    if len(command) > 4_000 or _CONTROLS_EXIT.search(command):
        return None
    try:
        lists = parse(command).and_or_lists
    except Unparsable:
        return None
    if not lists or lists[-1].background or any(operator == "||" for operator, _ in lists[-1].links):
        return None
    *earlier, last = [_words(pipeline.stages[-1]) for _, pipeline in lists[-1].links]
    if all(exit_1_answer(words) or (words and words[0] in NEVER_FAIL) for words in earlier):
        return exit_1_answer(last)
    return None


def _words(command: Command) -> list[str]:
    if isinstance(command, ConditionCommand):
        return ["[["]
    return [word.source for word in command.words] if isinstance(command, SimpleCommand) else []


def end_notes(result: CommandResult, meaning: ExitMeaning | None, limit: float, command: str) -> list[str]:
    """How the command ended, in one or two lines; none for a plain success."""
    notes = []
    if result.reason == "timed out":
        notes.append(f"timed out after {limit:g} s: the command and everything it had started were ended")
        if result.silent_seconds >= min(LONG_SILENCE, limit * 0.9):
            notes.append(
                f"it had printed nothing for {round(result.silent_seconds, 1):g} s: waiting for input, a lock, the network? "
                "There is no terminal; for slow work give a longer timeout or use run_in_background"
            )
    elif meaning and result.code:
        notes.append(f"exit code {_shell_code(result.code)}{f': {meaning.note}' if meaning.note else ''}")
    if result.reason == "exited" and result.directory is None and _CHANGES_DIRECTORY.search(command):
        notes.append("where the shell ended is not known (exec, or an EXIT trap): the working directory is unchanged")
    return notes


def limit_notes(shell: Shell, result: CommandResult) -> list[str]:
    """Which limit of proven commands ended this one, and the setting that raises it."""
    limits = shell.limits
    if shell.exceeded == "memory":
        what = f"its processes together took more than {limits.memory_mb} MB of memory, so all of them were ended"
        return [f"{what}: the user can raise `bash.maxMemoryMb`"]
    if shell.exceeded == "processes":
        what = f"it started more than {limits.processes} processes, so all of them were ended"
        return [f"{what}: the user can raise `bash.maxProcesses`"]
    signaled = -result.code if result.code is not None and result.code < 0 else (result.code or 0) - 128
    if limits.file_mb and (signaled == signal.SIGXFSZ or _FILE_TOO_LARGE.search(result.text)):
        return [f"a file of it reached the limit of {limits.file_mb} MB: the user can raise `bash.maxFileMb`"]
    # A program that is not given memory complains or crashes; one that doubles what it has crashes at half of the limit.
    has_crashed = signaled in (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS) and shell.peak_mb > limits.memory_mb // 3
    if limits.memory_mb and (has_crashed or _NO_MEMORY.search(result.text[-MAX_SEARCHED:])):
        return [
            f"a process of it reached the limit of {limits.memory_mb} MB of memory: the user can raise `bash.maxMemoryMb`"
        ]
    return []


def hidden_variable_notes(hidden: Iterable[str], command: str, output: str) -> list[str]:
    """Which variables a command was not given, if it or its output mentions them."""
    words = set(re.findall(r"\w+", f"{command} {output}"))
    if not (names := [name for name in hidden if name in words]):
        return []
    what = "looks like a secret and is" if len(names) == 1 else "look like secrets and are"
    return [f"{', '.join(names)} {what} not given to commands; the user can allow it by name in `bash.keepEnv`"]


def leftover_notes(result: CommandResult, task: str | None) -> list[str]:
    """What the command left running, and how to read and end it."""
    if not result.leftovers:
        return []
    names = ", ".join(
        f"{process.name} (pid {process.pid})" if process.pid else process.name
        for process in result.leftovers[:MAX_NAMED]
    )
    more = f" and {len(result.leftovers) - MAX_NAMED} more" if len(result.leftovers) > MAX_NAMED else ""
    if result.reason != "exited":
        return [f"could not be ended: {names}{more}"]
    reach = f"; read its output with BashOutput {task}, end it with KillShell {task}" if task else ""
    return [f"still running: {names}{more}{reach}"]


def _shell_code(code: int) -> int:
    """Like bash, report a death by signal as 128 plus its number."""
    return 128 - code if code < 0 else code
