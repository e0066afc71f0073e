"""Where a path leads: links followed, and what is written in a path without being part of it left out."""

from __future__ import annotations

import os
import stat

# Paths of no more steps than this are looked at step by step as quickly as the system is asked for them.
SHALLOW = 5
# Finds a file without opening it.
_LOOK: int | None = os.O_PATH | os.O_CLOEXEC if hasattr(os, "O_PATH") else None


def real_path(path: str) -> str:
    """`os.path.realpath`, quicker for the common path that no link lies on."""
    if not is_plain(path) and (path[:1] != "/" or path != plain(path)):
        return os.path.realpath(path)
    if path.count("/") > SHALLOW and _is_real(path):
        return path
    end = 0
    while end >= 0:
        end = path.find("/", end + 1)
        try:
            if stat.S_ISLNK(os.lstat(path[:end] if end >= 0 else path).st_mode):
                return os.path.realpath(path)
        except FileNotFoundError:
            return path  # and nothing below it exists either
        except OSError:
            return os.path.realpath(path)
    return path


def lies_at(descriptor: int, path: str) -> bool:
    """Whether an open file has this very path, as the system knows it: then no link was followed to get there."""
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}") == path
    except OSError:
        return False


def _is_real(path: str) -> bool:
    """Whether a path can be seen to be one without links, however deep it is, in three calls."""
    if _LOOK is None:
        return False
    try:
        found = os.open(path, _LOOK)
    except OSError:
        return False
    try:
        return lies_at(found, path)
    finally:
        os.close(found)


def plain(path: str) -> str:
    """An absolute path without `.`, `..` and doubled slashes."""
    if is_plain(path):
        return path
    norm = os.path.normpath(path)
    return norm[1:] if norm.startswith("//") else norm


def is_plain(path: str) -> bool:
    """Whether a quick look shows that a path is absolute and has nothing in it that `plain` would take out."""
    return path[:1] == "/" != path[-1:] and "/." not in path and "//" not in path
