"""The way of every tool that changes one file: tried before anyone is asked, then written through the journal."""

from __future__ import annotations

from wieldy.core.failure import ToolFailure
from wieldy.core.record import record
from wieldy.core.tool import Output, ToolContext
from wieldy.edit.change import Prepare, change_file, concluded
from wieldy.edit.commit import Written
from wieldy.edit.failures import CannotWrite, Moved
from wieldy.edit.readstate import ReadState
from wieldy.edit.rehearsal import Rehearsals, refusing
from wieldy.edit.report import Draft
from wieldy.edit.revision import Revision, TakesLonger
from wieldy.journal.change import Change
from wieldy.journal.journal import Journal


@record
class Wish:
    """What a call wants of the file at `path`; `what` tells it from other wishes, `prepare` tries it."""

    path: str
    what: object
    prepare: Prepare


async def rehearse(ctx: ToolContext, wish: Wish) -> None:
    """Refuse what cannot be made; keep what can until it may be."""
    rehearsals = ctx.workspace.resident(Rehearsals)
    await rehearsals.rehearse(ctx.call_id, (wish.path, wish.what), wish.prepare, ctx.led_to(wish.path))


async def amend(ctx: ToolContext, wish: Wish, tool: str) -> Output:
    """Change the file, and say how. What is said is made up while the disk is waited for."""
    state, draft = ctx.workspace.resident(ReadState), Draft()
    prepare = refusing(wish.prepare)
    rehearsed = ctx.workspace.resident(Rehearsals).take(ctx.call_id, (wish.path, wish.what))
    if rehearsed is None and ctx.led_to(wish.path) == wish.path:
        revised = await _revised(ctx, wish.path, prepare, draft, tool)
        if revised is not None:
            return await concluded(*revised, state, draft)

    async def write(revision: Revision) -> Written:
        draft.about(revision)
        change = Change(wish.path, revision.before, revision.after, ctx.led_to(wish.path), splice=revision.change)
        receipt = await ctx.workspace.resident(Journal).apply(
            [change], call_id=ctx.call_id, tool=tool, turn=ctx.message_id, meanwhile=draft.begin
        )
        return receipt.written[0]

    return await change_file(prepare, write, state, rehearsed, draft)


async def _revised(
    ctx: ToolContext, path: str, prepare: Prepare, draft: Draft, tool: str
) -> tuple[Revision, Written] | None:
    """Look at the file and change it in one go; None where it takes more than a moment, or another try."""

    def prepared() -> Revision:
        revision = prepare(True)
        draft.about(revision)
        return revision

    try:
        return await ctx.workspace.resident(Journal).revise(
            path, prepared, call_id=ctx.call_id, tool=tool, turn=ctx.message_id, meanwhile=draft.begin
        )
    except (TakesLonger, Moved):
        return None
    except CannotWrite as failure:
        raise ToolFailure(failure.message) from failure
