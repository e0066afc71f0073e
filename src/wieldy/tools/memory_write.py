"""MemoryWrite: a note for later sessions, confined to the memory folders and kept for undo like any other change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from wieldy.core.effects import Effects, Writes
from wieldy.core.errors import ToolFailure
from wieldy.core.schema.fields import Param
from wieldy.core.threads import in_thread
from wieldy.core.tool import Output, ToolContext
from wieldy.core.tool_decorator import tool
from wieldy.core.workspace import Workspace
from wieldy.tools.memory_read import Scope, memory_path, require_confined

LARGEST = 100_000


def _effects(input: Mapping[str, Any], workspace: Workspace) -> Effects:
    return (Writes(memory_path(input["path"], input.get("scope", "project"), workspace)),)


@tool(
    name="MemoryWrite",
    described_in=__file__,
    fails={"path": "../x", "content": "x"},
    effects=_effects,
    aliases={"file_path": "path"},
    timeout=120.0,
    replay="journal",
)
async def memory_write(
    ctx: ToolContext,
    path: Annotated[str, "In the memory folder, such as `decisions.md`"],
    content: Annotated[str, Param("The whole content", max_length=LARGEST)],
    scope: Scope = "project",
) -> Output:
    """Write or remove one file of memory."""
    from wieldy.files.apply_edit import apply_edit
    from wieldy.files.editing.revision import RewriteText

    absolute = memory_path(path, scope, ctx.workspace)
    require_confined(ctx.resolved(absolute), scope, ctx.workspace)
    if not content:
        return await _remove(ctx, absolute, path)
    return await apply_edit(ctx, absolute, RewriteText(content), tool="MemoryWrite")


async def _remove(ctx: ToolContext, absolute: str, path: str) -> Output:
    from wieldy.core.errors import StaleFileError
    from wieldy.files.apply_edit import change_files
    from wieldy.files.editing.revision import EditSettings, load_target
    from wieldy.files.journal.entries import FileChange
    from wieldy.files.writing.disk import WriteError

    state, real_path = ctx.workspace.services.read_state, ctx.resolved(absolute)
    writer = ctx.workspace.services.journal.writer
    target = await in_thread(load_target, absolute, EditSettings.of(ctx.workspace), real_path, writer)
    if target.stat is None:
        raise ToolFailure(f"There is no memory `{path}` to remove.", "MemoryRead without a path lists what there is.")
    if not state.is_current(real_path, target.content or b"", target.stat):
        raise ToolFailure(f"`{path}` must be read first.", "Read it with MemoryRead, then remove it.")
    try:
        result = await change_files(ctx, [FileChange(absolute, target.content, None, real_path)], tool="MemoryWrite")
    except (WriteError, StaleFileError) as error:
        raise ToolFailure(str(error)) from error
    state.forget(real_path)
    return Output("\n".join((f"Removed `{path}`.", *result.notes)), {"path": path, "removed": True})
