"""The MCP server: every tool of a toolbox to any client, through the same pipeline as everywhere else."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from wieldy import __version__
from wieldy.core.threads import in_thread
from wieldy.mcp.server.client_session import Room
from wieldy.mcp.server.tools import TEMPLATE, BadCursor, NoSuchPrompt, NoSuchResult, page_of

if TYPE_CHECKING:
    import mcp_types as types
    from mcp.server.lowlevel import NotificationOptions, Server
    from mcp.server.models import InitializationOptions

    from wieldy.mcp.server.elicitation import Context
    from wieldy.mcp.server.tools import Wire


INSTRUCTIONS = (
    "Tools that work on files and run commands in one project folder. Every call is checked, judged by the user's "
    "permission rules, and undoable where it changes files. A result with isError says what is wrong and what to do next; "
    "a result that is too long is kept whole as a resource that the result links to."
)
MOST_COMPLETIONS = 100


class Rooms(Protocol):
    """Where requests find their client's room."""

    def entered(self, ctx: Context) -> AbstractAsyncContextManager[Room]:
        """The room of the client that sent a request, open as long as the request is served."""
        ...


class OneRoom:
    """The only room there is, for a connection that has one client."""

    def __init__(self, room: Room) -> None:
        self._room = room

    @asynccontextmanager
    async def entered(self, ctx: Context) -> AsyncIterator[Room]:
        """The room."""
        yield self._room


class Service:
    """Answers the requests of the protocol."""

    def __init__(self, rooms: Rooms) -> None:
        self._rooms = rooms
        self._publish: Callable[[], Awaitable[None]] | None = None

    def server(self) -> Server[Any]:
        """The SDK's server with our handlers."""
        import mcp_types as types
        from mcp.server.lowlevel import NotificationOptions, Server
        from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged

        class Announcing(Server[Any]):
            """Says that it tells of changed tools; sessions over HTTP leave no other way to say so."""

            def create_initialization_options(
                self, notification_options: NotificationOptions | None = None, *rest: Any, **more: Any
            ) -> InitializationOptions:
                announced = notification_options or NotificationOptions(tools_changed=True)
                return super().create_initialization_options(announced, *rest, **more)

        bus = InMemorySubscriptionBus()
        self._publish = partial(bus.publish, ToolsListChanged())
        server = Announcing(
            "wieldy",
            version=__version__,
            title="wieldy",
            instructions=INSTRUCTIONS,
            on_list_tools=self._list_tools,
            on_list_resources=self._list_resources,
            on_list_resource_templates=self._list_templates,
            on_read_resource=self._read_resource,
            on_list_prompts=self._list_prompts,
            on_get_prompt=self._get_prompt,
            on_completion=self._complete,
            on_subscriptions_listen=ListenHandler(bus),
        )
        # Registered by name because our results are made in wire form already; roots and logging without the SDK's warning.
        server.add_request_handler("tools/call", types.CallToolRequestParams, self._call_tool)
        server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, self._set_level)
        server.add_notification_handler(
            "notifications/roots/list_changed", types.NotificationParams, self._roots_changed
        )
        return server

    @asynccontextmanager
    async def _entered(self, ctx: Context) -> AsyncIterator[Room]:
        async with self._rooms.entered(ctx) as room:
            room.news.publish = self._publish
            await room.meet(ctx)
            yield room

    async def _list_tools(self, ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        import mcp_types as types

        async with self._entered(ctx) as room:
            tools = await room.tools()
        page, more = _page(tools, params)
        return types.ListToolsResult(tools=page, next_cursor=more)

    async def _call_tool(self, ctx: Context, params: types.CallToolRequestParams) -> Wire | types.InputRequiredResult:
        async with self._entered(ctx) as room:
            return await room.call(ctx, params)

    async def _set_level(self, ctx: Context, params: types.SetLevelRequestParams) -> types.EmptyResult:
        import mcp_types as types

        async with self._entered(ctx) as room:
            room.news.level = params.level
        return types.EmptyResult()

    async def _list_prompts(self, ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListPromptsResult:
        import mcp_types as types

        async with self._entered(ctx) as room:
            prompts = await room.prompts.listed()
        page, more = _page(prompts, params)
        return types.ListPromptsResult(prompts=page, next_cursor=more)

    async def _get_prompt(self, ctx: Context, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        import mcp_types as types
        from mcp.shared.exceptions import MCPError

        async with self._entered(ctx) as room:
            try:
                return await room.prompts.told(params.name, params.arguments or {})
            except NoSuchPrompt as error:
                raise MCPError(types.INVALID_PARAMS, str(error)) from None

    async def _complete(self, ctx: Context, params: types.CompleteRequestParams) -> types.CompleteResult:
        """Names of kept results; what a skill is used on is anybody's guess."""
        import mcp_types as types

        names: list[str] = []
        if isinstance(params.ref, types.ResourceTemplateReference) and params.ref.uri == TEMPLATE:
            async with self._entered(ctx) as room:
                listed = await in_thread(room.spilled.listed)
            names = [resource.name for resource in listed if resource.name.startswith(params.argument.value)]
        shown = names[:MOST_COMPLETIONS]
        return types.CompleteResult(
            completion=types.Completion(values=shown, total=len(names), has_more=len(shown) < len(names))
        )

    async def _list_resources(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        import mcp_types as types

        async with self._entered(ctx) as room:
            listed = await in_thread(room.spilled.listed)
        page, more = _page(listed, params)
        return types.ListResourcesResult(resources=page, next_cursor=more)

    async def _list_templates(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        import mcp_types as types

        template = types.ResourceTemplate(
            uri_template=TEMPLATE,
            name="result",
            description="A tool's result that was too long to be sent whole",
            mime_type="text/plain",
        )
        return types.ListResourceTemplatesResult(resource_templates=[template])

    async def _read_resource(self, ctx: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        import mcp_types as types
        from mcp.shared.exceptions import MCPError

        async with self._entered(ctx) as room:
            try:
                text = await room.spilled.read(params.uri)
            except NoSuchResult as error:
                raise MCPError(types.INVALID_PARAMS, str(error), {"uri": params.uri}) from None
        contents = types.TextResourceContents(uri=params.uri, mime_type="text/plain", text=text)
        return types.ReadResourceResult(contents=[contents])

    async def _roots_changed(self, ctx: Context, params: types.NotificationParams) -> None:
        async with self._entered(ctx) as room:
            room.roots.unknown = True


def _page(items: list[Any], params: types.PaginatedRequestParams | None) -> tuple[list[Any], str | None]:
    import mcp_types as types
    from mcp.shared.exceptions import MCPError

    try:
        return page_of(items, params.cursor if params else None)
    except BadCursor as error:
        raise MCPError(types.INVALID_PARAMS, str(error)) from None
