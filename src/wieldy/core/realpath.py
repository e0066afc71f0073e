"""Where a path leads: links followed, and what is written in a path without being part of it left out."""

from __future__ import annotations

import errno
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
