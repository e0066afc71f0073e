"""NotebookEdit: one cell of a notebook changed, and not a byte of the others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from wieldy.core.declare import tool, words
from wieldy.core.tool import Output, ToolContext

if TYPE_CHECKING:
    from wieldy.edit.change import Prepare
    from wieldy.edit.commit import Written
    from wieldy.edit.revision import Revision
    from wieldy.notebook.edit import CellEdit

DESCRIPTION, PROMPT = words(__file__)


async def _check(input: Mapping[str, Any], ctx: ToolContext) -> None:
    from wieldy.edit.rehearsal import Rehearsals

    path, edit = input["notebook_path"], _wanted(**{**input, "notebook_path": None})
    prepare = _prepare(ctx, path, edit)
    await ctx.workspace.resident(Rehearsals).rehearse(ctx.call_id, (path, edit), prepare, ctx.led_to(path))


@tool(
    name="NotebookEdit",
    description=DESCRIPTION,
    prompt=PROMPT,
    reads="notebook_path",
    writes="notebook_path",
    aliases={"file_path": "notebook_path", "path": "notebook_path"},
    check=_check,
    timeout=120.0,
)
async def TOOL(
    ctx: ToolContext,
    notebook_path: str,
    new_source: Annotated[str | None, "Not for delete"] = None,
    cell_id: Annotated[str | None, "Id or number"] = None,
    cell_type: Annotated[Literal["code", "markdown", "raw"] | None, "Stays if not given; new: code"] = None,
    edit_mode: Literal["replace", "insert", "insert_before", "delete"] = "replace",
) -> Output:
    """Change one cell."""
    from wieldy.edit.change import change_file
    from wieldy.edit.readstate import ReadState
    from wieldy.edit.rehearsal import Rehearsals
    from wieldy.journal.change import Change
    from wieldy.journal.journal import Journal

    async def write(revision: Revision) -> Written:
        change = Change(notebook_path, revision.before, revision.after, ctx.led_to(notebook_path))
        journal = ctx.workspace.resident(Journal)
        receipt = await journal.apply([change], call_id=ctx.call_id, tool="NotebookEdit", turn=ctx.message_id)
        return receipt.written[0]

    edit = _wanted(None, new_source, cell_id, cell_type, edit_mode)
    prepare = _prepare(ctx, notebook_path, edit)
    rehearsed = ctx.workspace.resident(Rehearsals).take(ctx.call_id, (notebook_path, edit))
    return await change_file(prepare, write, ctx.workspace.resident(ReadState), rehearsed)


def _wanted(
    notebook_path: None,
    new_source: str | None = None,
    cell_id: str | None = None,
    cell_type: Any = None,
    edit_mode: Any = "replace",
) -> CellEdit:
    from wieldy.notebook.edit import CellEdit

    return CellEdit(edit_mode, cell_id, new_source, cell_type)


def _prepare(ctx: ToolContext, path: str, edit: CellEdit) -> Prepare:
    from wieldy.edit.policy import Policy
    from wieldy.edit.readstate import ReadState
    from wieldy.edit.revision import revise
    from wieldy.notebook.edit import require_notebook

    state, policy, real = ctx.workspace.resident(ReadState), Policy.of(ctx.workspace), ctx.led_to(path)
    if policy.on_change == "markers":
        policy = Policy(policy.tiers, "merge", policy.max_bytes)  # conflict markers would be no JSON

    def prepare(at_once: bool) -> Revision:
        revision = revise(path, edit.plan, state, policy, at_once=at_once, led_to=real)
        if revision.merged:
            require_notebook(revision)
        return revision

    return prepare
