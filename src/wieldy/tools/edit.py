"""Edit: one text in a file replaced by another, and not a byte more."""

from __future__ import annotations

from collections.abc import Mapping
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


async def _check(input: Mapping[str, Any], ctx: ToolContext) -> None:
    from wieldy.edit.rehearsal import Rehearsals

    wish, prepare = _prepare(ctx, **input)
    await ctx.workspace.resident(Rehearsals).rehearse(ctx.call_id, wish, prepare, ctx.led_to(input["file_path"]))


@tool(
    name="Edit",
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
    old_string: Annotated[str, "Exact text to replace"],
    new_string: Annotated[str, "Text to put there, literally"],
    replace_all: Annotated[bool, "Replace every occurrence"] = False,
    expected_replacements: Annotated[int, Param("How often old_string occurs", ge=1)] = 1,
) -> Output:
    """Replace a text in a file."""
    from wieldy.edit.change import change_file
    from wieldy.edit.readstate import ReadState
    from wieldy.edit.rehearsal import Rehearsals
    from wieldy.journal.change import Change
    from wieldy.journal.journal import Journal

    async def write(revision: Revision) -> Written:
        change = Change(file_path, revision.before, revision.after, ctx.led_to(file_path))
        journal = ctx.workspace.resident(Journal)
        receipt = await journal.apply([change], call_id=ctx.call_id, tool="Edit", turn=ctx.message_id)
        return receipt.written[0]

    wish, prepare = _prepare(ctx, file_path, old_string, new_string, replace_all, expected_replacements)
    rehearsed = ctx.workspace.resident(Rehearsals).take(ctx.call_id, wish)
    return await change_file(prepare, write, ctx.workspace.resident(ReadState), rehearsed)


def _prepare(
    ctx: ToolContext,
    file_path: str,
    old_string: str,
    new_string: str,
    replace_all: bool = False,
    expected_replacements: int = 1,
) -> tuple[object, Prepare]:
    from wieldy.edit.locate import Replacement
    from wieldy.edit.plan import plan_one
    from wieldy.edit.policy import Policy
    from wieldy.edit.readstate import ReadState
    from wieldy.edit.revision import revise

    edit = Replacement(old_string, new_string, expected_replacements, replace_all)
    state, policy, real = ctx.workspace.resident(ReadState), Policy.of(ctx.workspace), ctx.led_to(file_path)
    plan = partial(plan_one, edit)
    return (file_path, edit), lambda at_once: revise(file_path, plan, state, policy, at_once=at_once, led_to=real)
