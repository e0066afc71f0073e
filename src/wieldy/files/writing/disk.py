"""The system calls that change files, in one place, so that a full, broken or vanishing disk can be played."""

from __future__ import annotations

import errno
import fcntl
import os
from typing import TypeAlias

Data: TypeAlias = bytes | memoryview

# Where there is this one, fsync leaves data in the memory of the medium.
FULL_SYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)

_sync_content = getattr(os, "fdatasync", os.fsync)


class Disk:
    """Every call that leaves a trace on a disk. Names are relative to `dir_fd` where given; faults override methods."""

    __slots__ = ()

    def open(self, name: str, flags: int, mode: int = 0o666, *, dir_fd: int | None = None) -> int:
        """A new descriptor, never passed on to child processes."""
        return os.open(name, flags | os.O_CLOEXEC, mode, dir_fd=dir_fd)

    def write(self, fd: int, data: Data) -> int:
        """Write some of the data where the descriptor stands."""
        return os.write(fd, data)

    def pwrite(self, fd: int, data: Data, offset: int) -> int:
        """Write some of the data at an offset."""
        return os.pwrite(fd, data, offset)

    def lengthen(self, fd: int, size: int, by: int) -> None:
        """Have a file of a size go on with so many zeros, or fewer where there is no space for all of them."""
        os.pwrite(fd, bytes(by), size)

    def truncate(self, fd: int, size: int) -> None:
        """Cut a file to a size."""
        os.ftruncate(fd, size)

    def sync(self, fd: int) -> None:
        """Wait until a file or folder is on the medium itself."""
        if FULL_SYNC is None:
            os.fsync(fd)
        else:
            fcntl.fcntl(fd, FULL_SYNC)

    def sync_content(self, fd: int) -> None:
        """Wait until all that it takes to read a file is on the medium; when it was changed may not be."""
        if FULL_SYNC is None:
            _sync_content(fd)
        else:
            fcntl.fcntl(fd, FULL_SYNC)

    def chmod(self, fd: int, mode: int) -> None:
        """Set the permission bits."""
        os.fchmod(fd, mode)

    def chown(self, fd: int, uid: int, gid: int) -> None:
        """Set owner and group."""
        os.fchown(fd, uid, gid)

    def setxattr(self, fd: int, name: str, value: bytes) -> None:
        """Set one extended attribute."""
        os.setxattr(fd, name, value)

    def link(self, name: str, new: str, *, dir_fd: int) -> None:
        """A second name in the same folder; fails where the name is taken."""
        os.link(name, new, src_dir_fd=dir_fd, dst_dir_fd=dir_fd, follow_symlinks=False)

    def rename(self, name: str, new: str, *, dir_fd: int) -> None:
        """Give a file another name in the same folder, in the place of whatever has that name."""
        os.rename(name, new, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)

    def unlink(self, name: str, *, dir_fd: int | None = None) -> None:
        """Remove a name."""
        os.unlink(name, dir_fd=dir_fd)

    def mkdir(self, name: str, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        """Make a folder."""
        os.mkdir(name, mode, dir_fd=dir_fd)

    def rmdir(self, name: str, *, dir_fd: int) -> None:
        """Remove an empty folder."""
        os.rmdir(name, dir_fd=dir_fd)


LOCAL = Disk()


def write_all(disk: Disk, fd: int, data: Data) -> None:
    """Write until nothing is left."""
    rest = memoryview(data)
    while rest:
        rest = rest[_some(disk.write(fd, rest)) :]


def pwrite_all(disk: Disk, fd: int, data: Data, offset: int) -> None:
    """Write at an offset until nothing is left."""
    rest = memoryview(data)
    while rest:
        count = _some(disk.pwrite(fd, rest, offset))
        rest, offset = rest[count:], offset + count


def read_all(fd: int, size: int | None = None) -> bytes:
    """Everything from the start of an open file, whose `size` may be known."""
    if size is None:
        size = os.fstat(fd).st_size
    pieces: list[bytes] = []
    offset = 0
    while piece := os.pread(fd, max(size - offset, 0) + 1, offset):
        pieces.append(piece)
        offset += len(piece)
        if offset == size:
            break  # one byte more was asked for, and there is none
    return b"".join(pieces)


def sync_folder(disk: Disk, fd: int) -> None:
    """Make the names in a folder durable, where the system can."""
    try:
        disk.sync(fd)
    except OSError as error:
        if error.errno not in (errno.EBADF, errno.EINVAL, errno.ENOTSUP):
            raise


def _some(count: int) -> int:
    if count <= 0:
        raise OSError(errno.EIO, "the disk accepted no data")
    return count
