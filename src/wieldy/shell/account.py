"""What there is to say about a command beside its output: how it ended, why it may have hung, what it left running."""

from __future__ import annotations

from wieldy.schema.pattern import pattern
from wieldy.shell.exitcode import Ending
from wieldy.shell.run import Ran

LONG_SILENCE = 10.0
MOST_NAMED = 5

_CHANGES_DIRECTORY = pattern(r"(^|[;&|({\s])(cd|pushd|popd)\s")


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
        from wieldy.shell.sandbox import refusal_note

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
