"""The MCP server: the requests of the protocol, the session of each client, and what it is notified of."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from functools import partial
from typing import Any, Protocol, TypeAlias, TypeVar
from urllib.parse import unquote, urlsplit

import anyio
import mcp_types as types
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.session import ServerSession
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from wieldy import __version__
from wieldy.core.call import ToolCall
from wieldy.core.events import Event, Notice, ToolProgress
from wieldy.core.logs import log
from wieldy.core.outcome import Refused, ToolResult
from wieldy.core.programs import add_roots
from wieldy.core.threads import in_thread
from wieldy.engine.mcp_tools import (
    RESULT_TEMPLATE,
    JsonObject,
    NoSuchPrompt,
    NoSuchResult,
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
    CallSlots,
    ClientQuestions,
    Context,
    DirectElicitor,
    Elicitor,
    InputRequired,
    NoElicitor,
    PendingCall,
    PendingCalls,
    RetryElicitor,
    SlotFreeElicitor,
    supports_elicitation,
)
from wieldy.mcp.connection import ServerLogMessage, ServerStateChanged
from wieldy.policy.permissions.paths import is_below
from wieldy.policy.settings.load import SettingsWatcher

PublishChange: TypeAlias = Callable[[], Awaitable[None]]

LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
DEFAULT_LEVEL = "info"
MAX_QUEUED = 1_000


class Notifier:
    """Sends the notifications of one client in order, from one task. A client that does not read loses those beyond the queue."""

    def __init__(self, box: Toolbox) -> None:
        self.level = DEFAULT_LEVEL
        self._box = box
        self._client: ServerSession | None = None
        self._publish_change: PublishChange | None = None
        self._calls: dict[int, Context] = {}
        self._listed_tools: tuple[str, ...] | None = None
        self._queue: asyncio.Queue[Event | None] = asyncio.Queue(MAX_QUEUED)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Subscribe to the toolbox and start sending, once."""
        if self._task is None:
            self._box.subscribe(self._on_event)
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def aclose(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def use_client(self, ctx: Context, publish_change: PublishChange | None) -> None:
        """Remember the client of a request, and how the server publishes changes of the tools to subscribers."""
        self._client, self._publish_change = ctx.session, publish_change

    def set_listed_tools(self, tools: Sequence[types.Tool]) -> None:
        """Remember the tools that the client was shown."""
        self._listed_tools = tuple(tool.name for tool in tools)

    def check_tools(self) -> None:
        """Compare the tools with those the client was shown, in the background."""
        self._enqueue(None)

    @contextmanager
    def during_call(self, ctx: Context) -> Iterator[None]:
        """Allow log messages to be sent along with this call."""
        self._calls[id(ctx)] = ctx
        try:
            yield
        finally:
            del self._calls[id(ctx)]

    async def _on_event(self, event: Event) -> None:
        if isinstance(event, ServerStateChanged):
            self.check_tools()
        elif isinstance(event, Notice | ServerLogMessage):
            self._enqueue(event)

    def _enqueue(self, event: Event | None) -> None:
        with contextlib.suppress(asyncio.QueueFull):
            self._queue.put_nowait(event)

    async def _run(self) -> None:
        while True:
            event = await self._queue.get()
            try:
                await self._send(event)
            except (MCPError, anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
                continue  # the client is gone
            except Exception as error:
                log.error("a notification could not be sent to an MCP client: %s", error)

    async def _send(self, event: Event | None) -> None:
        if isinstance(event, Notice):
            await self._log("warning", event.text)
        elif isinstance(event, ServerLogMessage):
            await self._log(event.level, event.text, event.server)
        else:
            await self._notify_if_tools_changed()

    async def _notify_if_tools_changed(self) -> None:
        if self._listed_tools is None:  # it has not asked for any yet
            return
        tools = tuple(entry.tool.name for entry in await self._box.offer() if entry.offered)
        if tools == self._listed_tools:
            return
        self._listed_tools = tools
        if self._publish_change is not None:
            await self._publish_change()
        if self._client is not None:
            await self._client.send_notification(types.ToolListChangedNotification())

    async def _log(self, level: str, text: str, logger: str = "wieldy") -> None:
        """Send a log message with the latest call that wants it, else by itself where the protocol still allows that."""
        level = level if level in LEVELS else DEFAULT_LEVEL
        params: Any = {"level": level, "data": replace_surrogates(text), "logger": logger}
        message = types.LoggingMessageNotification(params=types.LoggingMessageNotificationParams.model_validate(params))
        for ctx in reversed(self._calls.values()):
            if _is_enabled(level, self._minimum_level(ctx)):
                await ctx.session.send_notification(message, ctx.request_id)
                return
        if self._client is not None and not _is_modern(self._client) and _is_enabled(level, self.level):
            await self._client.send_notification(message)

    def _minimum_level(self, ctx: Context) -> str | None:
        """Return the level of a call's client; since 2026 each request carries its own, or wants no log messages."""
        if not _is_modern(ctx.session):
            return self.level
        meta: Any = ctx.meta or {}
        level = meta.get(types.LOG_LEVEL_META_KEY)
        return level if level in LEVELS else None


def _is_modern(session: ServerSession) -> bool:
    return session.protocol_version in MODERN_PROTOCOL_VERSIONS


def _is_enabled(level: str, minimum: str | None) -> bool:
    return minimum is not None and LEVELS.index(level) >= LEVELS.index(minimum)


# Keys of what a client must bring before a call can continue.
PERMISSION = "permission"
ROOTS = "roots"
ROOTS_SECONDS = 5.0
MAX_CALLS = 32  # that run side by side, of all clients
MAX_CALLS_OF_CLIENT = 10  # as in an answer of a model

MakeToolbox: TypeAlias = Callable[[Ask, HostServices], Toolbox]


class ClientSession:
    """Runs the requests of one client."""

    def __init__(self, make_toolbox: MakeToolbox, slots: asyncio.Semaphore | None = None) -> None:
        self._questions = ClientQuestions()
        self._slots = CallSlots(asyncio.Semaphore(MAX_CALLS_OF_CLIENT), slots or asyncio.Semaphore(MAX_CALLS))
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
        """Run one call through the whole pipeline, or return what the client must bring before it can continue."""
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
        elicitor = SlotFreeElicitor(elicitor, self._slots)
        with self._questions.use_elicitor(call.id, elicitor), self.notifier.during_call(ctx):
            if ctx.meta is not None and "progress_token" in ctx.meta:
                return await self._submit_with_progress(call, ctx)
            return await self._submit(call)

    async def _submit(self, call: ToolCall) -> ToolResult:
        async with self._slots, self.box.turn() as turn:
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


INSTRUCTIONS = (
    "Tools that work on files and run commands in one project folder. Every call is checked, judged by the user's "
    "permission rules, and undoable where it changes files. A result with isError says what is wrong and what to do next; "
    "a result that is too long is kept whole as a resource that the result links to."
)
PAGE_SIZE = 100
MAX_COMPLETIONS = 100

T = TypeVar("T")


class ToolsChangeServer(Server[Any]):
    """Announces `tools.listChanged`; the SDK's HTTP sessions offer no other way to set it."""

    def create_initialization_options(
        self, notification_options: NotificationOptions | None = None, *args: Any, **kwargs: Any
    ) -> InitializationOptions:
        options = notification_options or NotificationOptions(tools_changed=True)
        return super().create_initialization_options(options, *args, **kwargs)


class Sessions(Protocol):
    """Finds the session of a request's client."""

    def acquire(self, ctx: Context) -> AbstractAsyncContextManager[ClientSession]: ...


class SingleSession:
    """The only session, for a connection that has one client."""

    def __init__(self, session: ClientSession) -> None:
        self._session = session

    @asynccontextmanager
    async def acquire(self, ctx: Context) -> AsyncIterator[ClientSession]:
        yield self._session


class RequestHandlers:
    """Handles the requests of the protocol."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._publish_change: Callable[[], Awaitable[None]] | None = None

    def create_server(self) -> Server[Any]:
        """Return the SDK's server with our handlers."""

        bus = InMemorySubscriptionBus()
        self._publish_change = partial(bus.publish, ToolsListChanged())
        server = ToolsChangeServer(
            "wieldy",
            version=__version__,
            title="wieldy",
            instructions=INSTRUCTIONS,
            on_list_tools=self._list_tools,
            on_list_resources=self._list_resources,
            on_list_resource_templates=self._list_resource_templates,
            on_read_resource=self._read_resource,
            on_list_prompts=self._list_prompts,
            on_get_prompt=self._get_prompt,
            on_completion=self._complete,
            on_subscriptions_listen=ListenHandler(bus),
        )
        # By name: our call results are JSON already, and the SDK's parameters for the other two emit warnings.
        server.add_request_handler("tools/call", types.CallToolRequestParams, self._call_tool)
        server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, self._set_log_level)
        server.add_notification_handler(
            "notifications/roots/list_changed", types.NotificationParams, self._roots_changed
        )
        return server

    @asynccontextmanager
    async def _session(self, ctx: Context) -> AsyncIterator[ClientSession]:
        async with self._sessions.acquire(ctx) as session:
            await session.prepare(ctx, self._publish_change)
            yield session

    async def _list_tools(self, ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        async with self._session(ctx) as session:
            tools, cursor = get_page(await session.list_tools(), params)
        return types.ListToolsResult(tools=tools, next_cursor=cursor)

    async def _call_tool(
        self, ctx: Context, params: types.CallToolRequestParams
    ) -> JsonObject | types.InputRequiredResult:
        async with self._session(ctx) as session:
            return await session.call(ctx, params)

    async def _set_log_level(self, ctx: Context, params: types.SetLevelRequestParams) -> types.EmptyResult:
        async with self._session(ctx) as session:
            session.notifier.level = params.level
        return types.EmptyResult()

    async def _list_prompts(self, ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListPromptsResult:
        async with self._session(ctx) as session:
            prompts, cursor = get_page(await session.prompts.list_prompts(), params)
        return types.ListPromptsResult(prompts=prompts, next_cursor=cursor)

    async def _get_prompt(self, ctx: Context, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        async with self._session(ctx) as session:
            try:
                return await session.prompts.render(params.name, params.arguments or {})
            except NoSuchPrompt as error:
                raise MCPError(types.INVALID_PARAMS, str(error)) from None

    async def _complete(self, ctx: Context, params: types.CompleteRequestParams) -> types.CompleteResult:
        """Complete names of spilled results; arguments of skills are free text."""
        names: list[str] = []
        if isinstance(params.ref, types.ResourceTemplateReference) and params.ref.uri == RESULT_TEMPLATE:
            async with self._session(ctx) as session:
                resources = await in_thread(session.spilled.list_resources)
            names = [resource.name for resource in resources if resource.name.startswith(params.argument.value)]
        values = names[:MAX_COMPLETIONS]
        return types.CompleteResult(
            completion=types.Completion(values=values, total=len(names), has_more=len(values) < len(names))
        )

    async def _list_resources(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        async with self._session(ctx) as session:
            resources, cursor = get_page(await in_thread(session.spilled.list_resources), params)
        return types.ListResourcesResult(resources=resources, next_cursor=cursor)

    async def _list_resource_templates(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        template = types.ResourceTemplate(
            uri_template=RESULT_TEMPLATE,
            name="result",
            description="A tool's result that was too long to be sent whole",
            mime_type="text/plain",
        )
        return types.ListResourceTemplatesResult(resource_templates=[template])

    async def _read_resource(self, ctx: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        async with self._session(ctx) as session:
            try:
                text = await in_thread(session.spilled.read, params.uri)
            except NoSuchResult as error:
                raise MCPError(types.INVALID_PARAMS, str(error), {"uri": params.uri}) from None
        contents = types.TextResourceContents(uri=params.uri, mime_type="text/plain", text=text)
        return types.ReadResourceResult(contents=[contents])

    async def _roots_changed(self, ctx: Context, params: types.NotificationParams) -> None:
        async with self._session(ctx) as session:
            session.roots.unknown = True


def get_page(items: Sequence[T], params: types.PaginatedRequestParams | None) -> tuple[list[T], str | None]:
    """Return the page a cursor stands for (its start index), and the cursor of the next page."""
    cursor = params.cursor if params else None
    if cursor is None:
        start = 0
    elif len(cursor) < 10 and cursor.isascii() and cursor.isdigit() and int(cursor) < len(items):
        start = int(cursor)
    else:
        raise MCPError(types.INVALID_PARAMS, f"there is no page `{cursor[:40]}`: list again from the start")
    end = start + PAGE_SIZE
    return list(items[start:end]), str(end) if end < len(items) else None
