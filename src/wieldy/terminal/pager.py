"""Show a long text in the person's pager."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil

from wieldy.console import write
from wieldy.terminal.text import make_printable


async def show_in_pager(text: str) -> None:
    """Run `$PAGER`, else less or more, with the text; printed where there is none."""
    try:
        words = shlex.split(os.environ.get("PAGER", "")) or ["less"]
    except ValueError:  # a quote that is never closed
        words = ["less"]
    program = shutil.which(words[0]) or shutil.which("less") or shutil.which("more")
    printable = make_printable(text)
    if program is None:
        write(printable)
        return
    env = {**os.environ, "LESS": os.environ.get("LESS", "-RS"), "LESSSECURE": "1"}
    process = await asyncio.create_subprocess_exec(
        program, *(words[1:] if shutil.which(words[0]) else ()), stdin=asyncio.subprocess.PIPE, env=env
    )
    await process.communicate(printable.encode(errors="replace"))
