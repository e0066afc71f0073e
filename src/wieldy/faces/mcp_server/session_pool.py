"""Client sessions of the HTTP server: found by request, closed when idle, limited in number."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import anyio
import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from wieldy.core.logs import log
from wieldy.faces.mcp_server.client_session import ClientSession, MakeToolbox
from wieldy.faces.mcp_server.elicitation import Context

MAX_SESSIONS = 64
IDLE_SECONDS = 1800.0
SESSION_HEADER = "mcp-session-id"


class _PoolEntry:
    def __init__(self, session: ClientSession) -> None:
        self.session = session
        self.requests = 0
        self.idle_timer: asyncio.TimerHandle | None = None


class SessionPool:
    """Client sessions by key: the HTTP session, or the client's name in protocol versions without sessions."""

    def __init__(
        self, make_toolbox: MakeToolbox, *, max_sessions: int = MAX_SESSIONS, idle_seconds: float = IDLE_SECONDS
    ) -> None:
        self._make_toolbox = make_toolbox
        self.max_sessions = max_sessions
        self.idle_seconds = idle_seconds
        self._entries: OrderedDict[str, _PoolEntry] = OrderedDict()  # least recently used first
        self._removed: asyncio.Queue[ClientSession] = asyncio.Queue()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    @asynccontextmanager
    async def acquire(self, ctx: Context) -> AsyncIterator[ClientSession]:
        """Yield the session of the client that sent a request, created on its first request."""
        key = session_key(ctx)
        if key not in self._entries:
            self._make_room()
            self._entries[key] = _PoolEntry(ClientSession(self._make_toolbox))
        with self.keep_alive(key):
            session = self._entries[key].session
            await session.open()
            yield session

    @contextmanager
    def keep_alive(self, key: str) -> Iterator[None]:
        """Keep a session, if it exists, from being closed as idle."""
        if (entry := self._entries.get(key)) is None:
            yield
            return
        self._entries.move_to_end(key)
        entry.requests += 1
        if entry.idle_timer is not None:
            entry.idle_timer.cancel()
        try:
            yield
        finally:
            entry.requests -= 1
            if not entry.requests and self._entries.get(key) is entry:
                loop = asyncio.get_running_loop()
                entry.idle_timer = loop.call_later(self.idle_seconds, self.remove, key)

    def remove(self, key: str) -> None:
        """Remove a session; `close_removed` closes it."""
        if (entry := self._entries.pop(key, None)) is not None:
            if entry.idle_timer is not None:
                entry.idle_timer.cancel()
            self._removed.put_nowait(entry.session)

    def _make_room(self) -> None:
        if len(self._entries) < self.max_sessions:
            return
        longest_idle = next((key for key, entry in self._entries.items() if not entry.requests), None)
        if longest_idle is None:
            text = f"all {self.max_sessions} sessions of this server are busy; try again later"
            raise MCPError(types.INTERNAL_ERROR, text)
        self.remove(longest_idle)

    async def close_removed(self) -> None:
        """Close removed sessions, forever."""
        while True:
            session = await self._removed.get()
            with anyio.CancelScope(shield=True):
                await _close(session)

    async def aclose(self) -> None:
        """Close every session."""
        for key in list(self._entries):
            self.remove(key)
        while not self._removed.empty():
            await _close(self._removed.get_nowait())


async def _close(session: ClientSession) -> None:
    """Close a session. One that cannot be closed, such as on a full disk, must not end the others."""
    try:
        await session.aclose()
    except Exception as error:
        log.error("a session of the MCP server could not be closed: %s", error)


def session_key(ctx: Context) -> str:
    """Return what tells clients apart."""
    headers = getattr(ctx.request, "headers", {})
    # Protocol versions without sessions ignore the header, so nobody has verified it.
    if ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS and (session := headers.get(SESSION_HEADER)):
        return str(session)
    client = ctx.session.client_params
    return f"client {client.client_info.name}" if client else "client"
