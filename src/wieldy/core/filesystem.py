"""What tools and permission rules look at: the files of this machine, or those of a backend. Nothing here changes a file."""

from __future__ import annotations

import errno
import os
import stat as modes
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from wieldy.core.backend import Backend, FileInfo, FolderEntry
from wieldy.core.project_text import MAX_BYTES, UnfitText, open_regular, read_project_text
from wieldy.core.realpath import PathChanged, realpath
from wieldy.core.threads import in_thread

T = TypeVar("T")

_KIND_BITS = {"file": modes.S_IFREG, "folder": modes.S_IFDIR, "link": modes.S_IFLNK, "other": modes.S_IFIFO}


class Entry(Protocol):
    """One name in a folder: an `os.DirEntry`, or the same of a backend."""

    @property
    def name(self) -> str: ...

    @property
    def path(self) -> str: ...

    def is_symlink(self) -> bool: ...

    def is_dir(self, *, follow_symlinks: bool = True) -> bool: ...

    def is_file(self, *, follow_symlinks: bool = True) -> bool: ...


class FileSystem:
    """The files of this machine. All methods fail like those of `os`.

    `place` is the id of the backend that they are on, empty for this machine.
    """

    is_local = True
    place = ""
    has_host_programs = True
    backend: Backend | None = None

    async def run(self, function: Callable[..., T], *args: Any) -> T:
        """Call a function that looks at a few files: in a thread where they are not on this machine."""
        return function(*args)

    def is_on_host(self, path: str) -> bool:
        """Whether a path leads to this machine."""
        return True

    realpath = staticmethod(realpath)

    def stat(self, path: str) -> os.stat_result:
        return os.stat(path)

    def lstat(self, path: str) -> os.stat_result:
        return os.lstat(path)

    def list_folder(self, path: str) -> Sequence[Entry]:
        with os.scandir(path) as entries:
            return list(entries)

    def read_link(self, path: str) -> str:
        return os.readlink(path)

    def read_start(self, path: str, size: int) -> bytes:
        """The first bytes of a regular file, at most `size`."""
        with open(open_regular(path), "rb") as file:
            return file.read(size)

    def is_folder(self, path: str) -> bool:
        return self._is_kind(path, modes.S_ISDIR)

    def is_file(self, path: str) -> bool:
        return self._is_kind(path, modes.S_ISREG)

    def is_link(self, path: str) -> bool:
        try:
            return modes.S_ISLNK(self.lstat(path).st_mode)
        except (OSError, ValueError):
            return False

    def exists(self, path: str) -> bool:
        """Whether there is something under this name, also a link that leads nowhere."""
        try:
            self.lstat(path)
        except (OSError, ValueError):
            return False
        return True

    def read_text(self, path: str, folders: Sequence[str] | None = None) -> str:
        """A text that a project supplies, like `read_project_text`."""
        return read_project_text(path, folders)

    def _is_kind(self, path: str, test: Callable[[int], bool]) -> bool:
        try:
            return test(self.stat(path).st_mode)
        except (OSError, ValueError):
            return False


LOCAL_FILES = FileSystem()


class RemoteFileSystem(FileSystem):
    """The files of a backend. Those below `host_folders` are on this machine all the same: what a session saves of output."""

    is_local = False
    backend: Backend

    def __init__(self, backend: Backend, host_folders: Sequence[str] = ()) -> None:
        self.backend = backend
        self.place = backend.id
        self.has_host_programs = backend.has_host_programs
        self.host_folders = tuple(folder.rstrip("/") for folder in host_folders)

    async def run(self, function: Callable[..., T], *args: Any) -> T:
        return await in_thread(function, *args)

    def is_on_host(self, path: str) -> bool:
        return any(path == folder or path.startswith(f"{folder}/") for folder in self.host_folders)

    def realpath(self, path: str) -> str:
        if self.is_on_host(path):
            return super().realpath(path)
        try:
            return self.backend.realpath(path)
        except OSError as error:
            raise PathChanged(path) from error

    def stat(self, path: str) -> os.stat_result:
        return super().stat(path) if self.is_on_host(path) else stat_result(self.info(path, follow=True))

    def lstat(self, path: str) -> os.stat_result:
        return super().lstat(path) if self.is_on_host(path) else stat_result(self.info(path, follow=False))

    def info(self, path: str, *, follow: bool) -> FileInfo:
        return self.backend.stat(_checked(path), follow=follow)

    def list_folder(self, path: str) -> Sequence[Entry]:
        if self.is_on_host(path):
            return super().list_folder(path)
        return [ListedEntry(self, os.path.join(path, entry.name), entry) for entry in self.backend.list_folder(path)]

    def read_link(self, path: str) -> str:
        if self.is_on_host(path):
            return super().read_link(path)
        folder, name = os.path.split(path)
        for entry in self.backend.list_folder(folder):
            if entry.name == name and entry.kind == "link":
                return entry.target
        raise OSError(errno.EINVAL, "it is no link", path)

    def read_text(self, path: str, folders: Sequence[str] | None = None) -> str:
        if self.is_on_host(path):
            return super().read_text(path, folders)
        real = self.realpath(path)
        is_inside = folders is None or any(real.startswith(f"{self.realpath(each).rstrip('/')}/") for each in folders)
        if not is_inside or not self.is_file(real):
            raise UnfitText("not a regular file of the project", path)
        data = self.read_start(real, MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise UnfitText("too large", path)
        return data.decode("utf-8", "surrogateescape")

    def read_start(self, path: str, size: int) -> bytes:
        if self.is_on_host(path):
            return super().read_start(path, size)
        return self.backend.read(self.backend.realpath(_checked(path)), 0, None if size < 0 else size)


class ListedEntry:
    """One name in a folder, as it was when the folder was listed."""

    def __init__(self, files: FileSystem, path: str, entry: FolderEntry) -> None:
        self.name = entry.name
        self.path = path
        self.target = entry.target
        self._files = files
        self._kind = entry.kind

    def is_symlink(self) -> bool:
        return self._kind == "link"

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        if self._kind == "link" and follow_symlinks:
            return self._files.is_folder(self.path)
        return self._kind == "folder"

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        if self._kind == "link" and follow_symlinks:
            return self._files.is_file(self.path)
        return self._kind == "file"


def stat_result(info: FileInfo) -> os.stat_result:
    """The status of a backend's file in the form of `os.stat`. Its inode is a digest of its version."""
    from hashlib import blake2b

    inode = int.from_bytes(blake2b(info.version.encode("utf-8", "surrogateescape"), digest_size=7).digest(), "big")
    seconds = info.mtime_ns // 1_000_000_000
    mode = _KIND_BITS[info.kind] | (info.mode & 0o7777)
    fields = (mode, inode, 0, 1, 0, 0, info.size, seconds, seconds, seconds)
    times = {"st_atime_ns": info.mtime_ns, "st_mtime_ns": info.mtime_ns, "st_ctime_ns": info.mtime_ns}
    return os.stat_result(fields, times)


def _checked(path: str) -> str:
    if "\0" in path:
        raise ValueError("embedded null byte")
    return path
