"""Our tools as an MCP client is shown them, and lists cut into pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

from wieldy.core.tool import Tool

if TYPE_CHECKING:
    import mcp_types as types

    from wieldy.toolbox import Toolbox

T = TypeVar("T")

PAGE = 100


class BadCursor(ValueError):
    """A client asked for a page that no answer of ours has named."""


async def shown_tools(box: Toolbox) -> list[types.Tool]:
    """Every tool that is offered, in the order of the pool."""
    workspace = box.workspace
    return [shown(entry.tool, await entry.tool.describe(workspace)) for entry in await box.offer() if entry.offered]


def shown(tool: Tool, description: str) -> types.Tool:
    """One tool: its words, its input, and hints for whoever decides how freely it may be called."""
    import mcp_types as types

    title = tool.title or None
    return types.Tool(
        name=tool.name,
        title=title,
        description="\n\n".join(part for part in (description.strip(), tool.prompt.strip()) if part),
        input_schema=tool.schema,
        annotations=types.ToolAnnotations(
            title=title,
            read_only_hint=tool.read_only,
            destructive_hint=not tool.read_only and _destroys(tool),
            idempotent_hint=tool.read_only,
        ),
    )


def _destroys(tool: Tool) -> bool:
    """Whether some call of a tool may do what undo cannot take back; one that needs its input to say so may."""
    try:
        return tool.destructive({})
    except (LookupError, TypeError, ValueError):
        return True


def page_of(items: Sequence[T], cursor: str | None) -> tuple[list[T], str | None]:
    """The items that a cursor stands for, and the cursor of those that follow."""
    if cursor is None:
        start = 0
    elif len(cursor) < 10 and cursor.isascii() and cursor.isdigit() and int(cursor) < len(items):
        start = int(cursor)
    else:
        raise BadCursor(f"there is no page `{cursor[:40]}`: list again from the start")
    end = start + PAGE
    return list(items[start:end]), str(end) if end < len(items) else None
