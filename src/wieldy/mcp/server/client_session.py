"""One client's room: a toolbox of its own, its open questions, its roots, and its calls under way."""

from __future__ import annotations

import asyncio
import os
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from wieldy.approval import Ask
from wieldy.core.call import ToolCall
from wieldy.core.events import Event, Notice, ToolProgress
from wieldy.core.outcome import Refused, ToolResult
from wieldy.core.threads import in_thread
from wieldy.mcp.server.elicitation import (
    FORM,
    SHUT,
    AskFirst,
    Asking,
    Counter,
    Door,
    Open,
    Revolving,
    Waiting,
    asks_users,
)
from wieldy.mcp.server.notifications import SETTINGS_CHANGED, News
from wieldy.mcp.server.tools import Prompts, Spilled, Wire, as_wire, shown_tools, whole
from wieldy.settings.load import SettingsWatcher

if TYPE_CHECKING:
    import mcp_types as types

    from wieldy.mcp.server.elicitation import Context
    from wieldy.toolbox import Toolbox


class Roots:
    """What a client's roots add to those of the settings. Asked for before the first call, and after they changed."""

    def __init__(self, box: Toolbox) -> None:
        self._box = box
        self._own = box.workspace.extra_roots
        self.unknown = True

    async def use(self, addresses: Iterable[str]) -> None:
        """Allow work in the folders that these `file:` addresses name, in place of those named before."""
        found = await in_thread(lambda: {address: folder_at(address) for address in addresses})
        self.unknown = False
        for address, folder in found.items():
            if folder is None:
                self._box.events.emit(Notice(text=f"a root of the client is not a folder to work in: {address[:200]}"))
        workspace = self._box.workspace
        folders = (folder for folder in found.values() if folder and folder != workspace.root)
        roots = tuple(dict.fromkeys((*self._own, *folders)))
        if roots != workspace.extra_roots:
            workspace.extra_roots = roots
            self._box.policy.use_roots(workspace.roots)


def folder_at(address: str) -> str | None:
    """The folder of a `file:` address on this machine; None for one that is not there, and for the whole disk."""
    parts = urlsplit(address)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost") or "\0" in (path := unquote(parts.path)):
        return None
    folder = os.path.realpath(path)
    return folder if os.path.isabs(path) and os.path.isdir(folder) and os.path.dirname(folder) != folder else None


ROOTS = "roots"
ROOTS_SECONDS = 5.0

MakeBox = Callable[[Ask], "Toolbox"]


