"""The protocol on standard input and output, and nothing else on stdout."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from wieldy.mcp.server_inbox import Inbox
from wieldy.mcp.server_outbox import Outbox

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server


async def serve_stdio(server: Server[Any]) -> None:
    """Serve the one client at the other end of stdin and stdout, until it closes stdin."""
    with _claimed() as (source, sink):
        outbox = Outbox(sink)
        inbox = Inbox(source, outbox)
        try:
            await server.run(inbox, outbox, server.create_initialization_options())
        finally:
            await inbox.aclose()


@contextmanager
def _claimed() -> Iterator[tuple[int, int]]:
    """Descriptors of our own for the wire. What prints goes to stderr and what reads finds nothing, children included."""
    source, sink = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.close(nothing)
    try:
        os.dup2(2, 1)
    except OSError:  # there is no stderr: what prints goes nowhere
        os.dup2(0, 1)
    try:
        yield source, sink
    finally:
        # Neither is closed: a thread may still be writing, and must not find another file under the same number.
        os.dup2(source, 0)
        os.dup2(sink, 1)
