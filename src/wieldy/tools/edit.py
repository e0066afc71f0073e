"""Edit: one text in a file replaced by another, and not a byte more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from wieldy.core.tool import Output, ToolContext
from wieldy.core.tool_decorator import tool
from wieldy.schema.fields import Param


async def _check(input: Mapping[str, Any], ctx: ToolContext) -> None:
    from wieldy.files.apply_edit import rehearse_replacement

    await rehearse_replacement(ctx, **input)


@tool(
    name="Edit",
    described_in=__file__,
    reads="file_path",
    writes="file_path",
    aliases={"path": "file_path"},
    check=_check,
    check_is_dry_run=True,
    timeout=120.0,
)
async def edit(
    ctx: ToolContext,
    file_path: str,
    old_string: Annotated[str, "Exact text to replace"],
    new_string: Annotated[str, "Text to put there, literally"],
    replace_all: Annotated[bool, "Replace every occurrence"] = False,
    expected_replacements: Annotated[int, Param("How often old_string occurs", ge=1)] = 1,
) -> Output:
    """Replace a text in a file."""
    from wieldy.files.apply_edit import replace

    return await replace(
        ctx,
        file_path=file_path,
        old_string=old_string,
        new_string=new_string,
        replace_all=replace_all,
        expected_replacements=expected_replacements,
    )
