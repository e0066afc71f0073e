"""NotebookRead: a notebook's cells with their ids, sources and outputs."""

from __future__ import annotations

from typing import Annotated

from wieldy.core.declare import tool, words
from wieldy.core.failure import ToolFailure
from wieldy.core.threads import in_thread
from wieldy.core.tool import Output, ToolContext

DESCRIPTION, PROMPT = words(__file__)


@tool(
    name="NotebookRead",
    description=DESCRIPTION,
    prompt=PROMPT,
    reads="notebook_path",
    aliases={"file_path": "notebook_path", "path": "notebook_path"},
    timeout=120.0,
)
async def TOOL(ctx: ToolContext, notebook_path: str, cell_id: Annotated[str | None, "Id or number"] = None) -> Output:
    """Show a notebook, or one cell of it."""
    try:
        return await in_thread(_shown, ctx, notebook_path, cell_id)
    except OSError as error:
        from wieldy.reading.unreadable import why_unreadable

        raise ToolFailure(await in_thread(why_unreadable, notebook_path, error)) from None


def _shown(ctx: ToolContext, path: str, cell_id: str | None) -> Output:
    from wieldy.edit.readstate import ReadState
    from wieldy.reading.notebook import LARGEST_FILE, read_notebook
    from wieldy.reading.notebook_view import show_notebook
    from wieldy.reading.opened import Opened, shown
    from wieldy.reading.show import loaded

    with Opened(path, ctx.led_to(path)) as file:
        data = loaded(file, LARGEST_FILE)
        notebook = read_notebook(data, shown(path))
        return show_notebook(file, data, notebook, ctx.workspace.resident(ReadState), cell_id)
