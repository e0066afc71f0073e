"""Write: give a file its whole content."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from wieldy.core.tool import Doubt, Output, ToolContext
from wieldy.core.tool_decorator import tool


async def _check(input: Mapping[str, Any], ctx: ToolContext) -> Doubt | None:
    from wieldy.files.apply_edit import check_edit
    from wieldy.files.editing.revision import RewriteText

    revision = await check_edit(ctx, input["file_path"], RewriteText(input["content"], input.get("encoding")))
    return Doubt(" ".join(revision.notes)) if revision is not None and revision.notes else None


@tool(
    name="Write",
    described_in=__file__,
    rules="edit",
    fails={"file_path": ".", "content": "x"},
    uses_folder=False,
    writes="file_path",
    aliases={"path": "file_path"},
    check=_check,
    rechecks_on_run=True,
    timeout=120.0,
    replay="journal",
)
async def write(
    ctx: ToolContext,
    file_path: str,
    content: Annotated[str, "The whole content"],
    encoding: Annotated[str | None, "To write in; kept if not given; new: utf-8"] = None,
) -> Output:
    """Write a file."""
    from wieldy.files.apply_edit import apply_edit
    from wieldy.files.editing.revision import RewriteText

    return await apply_edit(ctx, file_path, RewriteText(content, encoding), tool="Write")
