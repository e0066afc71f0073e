"""ListMcpResources: lists the resources of MCP servers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from wieldy.core.effects import Effects
from wieldy.core.tool import Output, ToolContext
from wieldy.core.tool_decorator import tool
from wieldy.core.workspace import Workspace


def has_mcp_servers(workspace: Workspace) -> bool | str:
    return bool(workspace.setting("mcpServers")) or "no MCP server is configured"


def _effects(input: Mapping[str, Any], workspace: Workspace) -> Effects:
    return workspace.services.mcp_servers.resources.effects("ListMcpResources", input.get("server"))


@tool(
    name="ListMcpResources",
    described_in=__file__,
    fails={"server": "nowhere"},
    read_only=True,
    needs_permission=True,
    effects=_effects,
    enabled=has_mcp_servers,
    timeout=60.0,
)
async def list_mcp_resources(ctx: ToolContext, server: Annotated[str | None, "only this one's"] = None) -> Output:
    return await ctx.workspace.services.mcp_servers.resources.list_resources(server)
