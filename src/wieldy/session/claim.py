"""One process at a time writes a session: the log is locked for as long as it is open, and whoever holds it says so beside it."""

from __future__ import annotations

import os
from pathlib import Path

from wieldy.core.failure import SessionError

NAME = "owner"


class Taken(SessionError):
    """Another process has the session open."""


def claim(file: int, folder: Path) -> None:
    """Lock an open log for this process, until it is closed or the process ends. Raises `Taken`.

    Where the system or its file system knows no such locks, nothing is locked.
    """
    try:
        import fcntl
    except ImportError:
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Taken(
            f"the session {folder.name} is open in {_owner(folder)}; wait until that ends, "
            "or go on with a copy: --fork-session"
        ) from None
    except OSError:
        return
    try:
        (folder / NAME).write_text(f"{os.getpid()}\n", encoding="utf-8")
    except OSError:
        return


def _owner(folder: Path) -> str:
    try:
        pid = int((folder / NAME).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return "another process"
    return "this very process" if pid == os.getpid() else f"another process (pid {pid})"
