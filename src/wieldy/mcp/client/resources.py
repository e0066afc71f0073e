"""Resources of MCP servers: listed for one server or all, read one at a time."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from wieldy.core.errors import ToolFailure
from wieldy.core.threads import in_thread
from wieldy.core.tool import Output
from wieldy.mcp.client.connection import Connection
from wieldy.mcp.client.content import convert_resource
from wieldy.mcp.client.manager import McpServers
from wieldy.mcp.client.tools import list_all

MAX_PAGES = 20


async def list_resources(servers: McpServers, server: str | None) -> Output:
    """List the resources of one server or of all, one line each; a server that fails has its error as its line."""
    connections = [_find(servers, server)] if server is not None else list(servers.connections.values())
    results = await asyncio.gather(*map(_request_resources, connections), return_exceptions=True)
    lines: list[str] = []
    rows: list[dict[str, Any]] = []
    for connection, result in zip(connections, results, strict=True):
        name = connection.config.name
        if isinstance(result, BaseException):
            lines.append(f"{name}: {result}")
            continue
        for resource in result:
            rows.append({**resource, "server": name})
            about = f" — {resource['description']}" if resource.get("description") else ""
            lines.append(f"{name}: {resource.get('uri') or resource.get('uriTemplate')} ({resource['name']}){about}")
    return Output("\n".join(lines) or "No server has resources.", rows)


async def read_resource(servers: McpServers, server: str, uri: str) -> Output:
    """Return the contents of one resource."""
    result = await _find(servers, server).request(lambda client: client.read_resource(uri), retry=True)
    blocks = await in_thread(convert_resource, result.contents, servers.workspace.session_dir / "tool-results")
    return Output(blocks, [part.model_dump(mode="json", exclude={"blob"}) for part in result.contents])


async def _request_resources(connection: Connection) -> list[dict[str, Any]]:
    from mcp.shared.exceptions import MCPError

    async def send(client: Any) -> list[dict[str, Any]]:
        if client.server_capabilities.resources is None:
            return []
        items = await list_all(client.list_resources, "resources", MAX_PAGES)
        with contextlib.suppress(MCPError):  # many servers with resources do not support templates
            items += await list_all(client.list_resource_templates, "resource_templates", MAX_PAGES)
        return [item.model_dump(mode="json", by_alias=True, exclude_none=True) for item in items]

    resources: list[dict[str, Any]] = await connection.request(send, retry=True)
    return resources


def _find(servers: McpServers, name: str) -> Connection:
    connection = servers.connections.get(name)
    if connection is None:
        known = ", ".join(servers.connections) or "none"
        raise ToolFailure(f"There is no MCP server named {name}.", f"Connected servers: {known}.")
    return connection
