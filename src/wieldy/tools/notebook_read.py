"""NotebookRead: shows a notebook's cells with their ids, sources and outputs."""

from __future__ import annotations

from typing import Annotated

from wieldy.core.errors import ToolFailure
from wieldy.core.threads import in_thread
from wieldy.core.tool import Output, ToolContext
from wieldy.core.tool_decorator import tool


@tool(
    name="NotebookRead",
    described_in=__file__,
    rules="read",
    counted="line",
    fails={"notebook_path": "nowhere.ipynb"},
    uses_folder=False,
    reads="notebook_path",
    aliases={"file_path": "notebook_path", "path": "notebook_path"},
    timeout=120.0,
)
async def notebook_read(
    ctx: ToolContext, notebook_path: str, cell_id: Annotated[str | None, "Id or number"] = None
) -> Output:
    try:
        return await in_thread(_read_notebook, ctx, notebook_path, cell_id)
    except OSError as error:
        from wieldy.files.search.format import explain_unreadable

        reason = await in_thread(explain_unreadable, notebook_path, error, "", ctx.workspace.files)
        raise ToolFailure(*reason) from None


def _read_notebook(ctx: ToolContext, path: str, cell_id: str | None) -> Output:
    from wieldy.core.text import display_path
    from wieldy.files.notebooks import LARGEST_FILE, read_notebook, show_notebook
    from wieldy.files.reading.read_file import load_file, open_file

    with open_file(path, ctx.resolved(path), ctx.workspace.files) as file:
        data = load_file(file, LARGEST_FILE)
        notebook = read_notebook(data, display_path(path))
        return show_notebook(file, data, notebook, ctx.workspace.services.read_state, cell_id)