class Room:
    """Where the calls of one client run."""

    def __init__(self, make: MakeBox) -> None:
        self._asking = Asking()
        self.box = make(self._asking.ask)
        self.spilled = Spilled(self.box.workspace.session_dir / "tool-results")
        self.prompts = Prompts(self.box)
        self.roots = Roots(self.box)
        self.news = News(self.box)
        self._settings = SettingsWatcher(self.box.workspace.root)
        self._counter = Counter()
        self._calls = 0
        self._opening = asyncio.Lock()
        self._opened = False
        self._asking_roots = asyncio.Lock()

    async def open(self) -> None:
        """Be ready for calls."""
        async with self._opening:
            if not self._opened:
                self.news.start()
                await self.box.__aenter__()
                self._opened = True

    async def meet(self, ctx: Context) -> None:
        """Before a request is served: know its client, and the settings as they are now."""
        self._asking.meet(ctx, self.box.workspace)
        self.news.meet(ctx)
        if self._settings.changed():
            await self.box.reload()
            self.news.add(SETTINGS_CHANGED)

    async def tools(self) -> list[types.Tool]:
        """What the client is shown."""
        tools = await shown_tools(self.box)
        self.news.showed(tools)
        return tools

    async def aclose(self) -> None:
        """Stop what is under way and let go of everything."""
        await self.box.aclose()
        await self.news.aclose()

    async def call(self, ctx: Context, params: types.CallToolRequestParams) -> Wire | types.InputRequiredResult:
        """One call through the whole pipeline, or what the client must bring before it can go on."""
        arguments = params.arguments or {}
        returned = self._returned(params.request_state, params.name, arguments)
        brought = params.input_responses or {} if returned else {}
        if returned and returned.form is None:
            await self.roots.use(_addresses(brought.get(ROOTS)))
        elif self.roots.unknown and _has_roots(ctx) and ctx.session.can_send_request:
            await self._learn_roots(ctx)
        door = self._door(ctx, returned, brought.get(FORM))
        result = await self._through(door, ctx, params.name, arguments)
        if needed := self._needed(ctx, result):
            form = result.data.form if FORM in needed else None
            return self._send_back(Waiting(params.name, arguments, form), needed)
        return as_wire(result, self.spilled.links(result.text))

    def _returned(self, token: str | None, name: str, arguments: Mapping[str, Any]) -> Waiting | None:
        if token is None:
            return None
        if (waiting := self._counter.take_back(token, name, arguments)) is not None:
            return waiting
        import mcp_types as types
        from mcp.shared.exceptions import MCPError

        why = "this requestState was not handed out for this very call, or it was used already"
        raise MCPError(types.INVALID_PARAMS, f"{why}: call again without it")

    async def _through(self, door: Door, ctx: Context, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        self._calls += 1
        call = ToolCall(f"call_{self.box.id}_{self._calls}", name, arguments)
        with self._asking.through(call.id, door), self.news.during(ctx):
            if ctx.meta is not None and "progress_token" in ctx.meta:
                return await self._told(call, ctx)
            return await self._run(call)

    async def _run(self, call: ToolCall) -> ToolResult:
        async with self.box.turn() as turn:
            return await undisturbed(turn.submit(call))

    async def _told(self, call: ToolCall, ctx: Context) -> ToolResult:
        """Run a call while the client is told how far it is; the last word of progress goes out before the result."""
        import anyio

        async with anyio.create_task_group() as group, self.box.stream() as events:
            group.start_soon(_tell, call.id, events, ctx)
            result = await self._run(call)
        return result  # noqa: RET504 - a group may end its block early, says its type

    def _door(self, ctx: Context, returned: Waiting | None, said: Any) -> Door:
        if not asks_users(ctx.session.client_capabilities):
            return SHUT
        if ctx.session.can_send_request:
            return Open(ctx)
        return Revolving(returned.form if returned else None, said)

    def _needed(self, ctx: Context, result: ToolResult) -> types.InputRequests:
        """What a call that was not allowed lacks, where the client can only bring it by calling again."""
        import mcp_types as types

        if not isinstance(result.outcome, Refused) or result.outcome.stage != "permission":
            return {}
        if self.roots.unknown and _has_roots(ctx) and not ctx.session.can_send_request:
            return {ROOTS: types.ListRootsRequest()}
        return {FORM: result.data.request()} if isinstance(result.data, AskFirst) else {}

    async def _learn_roots(self, ctx: Context) -> None:
        """Ask a client for its roots. One that does not answer in time is taken to have none."""
        import mcp_types as types
        from mcp.shared.exceptions import MCPError
        from mcp.shared.message import ServerMessageMetadata

        async with self._asking_roots:
            if not self.roots.unknown:
                return
            try:
                listed = await ctx.session.send_request(
                    types.ListRootsRequest(),
                    types.ListRootsResult,
                    ROOTS_SECONDS,
                    ServerMessageMetadata(related_request_id=ctx.request_id),
                )
            except (MCPError, ValueError):
                listed = None
            await self.roots.use(_addresses(listed))

    def _send_back(self, waiting: Waiting, requests: types.InputRequests) -> types.InputRequiredResult:
        import mcp_types as types

        return types.InputRequiredResult(input_requests=requests, request_state=self._counter.hand_out(waiting))


def _has_roots(ctx: Context) -> bool:
    capabilities = ctx.session.client_capabilities
    return capabilities is not None and capabilities.roots is not None


def _addresses(listed: Any) -> list[str]:
    return [str(root.uri) for root in getattr(listed, "roots", ())]


async def _tell(call_id: str, events: AsyncIterator[Event], ctx: Context) -> None:
    count = 0
    async for event in events:
        if isinstance(event, ToolProgress) and event.call_id == call_id:
            count += 1
            await ctx.session.report_progress(count, message=whole(event.text))


async def undisturbed(task: asyncio.Task[ToolResult]) -> ToolResult:
    """The result of a call's task. Whoever waits here may be cancelled at every step of the loop (that is how the SDK cancels);
    the engine is cancelled once and given its time to stop what it runs."""
    import anyio

    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.cancel()
        with anyio.CancelScope(shield=True):
            await asyncio.wait((task,))
        raise


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
