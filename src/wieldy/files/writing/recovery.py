"""Taking back what an unfinished commit did, in the process that failed or in the next one after a crash.

Nothing is searched for: the steps name every file that may have been left, and the disk tells how far they came.
"""

from __future__ import annotations

import errno
import os
import stat as bits
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress
from itertools import zip_longest
from typing import Literal, TypeAlias

from wieldy.core.realpath import Swapped, open_exact_folder
from wieldy.files.editing.splicing import common_prefix_length
from wieldy.files.writing.disk import LOCAL, Disk, pwrite_all, read_all, sync_folder, write_all
from wieldy.files.writing.metadata import PRIVATE, carry_over
from wieldy.files.writing.target import READ_FLAGS, Step

BLOCK = 4096
MIXED_BLOCKS = 64


def overwrite(disk: Disk, fd: int, old_size: int, data: bytes) -> None:
    """Turn an open file of `old_size` bytes into `data`. It grows first: a full disk shows before anything is lost."""
    view = memoryview(data)
    pwrite_all(disk, fd, view[old_size:], old_size)
    pwrite_all(disk, fd, view[:old_size], 0)
    if len(data) < old_size:
        disk.truncate(fd, len(data))
    disk.sync(fd)


def put_back(disk: Disk, fd: int, before: bytes) -> None:
    """Undo an overwrite, finished or not, touching only the bytes that differ: this works on a full disk too."""
    found = read_all(fd)
    if len(found) > len(before):
        disk.truncate(fd, len(before))
    first = common_prefix_length(found, before)
    if first < len(before):
        pwrite_all(disk, fd, memoryview(before)[first:], first)
    disk.sync(fd)


def is_torn(found: bytes, before: bytes, after: bytes) -> bool:
    """Whether `found` is what an interrupted `overwrite` leaves: in every place the old byte or the new one."""
    if not min(len(before), len(after)) <= len(found) <= max(len(before), len(after)):
        return False
    mixed = 0
    for at in range(0, len(found), BLOCK):
        piece, old, new = (content[at : at + BLOCK] for content in (found, before, after))
        if piece in (old[: len(piece)], new[: len(piece)]):
            continue
        mixed += 1
        if mixed > MIXED_BLOCKS or not all(p is None or p in (o, n) for p, o, n in zip_longest(piece, old, new)):
            return False
    return True


State: TypeAlias = Literal["old", "new", "torn", "other"]

NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
# Where nothing may be removed, one is told this also of what is not there.
NOT_ALLOWED = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})
NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.ENOSYS, errno.EXDEV})


def recover(steps: Sequence[Step], *, disk: Disk = LOCAL) -> bool:
    """Bring the files of a commit whose process died to all new (true) or all old (false), and remove what it left.

    The caller holds the locks of every path, so that nobody is still at it. A file that someone else has changed
    since is left as it is.
    """
    with ExitStack() as stack:
        folders = {step.folder: _opened(step.folder, stack) for step in steps}
        states = [state_of(step, folders[step.folder]) for step in steps]
        finished = "new" in states and "old" not in states and "torn" not in states
        for step, state in zip(reversed(steps), reversed(states), strict=True):
            folder = folders[step.folder]
            if folder is None:
                continue
            if not finished and state in ("new", "torn"):
                take_back(step, folder, disk)
            sweep(step, folder, disk)
        if finished:
            drop_emptied(steps, disk)
        else:
            drop_folders((folder for step in steps if step.manner == "create" for folder in step.folders), disk)
        for folder in folders.values():
            if folder is not None:
                sync_folder(disk, folder)
    return finished


