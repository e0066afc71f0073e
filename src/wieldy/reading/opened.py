"""A regular file, opened so that nothing can hang: devices, pipes and sockets are turned away before and after the open."""

from __future__ import annotations

import errno
import os
import stat as modes
from collections.abc import Iterator
from types import TracebackType

from wieldy.core.failure import ToolFailure

HEAD = 64 * 1024

_KINDS = (
    (modes.S_ISFIFO, "a named pipe (FIFO)"),
    (modes.S_ISSOCK, "a socket"),
    (modes.S_ISCHR, "a character device"),
    (modes.S_ISBLK, "a block device"),
)


class Opened:
    """An open file with its first bytes; to be closed. It is read once, forwards."""

    __slots__ = ("_descriptor", "head", "path", "stat")

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            _turn_away(path, os.stat(path))
            self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        except (OSError, ValueError) as error:
            raise unreadable(path, error) from None
        try:
            self.stat = os.fstat(self._descriptor)
            _turn_away(path, self.stat)
            self.head = self._read(HEAD)
        except BaseException:
            os.close(self._descriptor)
            raise

    def __enter__(self) -> Opened:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        os.close(self._descriptor)

    @property
    def sized(self) -> bool:
        """Whether the file says how long it is; what the kernel makes up as it is read (`/proc`) does not."""
        return self.stat.st_size > 0 or not self.head

    def whole(self, most: int) -> bytes | None:
        """All bytes, or None if there are more than `most`. Only once, and not after `blocks`."""
        if self.stat.st_size > most:
            return None
        data = [self.head]
        left = most + 1 - len(self.head)
        while left > 0 and (more := self._read(min(left, max(self.stat.st_size, HEAD) + 1))):
            data.append(more)
            left -= len(more)
        if left > 0:
            return b"".join(data)
        self.head = b"".join(data)
        return None

    def blocks(self, size: int) -> Iterator[bytes]:
        """The bytes in pieces, none held longer than the caller holds it."""
        yield self.head
        while block := self._read(size):
            yield block

    def _read(self, most: int) -> bytes:
        try:
            return os.read(self._descriptor, most)
        except OSError as error:
            raise unreadable(self.path, error) from None


def unreadable(path: str, error: OSError | ValueError) -> ToolFailure:
    """What to tell about a file that does not open or read."""
    name = shown(path)
    if not isinstance(error, OSError):
        return ToolFailure(f"{name} is not a valid path: {error}.")
    if error.errno == errno.ENOENT:
        if os.path.islink(path):
            return ToolFailure(f"{name} is a symbolic link to {shown(os.readlink(path))}, which does not exist.")
        return ToolFailure(f"{name} does not exist.{_suggestion(path)}")
    if error.errno == errno.ENOTDIR:
        return ToolFailure(f"{name} cannot exist: part of the path is a file, not a directory.{_suggestion(path)}")
    if error.errno == errno.ELOOP:
        return ToolFailure(f"{name} is a symbolic link that leads back to itself.")
    if error.errno in (errno.EACCES, errno.EPERM):
        return ToolFailure(f"{name} may not be read: permission denied.")
    if error.errno == errno.EAGAIN:
        return ToolFailure(f"{name} has nothing to read now and would wait for more. Use Bash with a timeout.")
    return ToolFailure(f"{name} cannot be read: {error.strerror or error}.")


def shown(path: str) -> str:
    """A path as text that can be sent anywhere; bytes that are no UTF-8 become replacement marks."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "replace") if not path.isascii() else path


def _turn_away(path: str, stat: os.stat_result) -> None:
    if modes.S_ISREG(stat.st_mode):
        return
    if modes.S_ISDIR(stat.st_mode):
        raise ToolFailure(f"{shown(path)} is a directory, not a file. Use LS or Glob to see what is in it.")
    kind = next((name for test, name in _KINDS if test(stat.st_mode)), "no regular file")
    raise ToolFailure(f"{shown(path)} is {kind}; only regular files can be read.")


def _suggestion(path: str) -> str:
    from wieldy.search.nearby import similar_names

    names = similar_names(path)
    return f" Did you mean {' or '.join(names)}?" if names else " Use Glob or LS to find the right path."
