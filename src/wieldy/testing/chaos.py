"""Disks that fail or vanish at a chosen moment, for tests that ask what is left then."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

from wieldy.files.writing.disk import Data, Disk


class WatchedDisk(Disk):
    """A real disk that calls `watch` with the name of every call, before it happens."""

    __slots__ = ("_watch",)

    def __init__(self, watch: Callable[[str], None]) -> None:
        self._watch = watch

    def open(self, name: str, flags: int, mode: int = 0o666, *, dir_fd: int | None = None) -> int:
        """See `Disk`."""
        self._watch("open")
        return super().open(name, flags, mode, dir_fd=dir_fd)

    def write(self, fd: int, data: Data) -> int:
        """See `Disk`."""
        self._watch("write")
        return super().write(fd, data)

    def pwrite(self, fd: int, data: Data, offset: int) -> int:
        """See `Disk`."""
        self._watch("pwrite")
        return super().pwrite(fd, data, offset)

    def lengthen(self, fd: int, size: int, by: int) -> None:
        """See `Disk`."""
        self._watch("lengthen")
        super().lengthen(fd, size, by)

    def truncate(self, fd: int, size: int) -> None:
        """See `Disk`."""
        self._watch("truncate")
        super().truncate(fd, size)

    def sync(self, fd: int) -> None:
        """See `Disk`."""
        self._watch("sync")
        super().sync(fd)

    def sync_content(self, fd: int) -> None:
        """See `Disk`; to whoever watches, a sync is a sync."""
        self._watch("sync")
        super().sync_content(fd)

    def chmod(self, fd: int, mode: int) -> None:
        """See `Disk`."""
        self._watch("chmod")
        super().chmod(fd, mode)

    def chown(self, fd: int, uid: int, gid: int) -> None:
        """See `Disk`."""
        self._watch("chown")
        super().chown(fd, uid, gid)

    def setxattr(self, fd: int, name: str, value: bytes) -> None:
        """See `Disk`."""
        self._watch("setxattr")
        super().setxattr(fd, name, value)

    def link(self, name: str, new: str, *, dir_fd: int) -> None:
        """See `Disk`."""
        self._watch("link")
        super().link(name, new, dir_fd=dir_fd)

    def rename(self, name: str, new: str, *, dir_fd: int) -> None:
        """See `Disk`."""
        self._watch("rename")
        super().rename(name, new, dir_fd=dir_fd)

    def unlink(self, name: str, *, dir_fd: int | None = None) -> None:
        """See `Disk`."""
        self._watch("unlink")
        super().unlink(name, dir_fd=dir_fd)

    def mkdir(self, name: str, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        """See `Disk`."""
        self._watch("mkdir")
        super().mkdir(name, mode, dir_fd=dir_fd)

    def rmdir(self, name: str, *, dir_fd: int) -> None:
        """See `Disk`."""
        self._watch("rmdir")
        super().rmdir(name, dir_fd=dir_fd)


class SlowDisk(WatchedDisk):
    """Writes a few bytes at a time, so that every write is cut short and content passes through many states."""

    __slots__ = ("_most",)

    def __init__(self, watch: Callable[[str], None] = lambda call: None, *, most: int = 7) -> None:
        super().__init__(watch)
        self._most = most

    def write(self, fd: int, data: Data) -> int:
        """At most a few bytes."""
        return super().write(fd, data[: self._most])

    def pwrite(self, fd: int, data: Data, offset: int) -> int:
        """At most a few bytes."""
        return super().pwrite(fd, data[: self._most], offset)


class HastyDisk(SlowDisk):
    """Waits for no medium. What it was told to sync survives the death of a process all the same, and tests are fast."""

    __slots__ = ()

    def sync(self, fd: int) -> None:
        """Let the watcher know, and go on."""
        self._watch("sync")

    def sync_content(self, fd: int) -> None:
        """The same."""
        self._watch("sync")


class Fault:
    """Raises an error at the nth call of some kinds, once or from then on."""

    def __init__(self, nth: int, number: int, *, calls: frozenset[str] | None = None, lasting: bool = False) -> None:
        self._left = nth
        self._number = number
        self._calls = calls
        self._lasting = lasting
        self.struck = False

    def __call__(self, call: str) -> None:
        """Count a call, and fail if it is the one."""
        if self._calls is not None and call not in self._calls:
            return
        self._left -= 1
        if self._left == 0 or (self._lasting and self.struck):
            self.struck = True
            raise OSError(self._number, os.strerror(self._number))


class Death:
    """Kills this very process, without warning, at the nth call."""

    def __init__(self, nth: int) -> None:
        self._left = nth

    def __call__(self, call: str) -> None:
        """Count a call, and die if it is the one."""
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


class Gone(BaseException):
    """The process is as good as dead: after this, nothing that it wants to do to a disk happens any more."""


class Vanishing:
    """Raises `Gone` at the first call of a kind, and at every call after it."""

    def __init__(self, at: str) -> None:
        self._at = at
        self._gone = False

    def __call__(self, call: str) -> None:
        """See what is called, and be gone if it is the one."""
        self._gone = self._gone or call == self._at
        if self._gone:
            raise Gone
