"""Opens exactly what was judged: no component of the path may be a link, whatever was swapped in meanwhile."""

from __future__ import annotations

import errno
import os

from wieldy.core.leads import lies_at

FOLDER_FLAGS = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Enough to go on from, and it opens nothing.
WALK_FLAGS = FOLDER_FLAGS | getattr(os, "O_PATH", os.O_RDONLY)


class Swapped(OSError):
    """The path leads elsewhere than when it was judged."""

    def __init__(self, path: str) -> None:
        super().__init__(errno.ELOOP, "the path leads elsewhere than when the call was checked", path)


def open_exact(path: str, flags: int, mode: int = 0o666) -> int:
    """A descriptor for a real path. Raises `Swapped` where a link has come in between."""
    folder, _, name = path.rpartition("/")
    here = _folder(folder or "/", WALK_FLAGS, path)
    try:
        return _step(name or ".", flags, here, path, mode)
    finally:
        os.close(here)


def open_exact_folder(path: str) -> int:
    """The same for a folder, to write into: one that may be entered but not listed is good enough."""
    try:
        return _folder(path, FOLDER_FLAGS, path)
    except PermissionError:
        return _folder(path, WALK_FLAGS, path)


def _folder(path: str, flags: int, whole: str) -> int:
    try:
        found = os.open(path, flags)
    except OSError:
        return _walked(path, flags, whole)  # which tells why
    if lies_at(found, path):
        return found
    os.close(found)
    return _walked(path, flags, whole)


def _walked(path: str, flags: int, whole: str) -> int:
    """Step by step, by descriptors of folders."""
    here = os.open("/", WALK_FLAGS)
    names = [name for name in path.split("/") if name]
    try:
        for name in names[:-1]:
            here, above = _step(name, WALK_FLAGS, here, whole), here
            os.close(above)
        return _step(names[-1] if names else ".", flags, here, whole)
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
