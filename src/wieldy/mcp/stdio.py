"""A server as a process: messages of any size line by line, noise skipped, stderr kept short, and no process left behind."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from wieldy.core.log import log
from wieldy.core.record import record
from wieldy.core.threads import in_thread
from wieldy.mcp.listing import mended
from wieldy.mcp.salvage import salvaged
from wieldy.mcp.tail import Tail
from wieldy.mcp.wire import Mouth, Wire
from wieldy.shell.environment import MARK
from wieldy.shell.reap import Tree, end

LEAVE_SECONDS = 1.0
SHOWN = 200
MOST_NOISE = 20

PASSED_ON = frozenset(
    {
        *("HOME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER"),
        *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "no_proxy", "all_proxy"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE"),
        *("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT", "APPDATA", "LOCALAPPDATA", "USERPROFILE", "PATHEXT"),
    }
)


@record
class Program:
    """What to run, what becomes of its words, and whom to tell of its process and its end."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    mark: str
    stderr: Tail
    started: Callable[[int], None]
    gone: Callable[[str], None]


def environment(surrounding: Mapping[str, str], own: Mapping[str, str], mark: str) -> dict[str, str]:
    """What a server sees: what every program needs, what its entry gives it, and a mark to find its processes by."""
    env = {name: value for name, value in surrounding.items() if name in PASSED_ON or name.startswith("LC_")}
    outer = surrounding.get(MARK)
    return {**env, **own, MARK: f"{outer} {mark}" if outer else mark}


@asynccontextmanager
async def running(program: Program) -> AsyncIterator[Any]:
    """The streams of a server for as long as the block lasts; afterwards nothing of it runs any more."""
    import anyio

    read = _reader(program)
    transport, wire = await asyncio.get_running_loop().subprocess_exec(
        lambda: Wire(read, program.stderr.add, program.gone),
        *program.argv,
        cwd=program.cwd,
        env=dict(program.env),
        start_new_session=True,
    )
    program.started(transport.get_pid())
    try:
        yield wire, Mouth(transport.get_pipe_transport(0), wire)
    finally:
        with anyio.CancelScope(shield=True):
            await _end(transport, wire, program.mark)


def _reader(program: Program) -> Callable[[bytes], Any]:
    """Lines to messages; None for noise, which some programs print before or between."""
    from mcp.shared.message import SessionMessage
    from mcp_types import jsonrpc_message_adapter

    noise = 0

    def read(line: bytes) -> Any:
        try:
            message = jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValueError:
            message = second_look(line)
        if message is None:
            return None
        mended(getattr(message, "result", None))
        return SessionMessage(message)

    def second_look(line: bytes) -> Any:
        nonlocal noise
        for candidate in salvaged(line):
            with contextlib.suppress(ValueError):
                return jsonrpc_message_adapter.validate_json(candidate, by_name=False)
        noise += 1
        if noise <= MOST_NOISE:
            log.info("%s printed what is no message: %s", program.argv[0], line[:SHOWN].decode("utf-8", "replace"))
            program.stderr.add(b"(on stdout) " + line[:SHOWN] + b"\n")
        return None

    return read


async def _end(transport: asyncio.SubprocessTransport, wire: Wire, mark: str) -> None:
    """Close its stdin, give it a moment to leave by itself, then end it and all that it started."""
    stdin = transport.get_pipe_transport(0)
    if stdin is not None:
        stdin.close()
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(wire.exited.wait(), LEAVE_SECONDS)
    roots = frozenset() if wire.exited.is_set() else frozenset({transport.get_pid()})
    survivors = await in_thread(end, Tree(mark, roots))
    if survivors:
        log.error("processes of an MCP server cannot be ended: %s", ", ".join(str(each.pid) for each in survivors))
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(wire.exited.wait(), LEAVE_SECONDS)
    wire.close()
    with contextlib.suppress(OSError):
        transport.close()
