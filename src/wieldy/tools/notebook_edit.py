"""NotebookEdit: change one cell of a notebook, and not a byte of the others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from wieldy.core.tool import Output, ToolContext
from wieldy.core.tool_decorator import drop_fields, tool

if TYPE_CHECKING:
    from wieldy.files.notebooks import CellEdit


async def _check(input: Mapping[str, Any], ctx: ToolContext) -> None:
    from wieldy.files.apply_edit import check_edit

    arguments = {name: value for name, value in input.items() if name != "notebook_path"}
    await check_edit(ctx, input["notebook_path"], _cell_edit(**arguments))


def _translate(input: dict[str, Any]) -> dict[str, Any]:
    """A cell by its number, as a number or under the name it once had."""
    cell = input.get("cell_id", input.get("cell_number"))
    if isinstance(cell, int) and not isinstance(cell, bool):
        return {**drop_fields(input, "cell_number"), "cell_id": str(cell)}
    return input


@tool(
    name="NotebookEdit",
    described_in=__file__,
    rules="edit",
    fails={"notebook_path": "nowhere.ipynb", "new_source": "x"},
    uses_folder=False,
    translate=_translate,
    reads="notebook_path",
    writes="notebook_path",
    aliases={"file_path": "notebook_path", "path": "notebook_path"},
    check=_check,
    rechecks_on_run=True,
    timeout=120.0,
    replay="journal",
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
    from wieldy.files.apply_edit import apply_edit

    edit = _cell_edit(new_source, cell_id, cell_type, edit_mode)
    return await apply_edit(ctx, notebook_path, edit, tool="NotebookEdit")


def _cell_edit(
    new_source: str | None = None, cell_id: str | None = None, cell_type: Any = None, edit_mode: Any = "replace"
) -> CellEdit:
    from wieldy.files.notebooks import CellEdit

    return CellEdit(edit_mode, cell_id, new_source, cell_type)
