"""One client of the MCP server: a toolbox of its own, its roots, its pending questions and its calls."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Any, TypeAlias
from urllib.parse import unquote, urlsplit

import anyio
import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata

from wieldy.core.call import ToolCall
from wieldy.core.events import Event, Notice, ToolProgress
from wieldy.core.outcome import Refused, ToolResult
from wieldy.core.programs import add_roots
from wieldy.core.threads import in_thread
from wieldy.engine.mcp_tools import (
    JsonObject,
    SkillPrompts,
    SpilledResults,
    convert_result,
    list_tools,
    replace_surrogates,
)
from wieldy.engine.services import Ask
from wieldy.engine.toolbox import Toolbox
from wieldy.engine.workspace_services import HostServices
from wieldy.faces.mcp_server.elicitation import (
    ClientQuestions,
    Context,
    DirectElicitor,
    Elicitor,
    InputRequired,
    NoElicitor,
    PendingCall,
    PendingCalls,
    RetryElicitor,
    supports_elicitation,
)
from wieldy.faces.mcp_server.notifications import Notifier, PublishChange
from wieldy.policy.permissions.paths import is_below
from wieldy.policy.settings.load import SettingsWatcher

# Keys of what a client must bring before a call can go on.
PERMISSION = "permission"
ROOTS = "roots"
ROOTS_SECONDS = 5.0

MakeToolbox: TypeAlias = Callable[[Ask, HostServices], Toolbox]


class ClientSession:
    """Runs the requests of one client."""

    def __init__(self, make_toolbox: MakeToolbox) -> None:
        self._questions = ClientQuestions()
        self.box = make_toolbox(self._questions.ask, HostServices(question_handler=self._questions))
        self.spilled = SpilledResults(self.box.workspace.session_dir / "tool-results")
        self.prompts = SkillPrompts(self.box)
        self.roots = ClientRoots(self.box)
        self.notifier = Notifier(self.box)
        self._settings = SettingsWatcher(self.box.workspace.root)
        self._pending_calls = PendingCalls()
        self._call_count = 0
        self._open_lock = asyncio.Lock()
        self._is_open = False
        self._roots_lock = asyncio.Lock()

    async def open(self) -> None:
        """Open the toolbox, once."""
        async with self._open_lock:
            if not self._is_open:
                self.notifier.start()
                await self.box.__aenter__()
                self._is_open = True

    async def aclose(self) -> None:
        await self.notifier.aclose()  # first: servers that end change the tools, and a closed toolbox offers none
        await self.box.aclose()

    async def prepare(self, ctx: Context, publish_change: PublishChange | None = None) -> None:
        """Before a request: note what its client supports, and reload changed settings."""
        self._questions.use_client(ctx)
        self.notifier.use_client(ctx, publish_change)
        if self._settings.changed():
            await self.box.reload()
            self.roots.apply()
            self.notifier.check_tools()

    async def list_tools(self) -> list[types.Tool]:
        tools = await list_tools(self.box)
        self.notifier.set_listed_tools(tools)
        return tools

    async def call(self, ctx: Context, params: types.CallToolRequestParams) -> JsonObject | types.InputRequiredResult:
        """Run one call through the whole pipeline, or return what the client must bring before it can go on."""
        arguments = params.arguments or {}
        pending = self._take_pending(params.request_state, params.name, arguments)
        responses = params.input_responses or {} if pending else {}
        if pending and pending.form is None:
            await self.roots.set_uris(_root_uris(responses.get(ROOTS)))
        elif self.roots.unknown and _supports_roots(ctx) and ctx.session.can_send_request:
            await self._request_roots(ctx)
        elicitor = self._elicitor(ctx, pending, responses.get(PERMISSION))
        result = await self._run(elicitor, ctx, params.name, arguments)
        if required := self._required_input(ctx, result):
            form = result.data.form if PERMISSION in required else None
            token = self._pending_calls.add(PendingCall(params.name, arguments, form))
            return types.InputRequiredResult(input_requests=required, request_state=token)
        return convert_result(result, self.spilled.links(result.text))

    def _take_pending(self, token: str | None, name: str, arguments: Mapping[str, Any]) -> PendingCall | None:
        if token is None:
            return None
        if (call := self._pending_calls.pop(token, name, arguments)) is not None:
            return call
        why = "this requestState was not handed out for this very call, or it was used already"
        raise MCPError(types.INVALID_PARAMS, f"{why}: call again without it")

    def _elicitor(self, ctx: Context, pending: PendingCall | None, response: Any) -> Elicitor:
        if not supports_elicitation(ctx.session.client_capabilities):
            return NoElicitor()
        if ctx.session.can_send_request:
            return DirectElicitor(ctx)
        return RetryElicitor(pending.form if pending else None, response)

    async def _run(self, elicitor: Elicitor, ctx: Context, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        self._call_count += 1
        call = ToolCall(f"call_{self.box.id}_{self._call_count}", name, arguments)
        with self._questions.use_elicitor(call.id, elicitor), self.notifier.during_call(ctx):
            if ctx.meta is not None and "progress_token" in ctx.meta:
                return await self._submit_with_progress(call, ctx)
            return await self._submit(call)

    async def _submit(self, call: ToolCall) -> ToolResult:
        async with self.box.turn() as turn:
            return await wait_cancelled_once(turn.submit(call))

    async def _submit_with_progress(self, call: ToolCall, ctx: Context) -> ToolResult:
        """Run a call and report its progress; all progress is sent before the result."""
        async with anyio.create_task_group() as group, self.box.stream() as events:
            group.start_soon(_report_progress, call.id, events, ctx)
            result = await self._submit(call)
        return result  # noqa: RET504 - mypy: a task group may swallow the return

    def _required_input(self, ctx: Context, result: ToolResult) -> types.InputRequests:
        """Return what a refused call lacks, where the client can only bring it by repeating the call."""
        if not isinstance(result.outcome, Refused) or result.outcome.stage != "permission":
            return {}
        if self.roots.unknown and _supports_roots(ctx) and not ctx.session.can_send_request:
            return {ROOTS: types.ListRootsRequest()}
        return {PERMISSION: result.data.as_request()} if isinstance(result.data, InputRequired) else {}

    async def _request_roots(self, ctx: Context) -> None:
        """Ask the client for its roots. One that does not answer in time has none."""
        async with self._roots_lock:
            if not self.roots.unknown:
                return
            try:
                result = await ctx.session.send_request(
                    types.ListRootsRequest(),
                    types.ListRootsResult,
                    ROOTS_SECONDS,
                    ServerMessageMetadata(related_request_id=ctx.request_id),
                )
            except (MCPError, ValueError):
                result = None
            await self.roots.set_uris(_root_uris(result))


class ClientRoots:
    """Folders that the client adds to the workspace. Requested before the first call and after they changed.

    Where the settings deny what is outside the project, a client cannot add anything.
    """

    def __init__(self, box: Toolbox) -> None:
        self._box = box
        self._folders: tuple[str, ...] = ()
        self._added: tuple[str, ...] = ()
        self.unknown = True

    async def set_uris(self, uris: Iterable[str]) -> None:
        """Replace the client's roots by the folders of these `file:` URIs."""
        folders = await in_thread(lambda: {uri: root_folder(uri) for uri in uris})
        self.unknown = False
        for uri, folder in folders.items():
            if folder is None:
                self._notify(f"a root of the client is not a folder to work in: {uri[:200]}")
        self._folders = tuple(dict.fromkeys(folder for folder in folders.values() if folder))
        self.apply()

    def apply(self) -> None:
        """Add the client's folders to those of the settings, as far as these allow it."""
        workspace = self._box.workspace
        configured = tuple(folder for folder in workspace.extra_roots if folder not in self._added)
        own = (workspace.root, *configured)
        added = tuple(folder for folder in self._folders if not any(is_below(folder, root) for root in own))
        if added and self._box.policy.outside == "deny":
            self._notify(f"roots of the client are not used: the settings deny what is outside ({', '.join(added)})")
            added = ()
        self._added = added
        if workspace.extra_roots != (*configured, *added):
            workspace.extra_roots = (*configured, *added)
            add_roots(*workspace.extra_roots)
            self._box.policy.use_roots(workspace.roots)

    def _notify(self, text: str) -> None:
        self._box.events.emit(Notice(text=text))


