"""ReadMcpResource: one resource of an MCP server."""

from __future__ import annotations

from wieldy.core.declare import tool, words
from wieldy.core.tool import Output, ToolContext
from wieldy.tools.list_mcp_resources import _configured

DESCRIPTION, PROMPT = words(__file__)


@tool(
    name="ReadMcpResource",
    description=DESCRIPTION,
    prompt=PROMPT,
    read_only=True,
    needs_permission=False,
    enabled=_configured,
    timeout=120.0,
)
async def TOOL(server: str, uri: str, ctx: ToolContext) -> Output:
    """Read."""
    from wieldy.mcp.resources import read_resource
    from wieldy.mcp.servers import McpServers

    return await read_resource(ctx.workspace.resident(McpServers), server, uri)
