"""Disks that fail, or processes that die, at a chosen system call, for tests of what is left then."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

from wieldy.files.writing.disk import Data, Disk


class WatchedDisk(Disk):
    """A real disk that calls `watch` with the name of every call before it happens."""

    __slots__ = ("_watch",)

    def __init__(self, watch: Callable[[str], None]) -> None:
        self._watch = watch

    def open(self, name: str, flags: int, mode: int = 0o666, *, dir_fd: int | None = None) -> int:
        self._watch("open")
        return super().open(name, flags, mode, dir_fd=dir_fd)

    def write(self, fd: int, data: Data) -> int:
        self._watch("write")
        return super().write(fd, data)

    def pwrite(self, fd: int, data: Data, offset: int) -> int:
        self._watch("pwrite")
        return super().pwrite(fd, data, offset)

    def truncate(self, fd: int, size: int) -> None:
        self._watch("truncate")
        super().truncate(fd, size)

    def sync(self, fd: int) -> None:
        self._watch("sync")
        super().sync(fd)

    def chmod(self, fd: int, mode: int) -> None:
        self._watch("chmod")
        super().chmod(fd, mode)

    def chown(self, fd: int, uid: int, gid: int) -> None:
        self._watch("chown")
        super().chown(fd, uid, gid)

    def setxattr(self, fd: int, name: str, value: bytes) -> None:
        self._watch("setxattr")
        super().setxattr(fd, name, value)

    def link(self, name: str, new: str, *, dir_fd: int) -> None:
        self._watch("link")
        super().link(name, new, dir_fd=dir_fd)

    def rename(self, name: str, new: str, *, dir_fd: int) -> None:
        self._watch("rename")
        super().rename(name, new, dir_fd=dir_fd)

    def unlink(self, name: str, *, dir_fd: int | None = None) -> None:
        self._watch("unlink")
        super().unlink(name, dir_fd=dir_fd)

    def mkdir(self, name: str, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        self._watch("mkdir")
        super().mkdir(name, mode, dir_fd=dir_fd)

    def rmdir(self, name: str, *, dir_fd: int) -> None:
        self._watch("rmdir")
        super().rmdir(name, dir_fd=dir_fd)


class SlowDisk(WatchedDisk):
    """Writes at most `max_bytes` at a time, so that content passes through many intermediate states."""

    __slots__ = ("_max_bytes",)

    def __init__(self, watch: Callable[[str], None] = lambda call: None, *, max_bytes: int = 7) -> None:
        super().__init__(watch)
        self._max_bytes = max_bytes

    def write(self, fd: int, data: Data) -> int:
        return super().write(fd, data[: self._max_bytes])

    def pwrite(self, fd: int, data: Data, offset: int) -> int:
        return super().pwrite(fd, data[: self._max_bytes], offset)


class UnsyncedDisk(SlowDisk):
    """Skips every sync. What was written survives the death of a process all the same, and tests are fast."""

    __slots__ = ()

    def sync(self, fd: int) -> None:
        self._watch("sync")


class FailAt:
    """Raises an error at the nth call of some kinds, once or from then on."""

    def __init__(self, nth: int, number: int, *, calls: frozenset[str] | None = None, lasting: bool = False) -> None:
        self._left = nth
        self._number = number
        self._calls = calls
        self._lasting = lasting
        self.has_failed = False

    def __call__(self, call: str) -> None:
        if self._calls is not None and call not in self._calls:
            return
        self._left -= 1
        if self._left == 0 or (self._lasting and self.has_failed):
            self.has_failed = True
            raise OSError(self._number, os.strerror(self._number))


class KillAt:
    """Kills this process with SIGKILL at the nth call."""

    def __init__(self, nth: int) -> None:
        self._left = nth

    def __call__(self, call: str) -> None:
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


class SimulatedDeath(BaseException):
    """The process counts as dead: nothing that it wants to do to a disk happens any more."""


class DieAt:
    """Raises `SimulatedDeath` at the first call of a kind, and at every call after it."""

    def __init__(self, call: str) -> None:
        self._call = call
        self._is_dead = False

    def __call__(self, call: str) -> None:
        self._is_dead = self._is_dead or call == self._call
        if self._is_dead:
            raise SimulatedDeath
