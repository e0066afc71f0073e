"""A checker run as a program: something on stdin, its output back, and its whole tree ended when time is up."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Mapping, Sequence

from wieldy.core.threads import in_thread
from wieldy.shell.reap import Tree, end

MOST_OUTPUT = 4 << 20


async def output_of(argv: Sequence[str], *, stdin: bytes = b"", cwd: str, env: Mapping[str, str]) -> str | None:
    """What a program printed, both streams, or None if it could not be started. Cancelling ends the program."""
    name, value = "WIELDY_CHECKER", secrets.token_hex(8)
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            cwd=cwd,
            env={**env, name: value},
            start_new_session=True,
        )
    except (OSError, ValueError):
        return None
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        _, printed = await asyncio.gather(_fed(process.stdin, stdin), _read(process.stdout))
        await process.wait()
        return printed
    finally:
        if process.returncode is None:
            await in_thread(end, Tree(f"{name}={value}", frozenset({process.pid})), grace=0.0)
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def _fed(pipe: asyncio.StreamWriter, data: bytes) -> None:
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        pipe.write(data)
        await pipe.drain()
        pipe.close()


async def _read(pipe: asyncio.StreamReader) -> str:
    """The first megabytes; the rest is read and forgotten, so that the program does not block."""
    kept = bytearray()
    while piece := await pipe.read(1 << 16):
        if len(kept) < MOST_OUTPUT:
            kept += piece
    return kept.decode("utf-8", "replace")
