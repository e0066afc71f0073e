"""The MCP server: every tool of a toolbox to any client, through the same pipeline as everywhere else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol

from wieldy import __version__
from wieldy.core.threads import in_thread
from wieldy.mcp.server_room import Room
from wieldy.mcp.server_spilled import TEMPLATE, NoSuchResult
from wieldy.mcp.server_tools import BadCursor, page_of, shown_tools

if TYPE_CHECKING:
    import mcp_types as types
    from mcp.server.lowlevel import Server

    from wieldy.mcp.server_door import Context
    from wieldy.mcp.server_result import Wire

INSTRUCTIONS = (
    "Tools that work on files and run commands in one project folder. Every call is checked, judged by the user's "
    "permission rules, and undoable where it changes files. A result with isError says what is wrong and what to do next; "
    "a result that is too long is kept whole as a resource that the result links to."
)


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

    def server(self) -> Server[Any]:
        """The SDK's server with our handlers."""
        import mcp_types as types
        from mcp.server.lowlevel import Server

        server: Server[Any] = Server(
            "wieldy",
            version=__version__,
            title="wieldy",
            instructions=INSTRUCTIONS,
            on_list_tools=self._list_tools,
            on_list_resources=self._list_resources,
            on_list_resource_templates=self._list_templates,
            on_read_resource=self._read_resource,
        )
        # Registered by name because our results are made in wire form already, and roots without the SDK's warning.
        server.add_request_handler("tools/call", types.CallToolRequestParams, self._call_tool)
        server.add_notification_handler(
            "notifications/roots/list_changed", types.NotificationParams, self._roots_changed
        )
        return server

    async def _list_tools(self, ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        import mcp_types as types

        async with self._rooms.entered(ctx) as room:
            tools = await shown_tools(room.box)
        page, more = _page(tools, params)
        return types.ListToolsResult(tools=page, next_cursor=more)

    async def _call_tool(self, ctx: Context, params: types.CallToolRequestParams) -> Wire | types.InputRequiredResult:
        async with self._rooms.entered(ctx) as room:
            return await room.call(ctx, params)

    async def _list_resources(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        import mcp_types as types

        async with self._rooms.entered(ctx) as room:
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

        async with self._rooms.entered(ctx) as room:
            try:
                text = await room.spilled.read(params.uri)
            except NoSuchResult as error:
                raise MCPError(types.INVALID_PARAMS, str(error), {"uri": params.uri}) from None
        contents = types.TextResourceContents(uri=params.uri, mime_type="text/plain", text=text)
        return types.ReadResourceResult(contents=[contents])

    async def _roots_changed(self, ctx: Context, params: types.NotificationParams) -> None:
        async with self._rooms.entered(ctx) as room:
            room.roots.unknown = True


def _page(items: list[Any], params: types.PaginatedRequestParams | None) -> tuple[list[Any], str | None]:
    import mcp_types as types
    from mcp.shared.exceptions import MCPError

    try:
        return page_of(items, params.cursor if params else None)
    except BadCursor as error:
        raise MCPError(types.INVALID_PARAMS, str(error)) from None
