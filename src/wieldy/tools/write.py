"""Write: a file gets its whole content, new or anew."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from wieldy.core.declare import tool, words
from wieldy.core.tool import Output, ToolContext

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
    name="Write",
    description=DESCRIPTION,
    prompt=PROMPT,
    writes="file_path",
    aliases={"path": "file_path"},
    check=_check,
    timeout=120.0,
)
async def TOOL(ctx: ToolContext, file_path: str, content: Annotated[str, "The whole content"]) -> Output:
    """Write a file."""
    from wieldy.edit.change import change_file
    from wieldy.edit.readstate import ReadState
    from wieldy.edit.rehearsal import Rehearsals
    from wieldy.journal.change import Change
    from wieldy.journal.journal import Journal

    async def write(revision: Revision) -> Written:
        change = Change(file_path, revision.before, revision.after, ctx.led_to(file_path))
        journal = ctx.workspace.resident(Journal)
        receipt = await journal.apply([change], call_id=ctx.call_id, tool="Write", turn=ctx.message_id)
        return receipt.written[0]

    wish, prepare = _prepare(ctx, file_path, content)
    rehearsed = ctx.workspace.resident(Rehearsals).take(ctx.call_id, wish)
    return await change_file(prepare, write, ctx.workspace.resident(ReadState), rehearsed)


def _prepare(ctx: ToolContext, file_path: str, content: str) -> tuple[object, Prepare]:
    from wieldy.edit.overwrite import rewrite
    from wieldy.edit.policy import Policy
    from wieldy.edit.readstate import ReadState

    state, policy, real = ctx.workspace.resident(ReadState), Policy.of(ctx.workspace), ctx.led_to(file_path)
    return (file_path, content), lambda at_once: rewrite(
        file_path, content, state, policy, at_once=at_once, led_to=real
    )
