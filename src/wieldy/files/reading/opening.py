"""Open regular files so that nothing can hang: devices, pipes and sockets are refused before and after opening."""

from __future__ import annotations

import errno
import os
import stat as modes
from collections.abc import Iterator
from types import TracebackType

from wieldy.core.errors import ToolFailure
from wieldy.core.filesystem import LOCAL_FILES, FileSystem, RemoteFileSystem, stat_result
from wieldy.core.realpath import PathChanged, open_resolved, realpath
from wieldy.files.search.format import display_path

HEAD = 256 * 1024
SECTOR = 512

_KINDS = (
    (modes.S_ISFIFO, "a named pipe (FIFO)"),
    (modes.S_ISSOCK, "a socket"),
    (modes.S_ISCHR, "a character device"),
    (modes.S_ISBLK, "a block device"),
)


class OpenFile:
    """An open file with its first bytes; to be closed. It is read once, forwards. Raises OSError like any file.

    `real` is where the path led when permissions were checked: that file is opened, or none. `before` is its earlier status.
    """

    __slots__ = ("_descriptor", "head", "path", "real", "stat")

    def __init__(self, path: str, real: str | None = None, before: os.stat_result | None = None) -> None:
        self.path = path
        try:
            self.real = real or realpath(path)
            # Checked before opening too: opening some devices already has an effect.
            _refuse_special(path, before or os.stat(path))
            self._descriptor = open_resolved(self.real, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
        except ValueError as error:
            raise OSError(errno.EINVAL, str(error)) from None
        try:
            self.stat = os.fstat(self._descriptor)
            _refuse_special(path, self.stat)
            size = self.stat.st_size
            self.head = os.read(self._descriptor, min(size + 1, HEAD) if size else HEAD)
        except BaseException:
            os.close(self._descriptor)
            raise

    def __enter__(self) -> OpenFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._close()

    @property
    def sized(self) -> bool:
        """Whether the file has a size; what the kernel generates as it is read (`/proc`) has none."""
        return self.stat.st_size > 0 or not self.head

    def read_all(self, most: int) -> bytes | None:
        """All bytes, or None if there are more than `most`. Only once, and not after `read_blocks`."""
        if self.stat.st_size > most:
            return None
        # Where the head holds everything, only the end of the file remains to be seen: no large buffer for that.
        step = SECTOR if len(self.head) == self.stat.st_size else HEAD
        data, left = [self.head], most + 1 - len(self.head)
        while left > 0 and (more := self._read(min(left, step))):
            data.append(more)
            left -= len(more)
            step = HEAD
        if left > 0:
            return b"".join(data) if len(data) > 1 else self.head
        self.head = b"".join(data)
        return None

    def read_blocks(self, size: int) -> Iterator[bytes]:
        """The bytes in pieces, none held longer than the caller holds it."""
        yield self.head
        while block := self._read(size):
            yield block

    def reopened(self) -> OpenFile:
        """The same file from its start."""
        return OpenFile(self.path, self.real)

    def _read(self, size: int) -> bytes:
        return os.read(self._descriptor, size)

    def _close(self) -> None:
        os.close(self._descriptor)


class RemoteFile(OpenFile):
    """The same for a file of a backend, read piece by piece. What was replaced meanwhile is not read on: `PathChanged`."""

    __slots__ = ("_files", "_offset", "_version")

    def __init__(self, path: str, files: RemoteFileSystem, real: str | None = None) -> None:
        self.path = path
        self._files = files
        self.real = real or files.realpath(path)
        info = files.info(self.real, follow=False)
        if info.kind == "link":
            raise PathChanged(path)
        self.stat = stat_result(info)
        _refuse_special(path, self.stat)
        self._offset, self._version = 0, info.version
        self.head = self._read(HEAD)

    def reopened(self) -> OpenFile:
        return RemoteFile(self.path, self._files, self.real)

    def _read(self, size: int) -> bytes:
        if self._offset >= self.stat.st_size > 0:
            return b""
        if self._offset and self._files.info(self.real, follow=False).version != self._version:
            raise PathChanged(self.path)
        data = self._files.backend.read(self.real, self._offset, size)
        self._offset += len(data)
        return data

    def _close(self) -> None:
        return


def open_file(path: str, real: str | None = None, files: FileSystem = LOCAL_FILES) -> OpenFile:
    """Open a file of this machine or of a backend."""
    if isinstance(files, RemoteFileSystem) and not files.is_on_host(real or path):
        return RemoteFile(path, files, real)
    return OpenFile(path, real)


def _refuse_special(path: str, stat: os.stat_result) -> None:
    if modes.S_ISREG(stat.st_mode):
        return
    if modes.S_ISDIR(stat.st_mode):
        raise ToolFailure(f"{display_path(path)} is a directory, not a file.", "Use LS or Glob to see what is in it.")
    kind = next((name for test, name in _KINDS if test(stat.st_mode)), "no regular file")
    raise ToolFailure(f"{display_path(path)} is {kind}; only regular files can be read.")


def explain_unreadable(path: str, error: OSError, files: FileSystem = LOCAL_FILES) -> tuple[str, str]:
    """Why a file cannot be read, with similar names where it is missing, and what a model can do next."""
    name = display_path(path)
    if isinstance(error, PathChanged):
        return f"{name} leads elsewhere than when it was checked; nothing was read.", "Try again when nobody moves it."
    match error.errno:
        case errno.ENOENT if (target := _link_target(path, files)) is not None:
            return f"{name} is a symbolic link to {display_path(target)}, which does not exist.", ""
        case errno.ENOENT:
            return _with_suggestion(f"{name} does not exist.", path, files)
        case errno.ENOTDIR:
            return _with_suggestion(f"{name} cannot exist: part of the path is a file, not a directory.", path, files)
        case errno.ELOOP:
            return f"{name} is a symbolic link that leads back to itself.", ""
        case errno.EACCES | errno.EPERM:
            return f"{name} may not be read: permission denied.", ""
        case errno.EAGAIN:
            return f"{name} has nothing to read now and would wait for more.", "Use Bash with a timeout."
        case _:
            return f"{name} cannot be read: {error.strerror or error}.", ""


def _link_target(path: str, files: FileSystem) -> str | None:
    try:
        return files.read_link(path)
    except OSError:
        return None


def _with_suggestion(problem: str, path: str, files: FileSystem) -> tuple[str, str]:
    from wieldy.files.search.similar_paths import find_similar_paths

    names = find_similar_paths(path, files=files)
    if names:
        return f"{problem} Did you mean {' or '.join(names)}?", ""
    return problem, "Use Glob or LS to find the right path."
