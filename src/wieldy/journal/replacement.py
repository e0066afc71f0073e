"""What Edit wishes for: one text in a file replaced by another, tried and carried out."""

from __future__ import annotations

from functools import partial

from wieldy.core.tool import Output, ToolContext
from wieldy.edit.locate import Replacement
from wieldy.edit.plan import plan_one
from wieldy.edit.revision import revising
from wieldy.journal.amend import Wish, amend, rehearse


async def rehearse_replacement(
    ctx: ToolContext,
    file_path: str,
    old_string: str,
    new_string: str,
    replace_all: bool = False,
    expected_replacements: int = 1,
) -> None:
    """Refuse what cannot be replaced; keep what can until it may be."""
    edit = Replacement(old_string, new_string, expected_replacements, replace_all)
    await rehearse(ctx, _wish(ctx, file_path, edit))


async def replace(
    ctx: ToolContext,
    file_path: str,
    old_string: str,
    new_string: str,
    replace_all: bool = False,
    expected_replacements: int = 1,
) -> Output:
    """Change the file, and say how."""
    edit = Replacement(old_string, new_string, expected_replacements, replace_all)
    return await amend(ctx, _wish(ctx, file_path, edit), "Edit")


def _wish(ctx: ToolContext, path: str, edit: Replacement) -> Wish:
    return Wish(path, edit, revising(path, partial(plan_one, edit), ctx.workspace, ctx.led_to(path)))
