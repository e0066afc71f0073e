"""The folders of memory and the paths in them: nothing outside can be named, and no link leads out."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Literal, TypeAlias, get_args

from msgspec import Struct

from wieldy.core.errors import Refusal, ToolFailure
from wieldy.core.state_dirs import config_home
from wieldy.core.workspace import Workspace

Scope: TypeAlias = Literal["project", "user"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
MOST_LISTED = 200
DEEPEST = 4


class Memo(Struct, frozen=True):
    """One file of memory, by its path inside the folder."""

    scope: Scope
    path: str
    size: int


def folder_of(scope: Scope, workspace: Workspace) -> str:
    """Where a scope keeps its files. The project's is taken as it is spelled, so that a link in its place leads nowhere."""
    if scope == "project":
        return os.path.join(workspace.root, ".wieldy", "memory")
    return os.path.realpath(config_home(workspace.env) / "memory")


def place(path: str, scope: Scope, workspace: Workspace) -> str:
    """The absolute path of a file of memory. Raises `Refusal` for a path that would leave the folder."""
    names = path.replace("\\", "/").split("/")
    wrong = next((name for name in names if not name.strip() or name.startswith(".") or not name.isprintable()), None)
    if wrong is not None:
        raise Refusal(
            "normalize",
            f"`{path}` is no path in the memory folder: send a relative one such as `decisions.md` or `api/errors.md`, "
            "without `..` and without hidden names.",
        )
    return workspace.resolve(os.path.join(folder_of(scope, workspace), *names))


def require_confined(real: str, scope: Scope, workspace: Workspace) -> None:
    """Refuse a path that a link has led out of the folder."""
    if not real.startswith(folder_of(scope, workspace) + os.sep):
        raise ToolFailure("A link leads out of the memory folder there, and is not followed. Choose another path.")


def memos(workspace: Workspace) -> Iterator[Memo]:
    """Every file of memory, the project's first, by name."""
    for scope in SCOPES:
        top = folder_of(scope, workspace)
        if os.path.realpath(top) == top:
            yield from (Memo(scope, os.path.relpath(path, top), size) for path, size in _files(top, DEEPEST))


def _files(folder: str, depth: int) -> Iterator[tuple[str, int]]:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        if entry.name.startswith("."):
            continue
        if entry.is_file(follow_symlinks=False):
            yield entry.path, entry.stat(follow_symlinks=False).st_size
        elif depth > 1 and entry.is_dir(follow_symlinks=False):
            yield from _files(entry.path, depth - 1)
