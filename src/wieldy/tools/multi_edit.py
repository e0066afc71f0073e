"""MultiEdit: several replacements in one file, all or none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from wieldy.core.declare import tool, words
from wieldy.core.tool import Output, ToolContext
from wieldy.schema.annotate import Param

if TYPE_CHECKING:
    from wieldy.edit.change import Prepare
    from wieldy.edit.commit import Written
    from wieldy.edit.revision import Revision

DESCRIPTION, PROMPT = words(__file__)


@dataclass(frozen=True, slots=True)
class EditItem:
    """One replacement."""

    old_string: str
    new_string: str
    replace_all: bool = False
    expected_replacements: Annotated[int, Param(ge=1)] = 1


async def _check(input: Mapping[str, Any], ctx: ToolContext) -> None:
    from wieldy.edit.rehearsal import Rehearsals

    wish, prepare = _prepare(ctx, input["file_path"], [EditItem(**edit) for edit in input["edits"]])
    await ctx.workspace.resident(Rehearsals).rehearse(ctx.call_id, wish, prepare, ctx.led_to(input["file_path"]))


@tool(
    name="MultiEdit",
    description=DESCRIPTION,
    prompt=PROMPT,
    reads="file_path",
    writes="file_path",
    aliases={"path": "file_path"},
    check=_check,
    timeout=120.0,
)
async def TOOL(
    ctx: ToolContext,
    file_path: str,
    edits: Annotated[list[EditItem], "Made in order, each on the result of the last"],
) -> Output:
    """Replace several texts in a file."""
    from wieldy.edit.change import change_file
    from wieldy.edit.readstate import ReadState
    from wieldy.edit.rehearsal import Rehearsals
    from wieldy.journal.change import Change
    from wieldy.journal.journal import Journal

    async def write(revision: Revision) -> Written:
        change = Change(file_path, revision.before, revision.after, ctx.led_to(file_path))
        journal = ctx.workspace.resident(Journal)
        receipt = await journal.apply([change], call_id=ctx.call_id, tool="MultiEdit", turn=ctx.message_id)
        return receipt.written[0]

    wish, prepare = _prepare(ctx, file_path, edits)
    rehearsed = ctx.workspace.resident(Rehearsals).take(ctx.call_id, wish)
    return await change_file(prepare, write, ctx.workspace.resident(ReadState), rehearsed)


def _prepare(ctx: ToolContext, file_path: str, edits: Sequence[EditItem]) -> tuple[object, Prepare]:
    from wieldy.edit.locate import Replacement
    from wieldy.edit.plan import plan_many
    from wieldy.edit.policy import Policy
    from wieldy.edit.readstate import ReadState
    from wieldy.edit.revision import revise

    wanted = [Replacement(e.old_string, e.new_string, e.expected_replacements, e.replace_all) for e in edits]
    state, policy, real = ctx.workspace.resident(ReadState), Policy.of(ctx.workspace), ctx.led_to(file_path)
    plan = partial(plan_many, wanted)
    return (file_path, wanted), lambda at_once: revise(file_path, plan, state, policy, at_once=at_once, led_to=real)
