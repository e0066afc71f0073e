"""What Edit wishes for: one text in a file replaced by another, tried and carried out."""

from __future__ import annotations

from functools import partial
from typing import Any

from wieldy.core.tool import Output, ToolContext
from wieldy.edit.locate import Replacement
from wieldy.edit.plan import plan_one
from wieldy.edit.revision import revising
from wieldy.journal.amend import Wish, amend, rehearse


async def rehearse_replacement(ctx: ToolContext, **wanted: Any) -> None:
    """Refuse what cannot be replaced; keep what can until it may be."""
    await rehearse(ctx, _wish(ctx, **wanted))


async def replace(ctx: ToolContext, **wanted: Any) -> Output:
    """Change the file, and say how."""
    return await amend(ctx, _wish(ctx, **wanted), "Edit")


def _wish(
    ctx: ToolContext,
    file_path: str,
    old_string: str,
    new_string: str,
    replace_all: bool = False,
    expected_replacements: int = 1,
) -> Wish:
    edit = Replacement(old_string, new_string, expected_replacements, replace_all)
    return Wish(file_path, edit, revising(file_path, partial(plan_one, edit), ctx.workspace, ctx.led_to(file_path)))
