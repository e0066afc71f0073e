"""Why a file does not open or read, in words that say what to do instead."""

from __future__ import annotations

import errno
import os

from wieldy.core.exact import Swapped
from wieldy.reading.opened import shown


def why_unreadable(path: str, error: OSError) -> str:
    """What to tell about a file that gave this error; looks round for similar names where it is missing."""
    name = shown(path)
    if isinstance(error, Swapped):
        return f"{name} leads elsewhere than when it was checked; nothing was read. Try again when nobody moves it."
    match error.errno:
        case errno.ENOENT if (target := _link(path)) is not None:
            return f"{name} is a symbolic link to {shown(target)}, which does not exist."
        case errno.ENOENT:
            return f"{name} does not exist. {_suggestion(path)}"
        case errno.ENOTDIR:
            return f"{name} cannot exist: part of the path is a file, not a directory. {_suggestion(path)}"
        case errno.ELOOP:
            return f"{name} is a symbolic link that leads back to itself."
        case errno.EACCES | errno.EPERM:
            return f"{name} may not be read: permission denied."
        case errno.EAGAIN:
            return f"{name} has nothing to read now and would wait for more. Use Bash with a timeout."
        case _:
            return f"{name} cannot be read: {error.strerror or error}."


def _link(path: str) -> str | None:
    try:
        return os.readlink(path)
    except OSError:
        return None


def _suggestion(path: str) -> str:
    from wieldy.search.nearby import similar_names

    names = similar_names(path)
    return f"Did you mean {' or '.join(names)}?" if names else "Use Glob or LS to find the right path."
