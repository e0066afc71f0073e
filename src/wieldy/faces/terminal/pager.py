"""Show a long text in the person's pager."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex

from wieldy.core.console import write
from wieldy.core.programs import own_program
from wieldy.faces.terminal.text import make_printable


async def show_in_pager(text: str) -> None:
    """Run `$PAGER`, else less or more, with the text; printed where there is none."""
    try:
        words = shlex.split(os.environ.get("PAGER", "")) or ["less"]
    except ValueError:  # a quote that is never closed
        words = ["less"]
    program, arguments = _find(words)
    printable = make_printable(text)
    if program is None:
        write(printable)
        return
    env = {**os.environ, "LESS": os.environ.get("LESS", "-RS"), "LESSSECURE": "1"}
    process = await asyncio.create_subprocess_exec(program, *arguments, stdin=asyncio.subprocess.PIPE, env=env)
    await process.communicate(printable.encode(errors="replace"))


def _find(words: list[str]) -> tuple[str | None, list[str]]:
    """The program to run and its arguments; not one of the project."""
    for candidate in (words, ["less"], ["more"]):
        with contextlib.suppress(FileNotFoundError):
            return own_program(candidate[0]), candidate[1:]
    return None, []