def root_folder(uri: str) -> str | None:
    """Return the local folder of a `file:` URI; None if it does not exist or is the whole disk."""
    parts = urlsplit(uri)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost") or "\0" in (path := unquote(parts.path)):
        return None
    folder = os.path.realpath(path)
    return folder if os.path.isabs(path) and os.path.isdir(folder) and os.path.dirname(folder) != folder else None


def _supports_roots(ctx: Context) -> bool:
    capabilities = ctx.session.client_capabilities
    return capabilities is not None and capabilities.roots is not None


def _root_uris(result: Any) -> list[str]:
    return [str(root.uri) for root in getattr(result, "roots", ())]


async def _report_progress(call_id: str, events: AsyncIterator[Event], ctx: Context) -> None:
    count = 0
    async for event in events:
        if isinstance(event, ToolProgress) and event.call_id == call_id:
            count += 1
            await ctx.session.report_progress(count, message=replace_surrogates(event.text))


async def wait_cancelled_once(task: asyncio.Task[ToolResult]) -> ToolResult:
    """Await a call's task so that the engine is cancelled once and has time to stop what it runs.

    The SDK cancels through an anyio scope, which cancels again at every step of the loop.
    """
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.cancel()
        with anyio.CancelScope(shield=True):
            await asyncio.wait((task,))
        raise
