"""The MCP server: every tool of a toolbox for any client, through the same pipeline as everywhere else."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any, Protocol, TypeVar

import mcp_types as types
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from mcp.shared.exceptions import MCPError

from wieldy import __version__
from wieldy.core.threads import in_thread
from wieldy.engine.mcp_tools import RESULT_TEMPLATE, JsonObject, NoSuchPrompt, NoSuchResult
from wieldy.faces.mcp_server.client_session import ClientSession
from wieldy.faces.mcp_server.elicitation import Context

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
