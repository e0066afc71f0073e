"""MemoryWrite: a note for later sessions, confined to the memory folders and kept for undo like any other change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from wieldy.core.effects import Effects, Writes
from wieldy.core.errors import Refusal, ToolFailure
from wieldy.core.tool import Output, ToolContext
from wieldy.core.tool_decorator import tool
from wieldy.core.workspace import Workspace
from wieldy.memory.folder import Scope, memory_path, require_confined
from wieldy.schema.fields import Param

if TYPE_CHECKING:
    from wieldy.files.editing.revision import PrepareEdit, Revision
    from wieldy.files.writing.commit import WrittenFile

LARGEST = 100_000


def _enabled(workspace: Workspace) -> bool | str:
    from wieldy.toolset.gates import feature_gate

    return feature_gate("MemoryWrite", workspace.settings, workspace.env) or True


async def _check(input: Mapping[str, Any], ctx: ToolContext) -> None:
    if (off := _enabled(ctx.workspace)) is not True:
        raise Refusal("check", f"MemoryWrite is {off}.")


def _effects(input: Mapping[str, Any], workspace: Workspace) -> Effects:
    return (Writes(memory_path(input["path"], input.get("scope", "project"), workspace)),)


@tool(
    name="MemoryWrite",
    described_in=__file__,
    effects=_effects,
    enabled=_enabled,
    check=_check,
    timeout=120.0,
)
async def memory_write(
    ctx: ToolContext,
    path: Annotated[str, "In the memory folder, such as `decisions.md`"],
    content: Annotated[str, Param("The whole content", max_length=LARGEST)],
    scope: Scope = "project",
) -> Output:
    """Write or remove one file of memory."""
    from wieldy.files.apply_edit import change_file
    from wieldy.files.editing.read_state import ReadState

    absolute = memory_path(path, scope, ctx.workspace)
    require_confined(ctx.resolved(absolute), scope, ctx.workspace)
    if not content:
        return await _removed(ctx, absolute, path)

    async def write(revision: Revision) -> WrittenFile:
        return await _applied(ctx, absolute, revision.before, revision.after)

    return await change_file(_prepare(ctx, absolute, content), write, ctx.workspace.service(ReadState))


def _prepare(ctx: ToolContext, absolute: str, content: str) -> PrepareEdit:
    from wieldy.files.editing.replacements import rewrite_preparer

    return rewrite_preparer(absolute, content, ctx.workspace, ctx.resolved(absolute))


async def _removed(ctx: ToolContext, absolute: str, path: str) -> Output:
    from wieldy.files.editing.read_state import ReadState
    from wieldy.files.editing.revision import EditSettings, load_target
    from wieldy.files.writing.errors import StaleFileError, WriteError

    state = ctx.workspace.service(ReadState)
    target = load_target(absolute, EditSettings.of(ctx.workspace), resolved=ctx.resolved(absolute))
    if target.stat is None:
        raise ToolFailure(f"There is no memory `{path}` to remove. MemoryRead without a path lists what there is.")
    if not state.is_current(absolute, target.content or b"", target.stat):
        raise ToolFailure(f"`{path}` must be read first: read it with MemoryRead, then remove it.")
    try:
        await _applied(ctx, absolute, target.content, None)
    except (WriteError, StaleFileError) as failure:
        raise ToolFailure(str(failure)) from failure
    state.forget(absolute)
    return Output(f"Removed `{path}`.", {"path": path, "removed": True})


async def _applied(ctx: ToolContext, absolute: str, before: bytes | None, after: bytes | None) -> WrittenFile:
    from wieldy.files.journal.entries import Change
    from wieldy.files.journal.journal import Journal

    change = Change(absolute, before, after, ctx.resolved(absolute))
    journal = ctx.workspace.service(Journal)
    receipt = await journal.apply([change], call_id=ctx.call_id, tool="MemoryWrite", turn=ctx.message_id)
    return receipt.written[0]
