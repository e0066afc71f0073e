"""The system calls that change files, behind one class so that tests can inject faults and kills."""

from __future__ import annotations

import errno
import fcntl
import os
from typing import TypeAlias

Data: TypeAlias = bytes | memoryview

# macOS: plain fsync leaves data in the drive's cache.
FULL_SYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)


class Disk:
    """Every call that changes the file system. Names are relative to `dir_fd` where given."""

    __slots__ = ()

    def open(self, name: str, flags: int, mode: int = 0o666, *, dir_fd: int | None = None) -> int:
        return os.open(name, flags | os.O_CLOEXEC, mode, dir_fd=dir_fd)

    def write(self, fd: int, data: Data) -> int:
        return os.write(fd, data)

    def pwrite(self, fd: int, data: Data, offset: int) -> int:
        return os.pwrite(fd, data, offset)

    def truncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    def sync(self, fd: int) -> None:
        if FULL_SYNC is None:
            os.fsync(fd)
        else:
            fcntl.fcntl(fd, FULL_SYNC)

    def chmod(self, fd: int, mode: int) -> None:
        os.fchmod(fd, mode)

    def chmod_at(self, name: str, mode: int, *, dir_fd: int) -> None:
        """Change the permissions of a file or folder, also of one that may not be opened. Symlinks are not followed."""
        if os.chmod in os.supports_follow_symlinks:
            os.chmod(name, mode, dir_fd=dir_fd, follow_symlinks=False)
            return
        fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=dir_fd)
        try:
            os.chmod(f"/proc/self/fd/{fd}", mode)
        finally:
            os.close(fd)

    def symlink(self, target: str, name: str, *, dir_fd: int) -> None:
        os.symlink(target, name, dir_fd=dir_fd)

    def chown(self, fd: int, uid: int, gid: int) -> None:
        os.fchown(fd, uid, gid)

    def setxattr(self, fd: int, name: str, value: bytes) -> None:
        os.setxattr(fd, name, value)

    def link(self, name: str, new: str, *, dir_fd: int) -> None:
        os.link(name, new, src_dir_fd=dir_fd, dst_dir_fd=dir_fd, follow_symlinks=False)

    def rename(self, name: str, new: str, *, dir_fd: int) -> None:
        os.rename(name, new, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)

    def unlink(self, name: str, *, dir_fd: int | None = None) -> None:
        os.unlink(name, dir_fd=dir_fd)

    def mkdir(self, name: str, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        os.mkdir(name, mode, dir_fd=dir_fd)

    def rmdir(self, name: str, *, dir_fd: int) -> None:
        os.rmdir(name, dir_fd=dir_fd)


LOCAL_DISK = Disk()


def write_all(disk: Disk, fd: int, data: Data) -> None:
    """Write until nothing is left."""
    rest = memoryview(data)
    while rest:
        rest = rest[_require_progress(disk.write(fd, rest)) :]


def pwrite_all(disk: Disk, fd: int, data: Data, offset: int) -> None:
    """Write at an offset until nothing is left."""
    rest = memoryview(data)
    while rest:
        count = _require_progress(disk.pwrite(fd, rest, offset))
        rest, offset = rest[count:], offset + count


def read_all(fd: int, size: int | None = None) -> bytes:
    """Read an open file from its start; `size` is the expected length."""
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


def _require_progress(count: int) -> int:
    if count <= 0:
        raise OSError(errno.EIO, "the disk accepted no data")
    return count
