"""The way of every tool that changes one file: tried before anyone is asked, then written through the journal."""

from __future__ import annotations

from functools import partial

from wieldy.core.record import record
from wieldy.core.tool import Output, ToolContext
from wieldy.edit.change import Prepare, change_file
from wieldy.edit.commit import Written
from wieldy.edit.readstate import ReadState
from wieldy.edit.rehearsal import Rehearsals
from wieldy.edit.report import Draft
from wieldy.edit.revision import Revision
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
    draft = Draft()
    journal = ctx.workspace.resident(Journal)

    async def write(revision: Revision) -> Written:
        change = Change(wish.path, revision.before, revision.after, ctx.led_to(wish.path), splice=revision.change)
        receipt = await journal.apply(
            [change], call_id=ctx.call_id, tool=tool, turn=ctx.message_id, meanwhile=partial(draft.begin, revision)
        )
        return receipt.written[0]

    rehearsed = ctx.workspace.resident(Rehearsals).take(ctx.call_id, (wish.path, wish.what))
    return await change_file(wish.prepare, write, ctx.workspace.resident(ReadState), rehearsed, draft)
