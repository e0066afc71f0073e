"""Opens exactly the file that was judged: no component of the path may be a link, whatever was swapped in meanwhile."""

from __future__ import annotations

import errno
import os


class Swapped(OSError):
    """The path leads elsewhere than when it was judged."""

    def __init__(self, path: str) -> None:
        super().__init__(errno.ELOOP, "the path leads elsewhere than when the call was checked", path)


def open_exact(path: str, flags: int, mode: int = 0o666) -> int:
    """A descriptor for a real path. Walks down by directory descriptors; raises `Swapped` where a link has come in between."""
    *folders, name = path.split("/")[1:]
    here = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for folder in folders:
            if not folder:
                continue
            below = _step(folder, os.O_PATH | os.O_DIRECTORY, here, path)
            os.close(here)
            here = below
        return _step(name or ".", flags, here, path, mode)
    finally:
        os.close(here)


def _step(name: str, flags: int, folder: int, path: str, mode: int = 0o666) -> int:
    try:
        return os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=folder)
    except OSError as error:
        if error.errno == errno.ELOOP or (error.errno == errno.ENOTDIR and _is_link(name, folder)):
            raise Swapped(path) from None
        error.filename = path
        raise


def _is_link(name: str, folder: int) -> bool:
    try:
        os.readlink(name, dir_fd=folder)
    except OSError:
        return False
    return True
