"""The resources of all servers: listed together, read one by one."""

from __future__ import annotations

import asyncio
from typing import Any

from wieldy.core.errors import ToolFailure
from wieldy.core.threads import in_thread
from wieldy.core.tool import Output
from wieldy.mcp.client.connection import Connection
from wieldy.mcp.client.manager import McpServers
from wieldy.mcp.client.tools import resource_blocks

PAGES = 20


async def list_resources(servers: McpServers, server: str | None) -> Output:
    """The resources of one server or of all, one line each; a server that fails is named and hides nobody else's."""
    asked = [_named(servers, server)] if server is not None else list(servers.connections.values())
    found = await asyncio.gather(*map(_resources, asked), return_exceptions=True)
    lines: list[str] = []
    data: list[dict[str, Any]] = []
    for connection, result in zip(asked, found, strict=True):
        if isinstance(result, BaseException):
            lines.append(f"{connection.config.name}: {result}")
            continue
        for resource in result:
            row = {**resource, "server": connection.config.name}
            data.append(row)
            about = f" — {row['description']}" if row.get("description") else ""
            lines.append(f"{row['server']}: {row.get('uri') or row.get('uriTemplate')} ({row['name']}){about}")
    return Output("\n".join(lines) or "No server has resources.", data)


async def read_resource(servers: McpServers, server: str, uri: str) -> Output:
    """The contents of one resource."""
    connection = _named(servers, server)
    result = await connection.ask(lambda client: client.read_resource(uri), again=True)
    folder = servers.workspace.session_dir / "tool-results"
    blocks = await in_thread(resource_blocks, result.contents, folder)
    return Output(blocks, [part.model_dump(mode="json", exclude={"blob"}) for part in result.contents])


async def _resources(connection: Connection) -> list[dict[str, Any]]:
    def has_resources(client: Any) -> bool:
        return client.server_capabilities.resources is not None

    async def listed(client: Any) -> list[dict[str, Any]]:
        if not has_resources(client):
            return []
        rows = await _pages(client.list_resources, "resources")
        return rows + await _pages(client.list_resource_templates, "resource_templates")

    found: list[dict[str, Any]] = await connection.ask(listed, again=True)
    return found


async def _pages(request: Any, field: str) -> list[dict[str, Any]]:
    from mcp.shared.exceptions import MCPError

    rows: list[dict[str, Any]] = []
    cursor: str | None = None
    for _ in range(PAGES):
        try:
            page = await request(cursor=cursor)
        except MCPError:
            if field == "resource_templates":
                return rows  # many servers with resources know no templates
            raise
        rows += [item.model_dump(mode="json", by_alias=True, exclude_none=True) for item in getattr(page, field)]
        cursor = page.next_cursor
        if not cursor:
            break
    return rows


def _named(servers: McpServers, name: str) -> Connection:
    connection = servers.connections.get(name)
    if connection is None:
        known = ", ".join(servers.connections) or "none"
        raise ToolFailure(f"There is no MCP server named {name}. Connected servers: {known}.")
    return connection
