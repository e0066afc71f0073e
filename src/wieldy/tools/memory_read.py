"""MemoryRead: reads notes of earlier sessions; and the folders they are in."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Annotated, Any, Literal, TypeAlias, get_args

from msgspec import Struct
from msgspec.structs import asdict

from wieldy.core.effects import Effects, Reads
from wieldy.core.errors import Refusal, ToolFailure
from wieldy.core.filesystem import FileSystem
from wieldy.core.state_dirs import config_home
from wieldy.core.threads import in_thread
from wieldy.core.tool import Output, ToolContext
from wieldy.core.tool_decorator import tool
from wieldy.core.workspace import Workspace

Scope: TypeAlias = Literal["project", "user"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
MAX_LISTED = 200
MAX_DEPTH = 4


class MemoryFile(Struct, frozen=True):
    """A memory file; `path` is relative to its folder."""

    scope: Scope
    path: str
    size: int


def memory_folder(scope: Scope, workspace: Workspace) -> str:
    """The folder of a scope. The project's is not resolved, so that a symlink in its place is refused later."""
    if scope == "project":
        return os.path.join(workspace.root, ".wieldy", "memory")
    return os.path.realpath(config_home(workspace.env) / "memory")


def memory_path(path: str, scope: Scope, workspace: Workspace) -> str:
    """The absolute path of a memory file. Raises `Refusal` for a path that would leave the folder."""
    names = path.replace("\\", "/").split("/")
    invalid = next((name for name in names if not name.strip() or name.startswith(".") or not name.isprintable()), None)
    if invalid is not None:
        raise Refusal(
            "normalize",
            f"`{path}` is no path in the memory folder.",
            "Send a relative one such as `decisions.md` or `api/errors.md`, without `..` and without hidden names.",
        )
    return workspace.resolve(os.path.join(memory_folder(scope, workspace), *names))


def require_confined(real: str, scope: Scope, workspace: Workspace) -> None:
    """Raise `ToolFailure` for a resolved path outside the folder."""
    if not real.startswith(memory_folder(scope, workspace) + os.sep):
        raise ToolFailure("A link leads out of the memory folder there, and is not followed.", "Choose another path.")


def memory_files(workspace: Workspace) -> Iterator[MemoryFile]:
    """Every memory file by name, the project's first."""
    for scope in SCOPES:
        top = memory_folder(scope, workspace)
        if workspace.files.realpath(top) == top:
            files = _files(top, MAX_DEPTH, workspace.files)
            yield from (MemoryFile(scope, os.path.relpath(path, top), size) for path, size in files)


def _files(folder: str, depth: int, files: FileSystem) -> Iterator[tuple[str, int]]:
    try:
        entries = sorted(files.list_folder(folder), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        if entry.name.startswith("."):
            continue
        if entry.is_file(follow_symlinks=False):
            yield entry.path, files.lstat(entry.path).st_size
        elif depth > 1 and entry.is_dir(follow_symlinks=False):
            yield from _files(entry.path, depth - 1, files)


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
