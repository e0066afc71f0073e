"""A server as a process: messages of any size line by line, noise skipped, stderr kept short, and no process left behind."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from wieldy.core.threads import in_thread
from wieldy.mcp.listing import mended
from wieldy.mcp.tail import Tail
from wieldy.shell.environment import MARK
from wieldy.shell.reap import Tree, end

log = logging.getLogger("wieldy")

CHUNK = 1 << 18
LONGEST = 256 << 20
QUEUED = 64
LEAVE_SECONDS = 1.0
DRAIN_SECONDS = 0.3
SHOWN = 200

PASSED_ON = frozenset(
    {
        *("HOME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER"),
        *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "no_proxy", "all_proxy"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE"),
        *("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT", "APPDATA", "LOCALAPPDATA", "USERPROFILE", "PATHEXT"),
    }
)


@dataclass(slots=True)
class Program:
    """What to run, what becomes of its words, and whom to tell of its process and its end."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    mark: str
    stderr: Tail
    started: Callable[[int], None]
    gone: Callable[[str], None]
    noise: int = 0


def environment(surrounding: Mapping[str, str], own: Mapping[str, str], mark: str) -> dict[str, str]:
    """What a server sees: what every program needs, what its entry gives it, and a mark to find its processes by."""
    env = {name: value for name, value in surrounding.items() if name in PASSED_ON or name.startswith("LC_")}
    outer = surrounding.get(MARK)
    return {**env, **own, MARK: f"{outer} {mark}" if outer else mark}


@asynccontextmanager
async def running(program: Program) -> AsyncIterator[Any]:
    """The streams of a server for as long as the block lasts; afterwards nothing of it runs any more."""
    import anyio

    process = await asyncio.create_subprocess_exec(
        *program.argv,
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        cwd=program.cwd,
        env=dict(program.env),
        start_new_session=True,
    )
    program.started(process.pid)
    incoming, read_stream = anyio.create_memory_object_stream[Any](QUEUED)
    write_stream, outgoing = anyio.create_memory_object_stream[Any](QUEUED)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_listen, process, incoming, program)
            tasks.start_soon(_speak, process, outgoing)
            tasks.start_soon(_overhear, process, program.stderr)
            tasks.start_soon(_outlive, process, incoming)
            try:
                yield read_stream, write_stream
            finally:
                with anyio.CancelScope(shield=True):
                    await _end(process, program.mark)
                tasks.cancel_scope.cancel()
    finally:
        for stream in (incoming, read_stream, write_stream, outgoing):
            stream.close()
        _release(process)


async def _listen(process: Process, incoming: Any, program: Program) -> None:
    """Every line of stdout that is a message, to the session. Ends with the stream, and says so."""
    import anyio

    pieces: list[bytes] = []
    held = 0
    assert process.stdout
    try:
        while chunk := await process.stdout.read(CHUNK):
            *lines, rest = chunk.split(b"\n")
            for line in lines:
                message = _message(b"".join((*pieces, line)) if pieces else line, program)
                pieces, held = [], 0
                if message is not None:
                    await incoming.send(message)
            pieces.append(rest)
            held += len(rest)
            if held > LONGEST:
                log.error("%s: a message of more than %d MiB", program.argv[0], LONGEST >> 20)
                break
    except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
        pass
    finally:
        incoming.close()
        program.gone("it ended" if process.returncode is None else f"it ended with exit code {process.returncode}")


def _message(line: bytes, program: Program) -> Any:
    """A line as a message; None for noise, which some programs print before or between."""
    from mcp.shared.message import SessionMessage
    from mcp_types import jsonrpc_message_adapter

    if not line.strip():
        return None
    try:
        message = jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValueError:
        program.noise += 1
        if program.noise <= 20:
            log.info("%s printed what is no message: %s", program.argv[0], line[:SHOWN].decode("utf-8", "replace"))
            program.stderr.add(b"(on stdout) " + line[:SHOWN] + b"\n")
        return None
    mended(getattr(message, "result", None))
    return SessionMessage(message)


async def _speak(process: Process, outgoing: Any) -> None:
    assert process.stdin
    with contextlib.suppress(OSError):
        async for item in outgoing:
            process.stdin.write(item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
            await process.stdin.drain()


async def _overhear(process: Process, stderr: Tail) -> None:
    assert process.stderr
    with contextlib.suppress(OSError):
        while piece := await process.stderr.read(CHUNK):
            stderr.add(piece)


async def _outlive(process: Process, incoming: Any) -> None:
    """Close the line when the process is dead although a child of it still holds its stdout."""
    if not hasattr(os, "pidfd_open"):
        return
    try:
        handle = os.pidfd_open(process.pid)
    except OSError:
        return
    loop = asyncio.get_running_loop()
    dead = asyncio.Event()
    loop.add_reader(handle, dead.set)
    try:
        await dead.wait()
    finally:
        loop.remove_reader(handle)
        os.close(handle)
    await asyncio.sleep(DRAIN_SECONDS)
    incoming.close()


async def _end(process: Process, mark: str) -> None:
    """Close its stdin, give it a moment to leave by itself, then end it and all that it started."""
    if process.stdin:
        process.stdin.close()
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), LEAVE_SECONDS)
    roots = frozenset({process.pid}) if process.returncode is None else frozenset()
    survivors = await in_thread(end, Tree(mark, roots))
    if survivors:
        log.error("processes of an MCP server cannot be ended: %s", ", ".join(str(each.pid) for each in survivors))
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), LEAVE_SECONDS)


def _release(process: Process) -> None:
    # The transport stays open, and warns when it is collected, as long as anybody holds a pipe of it.
    transport = getattr(process, "_transport", None)
    if transport is not None:
        with contextlib.suppress(OSError):
            transport.close()
