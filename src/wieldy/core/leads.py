"""Where a path leads: links followed, and what is written in a path without being part of it left out."""

from __future__ import annotations

import os
import stat


def real_path(path: str) -> str:
    """`os.path.realpath`, quicker for the common path that no link lies on."""
    if not is_plain(path) and (path[:1] != "/" or path != plain(path)):
        return os.path.realpath(path)
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


def plain(path: str) -> str:
    """An absolute path without `.`, `..` and doubled slashes."""
    if is_plain(path):
        return path
    norm = os.path.normpath(path)
    return norm[1:] if norm.startswith("//") else norm


def is_plain(path: str) -> bool:
    """Whether a quick look shows that a path is absolute and has nothing in it that `plain` would take out."""
    return path[:1] == "/" != path[-1:] and "/." not in path and "//" not in path