def take_back(step: Step, folder: int, disk: Disk) -> None:
    """Give one file, whose switch may have happened, its old content."""
    current = inode(step.name, folder)
    if step.manner == "create":
        disk.unlink(step.name, dir_fd=folder)
    elif step.manner == "in_place":
        fd = disk.open(step.name, os.O_RDWR | os.O_NOFOLLOW, dir_fd=folder)
        try:
            put_back(disk, fd, step.before or b"")
        finally:
            os.close(fd)
    elif not step.aside or (aside := inode(step.aside, folder)) is None:
        _rewrite(step, folder, disk)
    elif aside != current and (step.manner == "replace" or current is None):
        disk.rename(step.aside, step.name, dir_fd=folder)


def sweep(step: Step, folder: int, disk: Disk) -> None:
    """Remove the temporary names of a step, however far it came."""
    _remove((step.temp, step.aside), folder, disk)


def sweep_switched(step: Step, folder: int, disk: Disk) -> None:
    """Remove the one temporary name that a step can still have when its file is switched."""
    _remove((step.temp if step.manner == "create" else step.aside,), folder, disk)


def _remove(names: Iterable[str], folder: int, disk: Disk) -> None:
    for name in names:
        if name:
            try:
                disk.unlink(name, dir_fd=folder)
            except FileNotFoundError:
                continue
            except OSError as error:
                if error.errno not in NOT_ALLOWED or inode(name, folder) is not None:
                    raise


def drop_emptied(steps: Iterable[Step], disk: Disk) -> None:
    """Remove the folders that deletions left empty, where that was asked for. The files are gone either way."""
    emptied = [folder for step in steps if step.manner == "delete" for folder in step.folders]
    if emptied:
        with suppress(OSError):
            drop_folders(emptied, disk)


def drop_folders(folders: Iterable[str], disk: Disk) -> None:
    """Remove these folders, innermost first, as far as they exist and are empty."""
    for path in sorted(set(folders), key=len, reverse=True):
        try:
            parent = open_exact_folder(os.path.dirname(path))
        except (FileNotFoundError, NotADirectoryError, Swapped):
            continue
        try:
            disk.rmdir(os.path.basename(path), dir_fd=parent)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise
        finally:
            os.close(parent)


def inode(name: str, folder: int) -> tuple[int, int] | None:
    """Which file a name stands for, if it stands for one."""
    try:
        stat = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    return stat.st_dev, stat.st_ino


def _rewrite(step: Step, folder: int, disk: Disk) -> None:
    """Where no second name was kept, the old content is written anew."""
    with suppress(FileNotFoundError):
        disk.unlink(step.temp, dir_fd=folder)
    fd = disk.open(step.temp, NEW_FILE, PRIVATE, dir_fd=folder)
    try:
        write_all(disk, fd, step.before or b"")
        if inode(step.name, folder) is None:
            disk.chmod(fd, PRIVATE if step.mode is None else step.mode)
        else:
            current = os.open(step.name, READ_FLAGS, dir_fd=folder)
            try:
                carry_over(disk, current, fd, os.fstat(fd))
            finally:
                os.close(current)
        disk.sync(fd)
    finally:
        os.close(fd)
    disk.rename(step.temp, step.name, dir_fd=folder)


def state_of(step: Step, folder: int | None) -> State:
    """How far a step came, to judge by what has the file's name now."""
    found = None if folder is None else _content(step.name, folder)
    if found is False:
        return "other"
    if found == step.after:
        return "new"
    if found == step.before:
        return "old"
    torn = (
        step.manner == "in_place" and isinstance(found, bytes) and is_torn(found, step.before or b"", step.after or b"")
    )
    return "torn" if torn else "other"


def _content(name: str, folder: int) -> bytes | Literal[False] | None:
    try:
        fd = os.open(name, READ_FLAGS, dir_fd=folder)
    except FileNotFoundError:
        return None
    except OSError:
        return False
    try:
        return read_all(fd) if bits.S_ISREG(os.fstat(fd).st_mode) else False
    finally:
        os.close(fd)


def _opened(path: str, stack: ExitStack) -> int | None:
    try:
        fd = open_exact_folder(path)
    except OSError:
        return None
    stack.callback(os.close, fd)
    return fd
