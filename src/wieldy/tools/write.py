"""Write: a file gets its whole content, new or anew."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from wieldy.core.tool import Output, ToolContext
from wieldy.core.tool_decorator import tool

if TYPE_CHECKING:
    from wieldy.files.apply_edit import Wish


async def _check(input: Mapping[str, Any], ctx: ToolContext) -> None:
    from wieldy.files.apply_edit import rehearse

    await rehearse(ctx, _wish(ctx, **input))


@tool(
    name="Write",
    described_in=__file__,
    writes="file_path",
    aliases={"path": "file_path"},
    check=_check,
    check_is_dry_run=True,
    timeout=120.0,
)
async def write(ctx: ToolContext, file_path: str, content: Annotated[str, "The whole content"]) -> Output:
    """Write a file."""
    from wieldy.files.apply_edit import amend

    return await amend(ctx, _wish(ctx, file_path, content), "Write")


def _wish(ctx: ToolContext, file_path: str, content: str) -> Wish:
    from wieldy.files.apply_edit import Wish
    from wieldy.files.editing.replacements import rewrite_preparer

    return Wish(file_path, content, rewrite_preparer(file_path, content, ctx.workspace, ctx.resolved(file_path)))
