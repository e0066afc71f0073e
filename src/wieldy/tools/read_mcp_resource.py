"""ReadMcpResource: reads a resource of an MCP server."""

from __future__ import annotations

from wieldy.core.tool import Output, ToolContext
from wieldy.core.tool_decorator import tool
from wieldy.tools.list_mcp_resources import has_mcp_servers


@tool(
    name="ReadMcpResource",
    described_in=__file__,
    read_only=True,
    needs_permission=False,
    enabled=has_mcp_servers,
    timeout=120.0,
)
async def read_mcp_resource(server: str, uri: str, ctx: ToolContext) -> Output:
    from wieldy.mcp.client.resources import read_resource

    return await read_resource(ctx.workspace.services.mcp_servers, server, uri)
