"""The end of a command in the foreground: what it printed, how it ended, and what it left running."""

from __future__ import annotations

from typing import Literal

from wieldy.core.record import record
from wieldy.shell.reap import Process
from wieldy.shell.shell import Shell

HURRIED = 0.3

How = Literal["exited", "timed out", "interrupted"]


@record
class Ran:
    """A command that is over. `code` is None where we ended it; `directory` is where bash stood, if it could say."""

    how: How
    code: int | None
    text: str
    seconds: float
    silent_seconds: float
    total_bytes: int
    omitted: int
    path: str | None
    directory: str | None
    leftovers: tuple[Process, ...]


async def finished(shell: Shell) -> Ran:
    """The account of a shell that has exited by itself. Its output stays open while children of it hold the other end."""
    await shell.drain.settle()
    leftovers = tuple(await shell.leftovers())
    directory = shell.final_directory()
    if not leftovers or shell.drain.ended.done():
        await shell.wind_up()
    return _account(shell, "exited", directory, leftovers)


async def cut_short(shell: Shell, how: How) -> Ran:
    """End a shell and all it started, and give account of it."""
    silent = shell.silent_seconds
    survivors = tuple(await shell.end(HURRIED))
    await shell.drain.settle(quiet=0.02, limit=0.1)
    directory = shell.final_directory()
    await shell.wind_up()
    return _account(shell, how, directory, survivors, silent)


def _account(
    shell: Shell, how: How, directory: str | None, leftovers: tuple[Process, ...], silent: float | None = None
) -> Ran:
    excerpt = shell.capture.excerpt()
    path = shell.capture.path
    return Ran(
        how=how,
        code=shell.exit.result() if how == "exited" else None,
        text=excerpt.text,
        seconds=shell.seconds,
        silent_seconds=shell.silent_seconds if silent is None else silent,
        total_bytes=shell.capture.total,
        omitted=excerpt.omitted,
        path=str(path) if path else None,
        directory=directory,
        leftovers=leftovers,
    )
