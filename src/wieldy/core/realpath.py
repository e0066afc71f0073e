"""Realpaths: resolve them, and open exactly the file that was judged, with no symlink in between (TOCTOU)."""

from __future__ import annotations

import contextlib
import errno
import os

REALPATH_ATTEMPTS = 10
FOLDER_FLAGS = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
WALK_FLAGS = FOLDER_FLAGS | getattr(os, "O_PATH", os.O_RDONLY)  # O_PATH: enough to walk on, opens nothing


PATH_KEEPS_CHANGING = (
    "leads elsewhere each time it is followed: another program is replacing a symlink or folder on the way"
)


class PathChanged(OSError):
    """The path leads elsewhere than when it was judged."""

    def __init__(self, path: str) -> None:
        super().__init__(errno.ELOOP, "the path leads elsewhere than when the call was checked", path)


def realpath(path: str) -> str:
    """Like `os.path.realpath`, retried while symlinks on the way vanish. Raises `PathChanged` where that does not end.

    A symlink that may not be read, as `/proc/1/cwd`, stays in the path, on every version of Python: no file behind it
    can be opened either.
    """
    for _ in range(REALPATH_ATTEMPTS):
        try:
            return os.path.realpath(path)
        except PermissionError:
            folder, name = os.path.split(path)
            return os.path.normpath(os.path.join(realpath(folder), name))
        except OSError:
            continue
    raise PathChanged(path)


def open_resolved(path: str, flags: int, mode: int = 0o666) -> int:
    """Open a realpath and return its descriptor. Raises `PathChanged` where a symlink has come in between."""
    folder, _, name = path.rpartition("/")
    folder_fd = _open_folder(folder or "/", WALK_FLAGS, path)
    try:
        return _open_at(name or ".", flags, folder_fd, path, mode)
    finally:
        os.close(folder_fd)


def open_resolved_folder(path: str) -> int:
    """Like `open_resolved`, for a folder to write into, even one that may be entered but not listed."""
    try:
        return _open_folder(path, FOLDER_FLAGS, path)
    except PermissionError:
        return _open_folder(path, WALK_FLAGS, path)


def make_resolved_folders(path: str) -> None:
    """Make a folder and those above it, as far as they are missing. Raises `PathChanged` where a symlink is on the way."""
    fd = os.open("/", WALK_FLAGS)
    try:
        for name in filter(None, path.split("/")):
            try:
                child_fd = _open_at(name, WALK_FLAGS, fd, path)
            except FileNotFoundError:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(name, dir_fd=fd)
                child_fd = _open_at(name, WALK_FLAGS, fd, path)
            os.close(fd)
            fd = child_fd
    finally:
        os.close(fd)


def _open_folder(path: str, flags: int, whole: str) -> int:
    """Open in one call and verify; walk step by step where that fails, which also tells why."""
    try:
        fd = os.open(path, flags)
    except OSError:
        return _walk(path, flags, whole)
    if _is_at(fd, path):
        return fd
    os.close(fd)
    return _walk(path, flags, whole)


def _is_at(fd: int, path: str) -> bool:
    """Whether the kernel knows an open file by exactly this path: then no symlink was followed."""
    try:
        return os.readlink(f"/proc/self/fd/{fd}") == path
    except OSError:
        return False


def _walk(path: str, flags: int, whole: str) -> int:
    """Open a folder step by step by descriptors, following no symlink."""
    fd = os.open("/", WALK_FLAGS)
    names = [name for name in path.split("/") if name]
    try:
        for name in names[:-1]:
            fd, parent_fd = _open_at(name, WALK_FLAGS, fd, whole), fd
            os.close(parent_fd)
        return _open_at(names[-1] if names else ".", flags, fd, whole)
    finally:
        os.close(fd)


def _open_at(name: str, flags: int, folder_fd: int, path: str, mode: int = 0o666) -> int:
    try:
        return os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=folder_fd)
    except OSError as error:
        if error.errno == errno.ELOOP or (error.errno == errno.ENOTDIR and _is_symlink(name, folder_fd)):
            raise PathChanged(path) from None
        error.filename = path
        raise


def _is_symlink(name: str, folder_fd: int) -> bool:
    """Raises `PermissionError` for one that may not be read."""
    try:
        os.readlink(name, dir_fd=folder_fd)
    except PermissionError:
        raise
    except OSError:
        return False
    return True
