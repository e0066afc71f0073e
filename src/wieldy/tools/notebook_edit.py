"""NotebookEdit: one cell of a notebook changed, and not a byte of the others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from wieldy.core.tool import Output, ToolContext
from wieldy.core.tool_decorator import tool

if TYPE_CHECKING:
    from wieldy.files.apply_edit import Wish
    from wieldy.files.editing.notebooks import CellEdit
    from wieldy.files.editing.revision import Revision


async def _check(input: Mapping[str, Any], ctx: ToolContext) -> None:
    from wieldy.files.apply_edit import rehearse

    edit = _wanted(**{**input, "notebook_path": None})
    await rehearse(ctx, _wish(ctx, input["notebook_path"], edit))


@tool(
    name="NotebookEdit",
    described_in=__file__,
    reads="notebook_path",
    writes="notebook_path",
    aliases={"file_path": "notebook_path", "path": "notebook_path"},
    check=_check,
    check_is_dry_run=True,
    timeout=120.0,
)
async def notebook_edit(
    ctx: ToolContext,
    notebook_path: str,
    new_source: Annotated[str | None, "Not for delete"] = None,
    cell_id: Annotated[str | None, "Id or number"] = None,
    cell_type: Annotated[Literal["code", "markdown", "raw"] | None, "Stays if not given; new: code"] = None,
    edit_mode: Literal["replace", "insert", "insert_before", "delete"] = "replace",
) -> Output:
    """Change one cell."""
    from wieldy.files.apply_edit import amend

    edit = _wanted(None, new_source, cell_id, cell_type, edit_mode)
    return await amend(ctx, _wish(ctx, notebook_path, edit), "NotebookEdit")


def _wanted(
    notebook_path: None,
    new_source: str | None = None,
    cell_id: str | None = None,
    cell_type: Any = None,
    edit_mode: Any = "replace",
) -> CellEdit:
    from wieldy.files.editing.notebooks import CellEdit

    return CellEdit(edit_mode, cell_id, new_source, cell_type)


def _wish(ctx: ToolContext, path: str, edit: CellEdit) -> Wish:
    from wieldy.files.apply_edit import Wish
    from wieldy.files.editing.notebooks import require_notebook
    from wieldy.files.editing.read_state import ReadState
    from wieldy.files.editing.revision import EditSettings, prepare_edit

    state, settings, real = ctx.workspace.service(ReadState), EditSettings.of(ctx.workspace), ctx.resolved(path)
    if settings.on_external_change == "markers":
        settings = EditSettings(settings.tiers, "merge", settings.max_bytes)  # conflict markers would be no JSON

    def prepare(at_once: bool) -> Revision:
        revision = prepare_edit(path, edit.plan, state, settings, at_once=at_once, resolved=real)
        if revision.merged:
            require_notebook(revision)
        return revision

    return Wish(path, edit, prepare)
