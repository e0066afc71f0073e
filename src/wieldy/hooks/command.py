"""Runs one hook that is a command: JSON on stdin, text and an exit code back, in bounded time, its whole tree ended."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Mapping

from wieldy.core.record import record
from wieldy.core.threads import in_thread
from wieldy.hooks.configured import Hook
from wieldy.hooks.moment import Moment
from wieldy.shell.reap import Tree, end

MOST_OUTPUT = 1 << 20


@record
class Raw:
    """What came back of a hook, uninterpreted. `trouble` says why there is no exit code."""

    exit_code: int | None
    stdout: str = ""
    stderr: str = ""
    trouble: str = ""


async def run_command(hook: Hook, moment: Moment, env: Mapping[str, str]) -> Raw:
    """Run the hook's command. Never raises for what the hook does."""
    mark = f"WIELDY_HOOK={os.urandom(8).hex()}"
    name, _, value = mark.partition("=")
    surroundings = {**env, name: value, "WIELDY_PROJECT_DIR": moment.cwd, "CLAUDE_PROJECT_DIR": moment.cwd}
    argv = ("/bin/sh", "-c", hook.command) if isinstance(hook.command, str) else hook.command or ()
    cwd = moment.cwd if os.path.isdir(moment.cwd) else None
    pipe = asyncio.subprocess.PIPE
    try:
        process = await asyncio.create_subprocess_exec(
            *argv, stdin=pipe, stdout=pipe, stderr=pipe, cwd=cwd, env=surroundings, start_new_session=True
        )
    except (OSError, ValueError) as error:
        return Raw(None, trouble=f"could not start: {getattr(error, 'strerror', None) or error}")
    told = json.dumps(moment.payload(), ensure_ascii=False, default=str).encode("utf-8", "replace")
    try:
        async with asyncio.timeout(hook.seconds):
            stdout, stderr, code = await _talk(process, told)
    except TimeoutError:
        return Raw(None, trouble=f"did not end within {hook.seconds:g} s and was stopped")
    finally:
        if process.returncode is None:
            await in_thread(end, Tree(mark, frozenset({process.pid})), grace=0.2)
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    return Raw(code, stdout, stderr)


async def _talk(process: asyncio.subprocess.Process, told: bytes) -> tuple[str, str, int]:
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        process.stdin.write(told)
        await process.stdin.drain()
    process.stdin.close()
    reading = asyncio.gather(_bounded(process.stdout), _bounded(process.stderr))
    code = await process.wait()
    try:
        # A child the hook left behind may hold the pipes: what is there is read, nobody waits for their end.
        stdout, stderr = await asyncio.wait_for(asyncio.shield(reading), 1.0)
    except TimeoutError:
        reading.cancel()
        stdout, stderr = "", "(the hook left something running that keeps its output open)"
    return stdout, stderr, code


async def _bounded(stream: asyncio.StreamReader) -> str:
    """The first megabyte, as text; the rest is read and forgotten, so that the hook does not block."""
    kept = bytearray()
    while data := await stream.read(1 << 16):
        if len(kept) < MOST_OUTPUT:
            kept += data[: MOST_OUTPUT - len(kept)]
    return kept.decode("utf-8", "replace")
