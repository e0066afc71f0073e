"""The one reader of text that a project supplies: settings, instructions, ignore files, skills and their like.

Whoever wrote the project chose what such a name leads to: a secret, a device without end, a pipe that nobody writes to.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Sequence

from wieldy.core.text import format_size

MAX_BYTES = 1 << 20
"""Such files have some kilobytes; of all instructions together 32 000 characters are sent."""
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)


class UnfitText(OSError):
    """A file that is not read, though it may exist; the message says why."""

    def __init__(self, why: str, path: str) -> None:
        super().__init__(0, why, path)


def open_regular(path: str) -> int:
    """Open a regular file for reading without waiting. Raises `UnfitText` for anything else."""
    descriptor = os.open(path, _FLAGS)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise UnfitText("not a regular file", path)


def resolve_inside(path: str, folders: Sequence[str]) -> str:
    """The realpath of a file. Raises `UnfitText` where it leads out of all of these folders."""
    real = os.path.realpath(path)
    if any(real.startswith(f"{os.path.realpath(folder).rstrip(os.sep)}{os.sep}") for folder in folders):
        return real
    raise UnfitText("a link that leads out of the project", path)


def read_project_bytes(
    path: str | os.PathLike[str], folders: Sequence[str] | None = None, max_bytes: int = MAX_BYTES
) -> bytes:
    """The content of a file that must be in one of these folders, if they are given. Raises `OSError`.

    Without folders it may be anywhere, which suits text that is only compared and never shown.
    """
    path = os.fspath(path)
    descriptor = open_regular(path if folders is None else resolve_inside(path, folders))
    with open(descriptor, "rb", buffering=0) as file:
        if os.fstat(descriptor).st_size > max_bytes:
            raise UnfitText(f"larger than {format_size(max_bytes)}", path)
        data = bytearray()
        while chunk := file.read(max_bytes + 1 - len(data)):
            data += chunk
        if len(data) > max_bytes:  # files of /proc and /sys claim to be empty
            raise UnfitText(f"larger than {format_size(max_bytes)}", path)
    return bytes(data)


def read_project_text(
    path: str | os.PathLike[str], folders: Sequence[str] | None = None, max_bytes: int = MAX_BYTES
) -> str:
    """Like `read_project_bytes`, as text; bytes that are no UTF-8 stay distinguishable."""
    return read_project_bytes(path, folders, max_bytes).decode("utf-8", "surrogateescape")


def upward_folders(start: str, home: str, stat_of: Callable[[str], os.stat_result] = os.stat) -> Iterator[str]:
    """A folder and those above it whose files may speak for the work in it: the walk for project root and instructions.

    It ends below the home folder, and below one in which somebody can make files who cannot make any at the start:
    it is owned by another user (not root, nor the owner of the start), or everybody or another group may write to it.
    """
    yield start
    try:
        first = stat_of(start)
    except OSError:
        return
    trusted = {0, first.st_uid, *((os.getuid(),) if hasattr(os, "getuid") else ())}
    folder, parent = start, os.path.dirname(start)
    while parent not in (folder, home):
        try:
            status = stat_of(parent)
        except OSError:
            return
        may_group_write = status.st_mode & stat.S_IWGRP and not _is_own_group(status, first)
        if status.st_uid not in trusted or status.st_mode & stat.S_IWOTH or may_group_write:
            return
        yield parent
        folder, parent = parent, os.path.dirname(parent)


def _is_own_group(status: os.stat_result, first: os.stat_result) -> bool:
    """Whether a group that may write to a folder is root's, that of one person, or may write to the start as well."""
    if status.st_gid == 0 or (status.st_gid == first.st_gid and first.st_mode & stat.S_IWGRP):
        return True
    try:
        import grp
        import pwd

        owner = pwd.getpwuid(os.getuid())
        return owner.pw_gid == status.st_gid and set(grp.getgrgid(status.st_gid).gr_mem) <= {owner.pw_name}
    except (ImportError, KeyError):
        return False
