"""Copies of whole folders: walking, cloning, copying and removing them."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import TypeAlias

from wieldy.core.errors import WieldyError

SMALL_TREE_BYTES = 50_000_000
SMALL_TREE_FILES = 5_000
FICLONE = 0x40049409
NO_REFLINK = (errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL, errno.ENOTTY, errno.ENOSYS)

CopyFile: TypeAlias = Callable[[str, str], object]


class IsolationError(WieldyError):
    """No copy can be made in the way that was asked for; the message says why."""


def walk_files(folder: str, *, exclude: Collection[str] = (), git: bool = False) -> Iterator[os.DirEntry[str]]:
    """Every entry below a folder that is no folder itself; with `git`, also the repository."""
    folders = [folder]
    while folders:
        try:
            entries = os.scandir(folders.pop())
        except OSError:
            continue
        with entries:
            for entry in entries:
                if (entry.name == ".git" and not git) or entry.path in exclude:
                    continue
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                else:
                    yield entry


def is_small(tree: Path, exclude: Collection[str] = ()) -> bool:
    """Whether a plain copy of a folder costs next to nothing."""
    size = 0
    for files, entry in enumerate(walk_files(str(tree), exclude=exclude, git=True), 1):
        with contextlib.suppress(OSError):
            size += entry.stat(follow_symlinks=False).st_size
        if files > SMALL_TREE_FILES or size > SMALL_TREE_BYTES:
            return False
    return True


def copy_tree(source: str | Path, target: str | Path, copy_file: CopyFile, exclude: Collection[str] = ()) -> None:
    """Copy a folder: symlinks as they are, modes and times kept, sockets and pipes left out. Raises `OSError`.

    What vanishes meanwhile is left out: somebody may be working in the folder.
    """
    folders = [(os.fspath(source), os.fspath(target))]
    times: list[tuple[str, os.stat_result]] = []
    while folders:
        here, there = folders.pop()
        try:
            status, entries = os.stat(here), os.scandir(here)
        except (FileNotFoundError, NotADirectoryError):
            if not times:
                raise
            continue
        with entries:
            os.mkdir(there, 0o700)
            times.append((there, status))
            for entry in entries:
                if entry.path in exclude:
                    continue
                to = os.path.join(there, entry.name)
                if entry.is_dir(follow_symlinks=False):
                    folders.append((entry.path, to))
                    continue
                try:
                    if entry.is_symlink():
                        os.symlink(os.readlink(entry.path), to)
                    elif entry.is_file(follow_symlinks=False):
                        copy_file(entry.path, to)
                except FileNotFoundError:
                    if os.path.lexists(entry.path):
                        raise
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(to)
    for folder, status in reversed(times):
        os.chmod(folder, stat.S_IMODE(status.st_mode) | stat.S_IRWXU)
        os.utime(folder, ns=(status.st_atime_ns, status.st_mtime_ns))


def plain_copy(source: str, target: str) -> None:
    """Copy a file with its mode and times. Raises `OSError`."""
    shutil.copyfile(source, target, follow_symlinks=False)
    shutil.copystat(source, target, follow_symlinks=False)


def clone(source: str, target: str) -> None:
    """Clone a file copy-on-write. Raises `OSError`, one of `NO_REFLINK` where the file system cannot."""
    import fcntl

    with open(source, "rb") as old, open(target, "xb") as new:
        fcntl.ioctl(new.fileno(), FICLONE, old.fileno())
    shutil.copystat(source, target, follow_symlinks=False)


def clone_or_copy(source: str, target: str) -> None:
    """Clone a file where that is possible, else copy it. Raises `OSError`."""
    try:
        clone(source, target)
    except OSError:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(target)
        plain_copy(source, target)


def _open_folders(path: Path) -> None:
    """Give the owner of a tree all rights to its folders, each before it is entered."""
    with contextlib.suppress(OSError):
        os.chmod(path, 0o700)
    for folder, names, _ in os.walk(path):
        for name in names:
            child = os.path.join(folder, name)
            if not os.path.islink(child):
                with contextlib.suppress(OSError):
                    os.chmod(child, 0o700)


def remove_tree(path: Path) -> None:
    """Remove a folder, also one with folders that its owner may not write to, as far as that is possible."""
    try:
        shutil.rmtree(path)
    except FileNotFoundError:
        return
    except OSError:
        _open_folders(path)
        shutil.rmtree(path, ignore_errors=True)
