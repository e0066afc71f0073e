"""The memory folders of project and user: paths in them can name nothing outside, and links out are refused."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Literal, TypeAlias, get_args

from msgspec import Struct

from wieldy.core.errors import Refusal, ToolFailure
from wieldy.core.filesystem import FileSystem
from wieldy.core.state_dirs import config_home
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
