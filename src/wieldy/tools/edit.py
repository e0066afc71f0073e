"""Edit: one text in a file replaced by another, and not a byte more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from wieldy.core.declare import tool, words
from wieldy.core.tool import Output, ToolContext
from wieldy.schema.annotate import Param

if TYPE_CHECKING:
    from wieldy.edit.commit import Written
    from wieldy.edit.revision import Revision

DESCRIPTION, PROMPT = words(__file__)


@tool(
    name="Edit",
    description=DESCRIPTION,
    prompt=PROMPT,
    reads="file_path",
    writes="file_path",
    aliases={"path": "file_path"},
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
    from wieldy.edit.locate import Replacement
    from wieldy.edit.plan import plan_one
    from wieldy.edit.policy import Policy
    from wieldy.edit.readstate import ReadState
    from wieldy.edit.revision import revise
    from wieldy.journal.change import Change
    from wieldy.journal.journal import Journal

    policy = Policy.of(ctx.workspace)
    state = ctx.workspace.resident(ReadState)
    edit = Replacement(old_string, new_string, expected_replacements, replace_all)

    def prepare() -> Revision:
        return revise(file_path, lambda document: plan_one(document, edit, policy.tiers), state, policy)

    async def write(revision: Revision) -> Written:
        change = Change(file_path, revision.before, revision.after, revision.landing.real_path)
        receipt = await ctx.workspace.resident(Journal).apply([change], call_id=ctx.call_id, tool="Edit")
        return receipt.written[0]

    return await change_file(prepare, write, state)
