"""Remembers files that this process wrote last, to tell them from files that a command wrote meanwhile."""

from __future__ import annotations

import os
import threading

MAX_REMEMBERED = 1_000

_written: dict[str, tuple[int, ...]] = {}
_lock = threading.Lock()


def note_own_write(path: str, status: os.stat_result) -> None:
    """Remember a realpath as it is after our write."""
    with _lock:
        _written.pop(path, None)
        _written[path] = _identity(status)
        while len(_written) > MAX_REMEMBERED:
            del _written[next(iter(_written))]


def is_own_write(path: str) -> bool:
    """Whether a file is as we wrote it."""
    written = _written.get(path)
    try:
        return written is not None and _identity(os.lstat(path)) == written
    except OSError:
        return False


def _identity(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
