"""One client's room: a toolbox of its own, its open questions, its roots, and its calls under way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, Any

from wieldy.approval import Ask
from wieldy.core.call import ToolCall
from wieldy.core.event import Event, ToolProgress
from wieldy.core.outcome import Refused
from wieldy.core.result import ToolResult
from wieldy.mcp.server_asking import SHUT, Asking
from wieldy.mcp.server_door import FORM, AskFirst, Counter, Door, Open, Revolving, Waiting, asks_users
from wieldy.mcp.server_news import SETTINGS_CHANGED, News
from wieldy.mcp.server_prompts import Prompts
from wieldy.mcp.server_result import Wire, as_wire, whole
from wieldy.mcp.server_roots import Roots
from wieldy.mcp.server_spilled import Spilled
from wieldy.mcp.server_tools import shown_tools
from wieldy.settings.files import SettingsFiles

if TYPE_CHECKING:
    import mcp_types as types

    from wieldy.mcp.server_door import Context
    from wieldy.toolbox import Toolbox

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
        self._settings = SettingsFiles(self.box.workspace.root)
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
            running = turn.submit(call)
            return running if isinstance(running, ToolResult) else await undisturbed(running)

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
