"""The rooms of an HTTP server: one for each client session, so many at most, closed when nobody has been there for a while."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

from wieldy.mcp.server_room import MakeBox, Room

if TYPE_CHECKING:
    from wieldy.mcp.server_door import Context

MOST_ROOMS = 64
IDLE_SECONDS = 1800.0
SESSION_HEADER = "mcp-session-id"


class Occupied:
    """A room and how many are in it."""

    def __init__(self, room: Room) -> None:
        self.room = room
        self.guests = 0
        self.timer: asyncio.TimerHandle | None = None


class ManyRooms:
    """Finds the room of a request. Clients of the revision without sessions share a room by the client's name."""

    def __init__(self, make: MakeBox, *, most: int = MOST_ROOMS, idle_seconds: float = IDLE_SECONDS) -> None:
        self._make = make
        self.most = most
        self.idle_seconds = idle_seconds
        self._rooms: OrderedDict[str, Occupied] = OrderedDict()
        self._leaving: asyncio.Queue[Room] = asyncio.Queue()

    def __len__(self) -> int:
        return len(self._rooms)

    def __contains__(self, key: str) -> bool:
        return key in self._rooms

    @asynccontextmanager
    async def entered(self, ctx: Context) -> AsyncIterator[Room]:
        """The room of the client that sent a request, made when it first comes."""
        key = key_of(ctx)
        if key not in self._rooms:
            self._make_space()
            self._rooms[key] = Occupied(Room(self._make))
        with self.held(key):
            room = self._rooms[key].room
            await room.open()
            yield room

    @contextmanager
    def held(self, key: str) -> Iterator[None]:
        """Keep a room, if there is such a one, from being closed as idle."""
        if (occupied := self._rooms.get(key)) is None:
            yield
            return
        self._rooms.move_to_end(key)
        occupied.guests += 1
        if occupied.timer is not None:
            occupied.timer.cancel()
        try:
            yield
        finally:
            occupied.guests -= 1
            if not occupied.guests and self._rooms.get(key) is occupied:
                loop = asyncio.get_running_loop()
                occupied.timer = loop.call_later(self.idle_seconds, self.leave, key)

    def leave(self, key: str) -> None:
        """Give up a room; it is closed by whoever runs `keep`."""
        if (occupied := self._rooms.pop(key, None)) is not None:
            if occupied.timer is not None:
                occupied.timer.cancel()
            self._leaving.put_nowait(occupied.room)

    def _make_space(self) -> None:
        import mcp_types as types
        from mcp.shared.exceptions import MCPError

        if len(self._rooms) < self.most:
            return
        longest_idle = next((key for key, occupied in self._rooms.items() if not occupied.guests), None)
        if longest_idle is None:
            raise MCPError(types.INTERNAL_ERROR, f"all {self.most} sessions of this server are busy; try again later")
        self.leave(longest_idle)

    async def keep(self) -> None:
        """Close rooms that were given up, for ever."""
        import anyio

        while True:
            room = await self._leaving.get()
            with anyio.CancelScope(shield=True):  # a room is closed to the end
                await room.aclose()

    async def aclose(self) -> None:
        """Close every room."""
        for key in list(self._rooms):
            self.leave(key)
        while not self._leaving.empty():
            await self._leaving.get_nowait().aclose()


def key_of(ctx: Context) -> str:
    """What tells clients apart: the session, or the name a client without one goes by."""
    from mcp_types.version import MODERN_PROTOCOL_VERSIONS

    headers = getattr(ctx.request, "headers", {})
    # The revision without sessions ignores the header, so nobody has checked what it says.
    if ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS and (session := headers.get(SESSION_HEADER)):
        return str(session)
    client = ctx.session.client_params
    return f"client {client.client_info.name}" if client else "client"
