"""ToolSearch: finds deferred tools and activates them, so that they are offered in full from the next request on."""

from __future__ import annotations

import json
from typing import Annotated, Any

from wieldy.core.tool import Output, Tool, ToolContext
from wieldy.core.tool_decorator import load_description, tool
from wieldy.core.workspace import Workspace

DESCRIPTION, PROMPT = load_description(__file__)
SELECT = "select:"


def _useful(workspace: Workspace) -> bool | str:
    return workspace.setting("defer", "auto") != "never" or "`defer` is `never`: every tool is sent in full"


@tool(name="ToolSearch", description=DESCRIPTION, prompt=PROMPT, read_only=True, enabled=_useful)
async def tool_search(
    query: Annotated[str, "`select:Name,Name2`, or words"],
    ctx: ToolContext,
    max_results: Annotated[int, "default 5"] = 5,
) -> Output:
    """Find and activate."""
    from wieldy.toolset.toolset import Toolset

    pool = ctx.workspace.service(Toolset)
    missing: list[str] = []
    if query.strip().lower().startswith(SELECT):
        names = [name.strip() for name in query.strip()[len(SELECT) :].split(",") if name.strip()]
        found, missing = await pool.select(names)
    else:
        found = await pool.search(query, min(max(max_results, 1), 50))
    waiting = [tool.name for tool in found if tool.name in pool.waiting]
    pool.activations.activate(waiting)
    data = {"activated": waiting, "tools": [tool.name for tool in found], "missing": missing}
    return Output(_told(found, missing, len(pool.waiting)), data, is_error=not found and bool(missing))


def _told(found: list[Tool], missing: list[str], waiting: int) -> str:
    lines = [json.dumps(_shown(tool), ensure_ascii=False) for tool in found]
    if missing:
        lines.append(f"There is no tool named {', '.join(missing)}. Search with words for what you need.")
    elif not found:
        lines.append(
            f"No tool matches; {waiting} can be searched for. Try other words."
            if waiting
            else "No tool waits to be loaded: all there are, you already see."
        )
    if found:
        lines.append("Loaded: call them directly now.")
    return "\n".join(lines)


def _shown(tool: Tool) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "input_schema": tool.schema}
