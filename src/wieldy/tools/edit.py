"""Edit: one text in a file replaced by another, and not a byte more."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from wieldy.core.declare import tool, words
from wieldy.core.tool import Output, ToolContext
from wieldy.schema.annotate import Param

if TYPE_CHECKING:
    from wieldy.journal.amend import Wish

DESCRIPTION, PROMPT = words(__file__)


async def _check(input: Mapping[str, Any], ctx: ToolContext) -> None:
    from wieldy.journal.amend import rehearse

    await rehearse(ctx, _wish(ctx, **input))


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
    from wieldy.journal.amend import amend

    wish = _wish(ctx, file_path, old_string, new_string, replace_all, expected_replacements)
    return await amend(ctx, wish, "Edit")


def _wish(
    ctx: ToolContext,
    file_path: str,
    old_string: str,
    new_string: str,
    replace_all: bool = False,
    expected_replacements: int = 1,
) -> Wish:
    from wieldy.edit.locate import Replacement
    from wieldy.edit.plan import plan_one
    from wieldy.edit.revision import revising
    from wieldy.journal.amend import Wish

    edit = Replacement(old_string, new_string, expected_replacements, replace_all)
    return Wish(file_path, edit, revising(file_path, partial(plan_one, edit), ctx.workspace, ctx.led_to(file_path)))
