"""MultiEdit: several replacements in one file, all or none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from wieldy.core.declare import tool, words
from wieldy.core.tool import Output, ToolContext
from wieldy.schema.annotate import Param

if TYPE_CHECKING:
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


@tool(
    name="MultiEdit",
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
    edits: Annotated[list[EditItem], "Made in order, each on the result of the last"],
) -> Output:
    """Replace several texts in a file."""
    from wieldy.edit.change import change_file
    from wieldy.edit.locate import Replacement
    from wieldy.edit.plan import plan_many
    from wieldy.edit.policy import Policy
    from wieldy.edit.readstate import ReadState
    from wieldy.edit.revision import revise
    from wieldy.journal.change import Change
    from wieldy.journal.journal import Journal

    policy = Policy.of(ctx.workspace)
    state = ctx.workspace.resident(ReadState)
    wanted = [Replacement(e.old_string, e.new_string, e.expected_replacements, e.replace_all) for e in edits]

    def prepare() -> Revision:
        return revise(file_path, lambda document: plan_many(document, wanted, policy.tiers), state, policy)

    async def write(revision: Revision) -> Written:
        change = Change(file_path, revision.before, revision.after, revision.landing.real_path)
        receipt = await ctx.workspace.resident(Journal).apply([change], call_id=ctx.call_id, tool="MultiEdit")
        return receipt.written[0]

    return await change_file(prepare, write, state)
