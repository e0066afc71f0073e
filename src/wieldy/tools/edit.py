"""Edit: replace one text in a file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from wieldy.core.schema.fields import Param
from wieldy.core.tool import Output, ToolContext
from wieldy.core.tool_decorator import tool

if TYPE_CHECKING:
    from wieldy.files.editing.revision import ReplaceTexts


async def _check(input: Mapping[str, Any], ctx: ToolContext) -> None:
    from wieldy.files.apply_edit import check_edit

    arguments = {name: value for name, value in input.items() if name != "file_path"}
    await check_edit(ctx, input["file_path"], _replacement(**arguments))


@tool(
    name="Edit",
    described_in=__file__,
    rules="edit",
    fails={"file_path": "nowhere.txt", "old_string": "a", "new_string": "b"},
    uses_folder=False,
    reads="file_path",
    writes="file_path",
    aliases={"path": "file_path"},
    check=_check,
    rechecks_on_run=True,
    timeout=120.0,
    replay="journal",
)
async def edit(
    ctx: ToolContext,
    file_path: str,
    old_string: Annotated[str, "Exact text to replace"],
    new_string: Annotated[str, "Text to put there, literally"],
    replace_all: Annotated[bool, "Replace every occurrence"] = False,
    expected_replacements: Annotated[int, Param("How often old_string occurs", ge=1)] = 1,
    encoding: Annotated[str | None, "Of the file, where the guess is doubtful"] = None,
) -> Output:
    """Replace a text in a file."""
    from wieldy.files.apply_edit import apply_edit

    edit = _replacement(old_string, new_string, replace_all, expected_replacements, encoding)
    return await apply_edit(ctx, file_path, edit, tool="Edit")


def _replacement(
    old_string: str,
    new_string: str,
    replace_all: bool = False,
    expected_replacements: int = 1,
    encoding: str | None = None,
) -> ReplaceTexts:
    from wieldy.files.editing.matching import Replacement
    from wieldy.files.editing.revision import ReplaceTexts

    return ReplaceTexts((Replacement(old_string, new_string, expected_replacements, replace_all),), encoding)
