"""MultiEdit: several replacements in one file, all or none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Struct

from wieldy.core.schema.fields import Param
from wieldy.core.tool import Output, ToolContext
from wieldy.core.tool_decorator import tool

if TYPE_CHECKING:
    from wieldy.files.editing.revision import ReplaceTexts


class EditItem(Struct, frozen=True):
    """One replacement."""

    old_string: str
    new_string: str
    replace_all: bool = False
    expected_replacements: Annotated[int, Param(ge=1)] = 1


async def _check(input: Mapping[str, Any], ctx: ToolContext) -> None:
    from wieldy.files.apply_edit import check_edit

    items = [EditItem(**edit) for edit in input["edits"]]
    await check_edit(ctx, input["file_path"], _replacements(items, input.get("encoding")))


@tool(
    name="MultiEdit",
    described_in=__file__,
    rules="edit",
    fails={"file_path": "nowhere.txt", "edits": []},
    uses_folder=False,
    reads="file_path",
    writes="file_path",
    aliases={"path": "file_path"},
    check=_check,
    rechecks_on_run=True,
    timeout=120.0,
    replay="journal",
)
async def multi_edit(
    ctx: ToolContext,
    file_path: str,
    edits: Annotated[list[EditItem], "Made in order, each on the result of the last"],
    encoding: Annotated[str | None, "Of the file, where the guess is doubtful"] = None,
) -> Output:
    """Replace several texts in a file."""
    from wieldy.files.apply_edit import apply_edit

    return await apply_edit(ctx, file_path, _replacements(edits, encoding), tool="MultiEdit")


def _replacements(edits: Sequence[EditItem], encoding: str | None = None) -> ReplaceTexts:
    from wieldy.files.editing.matching import Replacement
    from wieldy.files.editing.revision import ReplaceTexts

    replacements = [Replacement(e.old_string, e.new_string, e.expected_replacements, e.replace_all) for e in edits]
    return ReplaceTexts(replacements, encoding)
