"""ToolSearch: finds deferred tools and activates them, so that they are offered in full from the next request on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any

from wieldy.core.tool import Output, Tool, ToolContext
from wieldy.core.tool_decorator import tool
from wieldy.core.workspace import Workspace

SELECT_PREFIX = "select:"


def _enabled(workspace: Workspace) -> bool | str:
    return workspace.setting("defer") != "never" or "`defer` is `never`: every tool is sent in full"


@tool(name="ToolSearch", described_in=__file__, fails={}, read_only=True, enabled=_enabled)
async def tool_search(
    query: Annotated[str, "`select:Name,Name2`, or words"],
    ctx: ToolContext,
    max_results: Annotated[int, "default 5"] = 5,
) -> Output:

    toolset = ctx.workspace.services.toolset
    missing: list[str] = []
    if query.strip().lower().startswith(SELECT_PREFIX):
        names = [name.strip() for name in query.strip()[len(SELECT_PREFIX) :].split(",") if name.strip()]
        tools, missing = await toolset.select(names)
    else:
        tools = await toolset.search(query, min(max(max_results, 1), 50))
    too_large = [tool.name for tool in tools[len(toolset.fit(tools)) :]]
    tools = tools[: len(tools) - len(too_large)]
    waiting = [tool.name for tool in tools if tool.name in toolset.deferred]
    toolset.activations.activate(waiting)
    data = {"activated": waiting, "tools": [tool.name for tool in tools], "missing": missing}
    text = _describe(tools, missing, len(toolset.deferred), toolset.starting())
    if too_large:
        text += f"\nNot loaded, too large for one request with these: {', '.join(too_large)}. Select what you need."
    return Output(text, data, is_error=not tools and bool(missing))


def _describe(tools: list[Tool], missing: list[str], waiting: int, starting: Sequence[str]) -> str:
    lines = [json.dumps(_definition(tool), ensure_ascii=False) for tool in tools]
    if missing:
        lines.append(f"There is no tool named {', '.join(missing)}. Search with words for what you need.")
    elif not tools:
        lines.append(
            f"No tool matches; {waiting} can be searched for. Try other words."
            if waiting
            else "No tool waits to be loaded: all there are, you already see."
        )
    if starting and (missing or not tools):
        lines.append(f"Still starting: the MCP servers {', '.join(starting)}. Search again later for their tools.")
    if tools:
        lines.append("Loaded: call them directly now.")
    return "\n".join(lines)


def _definition(tool: Tool) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "input_schema": tool.schema}
