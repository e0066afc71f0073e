"""ReadMcpResource: reads a resource of an MCP server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wieldy.core.effects import Effects
from wieldy.core.tool import Output, ToolContext
from wieldy.core.tool_decorator import tool
from wieldy.core.workspace import Workspace
from wieldy.tools.list_mcp_resources import has_mcp_servers


def _effects(input: Mapping[str, Any], workspace: Workspace) -> Effects:
    return workspace.services.mcp_servers.resources.effects("ReadMcpResource", input["server"], input["uri"])


@tool(
    name="ReadMcpResource",
    described_in=__file__,
    fails={"server": "nowhere", "uri": "x:y"},
    read_only=True,
    needs_permission=True,
    effects=_effects,
    enabled=has_mcp_servers,
    timeout=120.0,
)
async def read_mcp_resource(server: str, uri: str, ctx: ToolContext) -> Output:
    return await ctx.workspace.services.mcp_servers.resources.read_resource(server, uri)
