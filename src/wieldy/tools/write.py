"""Write: a file gets its whole content, new or anew."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from wieldy.core.declare import tool, words
from wieldy.core.tool import Output, ToolContext

if TYPE_CHECKING:
    from wieldy.edit.commit import Written
    from wieldy.edit.revision import Revision

DESCRIPTION, PROMPT = words(__file__)


@tool(
    name="Write",
    description=DESCRIPTION,
    prompt=PROMPT,
    writes="file_path",
    aliases={"path": "file_path"},
    timeout=120.0,
)
async def TOOL(ctx: ToolContext, file_path: str, content: Annotated[str, "The whole content"]) -> Output:
    """Write a file."""
    from wieldy.edit.change import change_file
    from wieldy.edit.overwrite import rewrite
    from wieldy.edit.policy import Policy
    from wieldy.edit.readstate import ReadState
    from wieldy.journal.change import Change
    from wieldy.journal.journal import Journal

    policy = Policy.of(ctx.workspace)
    state = ctx.workspace.resident(ReadState)

    def prepare() -> Revision:
        return rewrite(file_path, content, state, policy)

    async def write(revision: Revision) -> Written:
        change = Change(file_path, revision.before, revision.after, revision.landing.real_path)
        receipt = await ctx.workspace.resident(Journal).apply([change], call_id=ctx.call_id, tool="Write")
        return receipt.written[0]

    return await change_file(prepare, write, state)
