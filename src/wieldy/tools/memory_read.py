"""MemoryRead: the notes of earlier sessions."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Annotated, Any

from msgspec.structs import asdict

from wieldy.core.effects import Effects, Reads
from wieldy.core.errors import ToolFailure
from wieldy.core.threads import in_thread
from wieldy.core.tool import Output, ToolContext
from wieldy.core.tool_decorator import tool
from wieldy.core.workspace import Workspace
from wieldy.tools.memory.folder import (
    MAX_LISTED,
    SCOPES,
    Scope,
    memory_files,
    memory_folder,
    memory_path,
    require_confined,
)

MAX_BYTES = 200_000


def _effects(input: Mapping[str, Any], workspace: Workspace) -> Effects:
    if path := input.get("path"):
        return (Reads(memory_path(path, input.get("scope", "project"), workspace)),)
    return tuple(Reads(memory_folder(scope, workspace)) for scope in SCOPES)


@tool(
    name="MemoryRead",
    described_in=__file__,
    fails={"path": "../x"},
    read_only=True,
    effects=_effects,
    aliases={"file_path": "path"},
)
async def memory_read(
    ctx: ToolContext, path: Annotated[str, "In the memory folder"] = "", scope: Scope = "project"
) -> Output:
    if not path:
        return await in_thread(_list_files, ctx.workspace)
    try:
        return await in_thread(_read_file, ctx, memory_path(path, scope, ctx.workspace), path, scope)
    except OSError as error:
        why = (
            "there is no such file" if isinstance(error, FileNotFoundError) else (error.strerror or str(error)).lower()
        )
        raise ToolFailure(
            f"{scope} memory `{path}`: {why}.", "MemoryRead without a path lists what there is."
        ) from None


def _list_files(workspace: Workspace) -> Output:
    files = list(islice(memory_files(workspace), MAX_LISTED + 1))
    lines = [f"{file.scope}: {file.path} ({file.size} bytes)" for file in files[:MAX_LISTED]]
    if len(files) > MAX_LISTED:
        lines.append("… and more")
    data = {"memories": [asdict(file) for file in files[:MAX_LISTED]]}
    return Output("\n".join(lines) or "Nothing has been noted yet.", data)


def _read_file(ctx: ToolContext, absolute: str, path: str, scope: Scope) -> Output:
    from wieldy.files.detection import binary_kind
    from wieldy.files.editing.document import Document
    from wieldy.files.reading.read_file import open_file

    real = ctx.resolved(absolute)
    require_confined(real, scope, ctx.workspace)
    with open_file(absolute, real, ctx.workspace.files) as file:
        data = file.read_all(MAX_BYTES)
        if data is None:
            raise ToolFailure(f"`{path}` is larger than {MAX_BYTES} bytes.", f"Read it in pages with Read: {absolute}")
        if kind := binary_kind(data):
            raise ToolFailure(f"`{path}` is not text but {kind}.")
        ctx.workspace.services.read_state.record_read(real, data=data, stat=file.stat, first=1, last=0, complete=True)
    text = Document.of(data).text
    return Output(text or "(the file is empty)", {"path": path, "scope": scope, "content": text})
