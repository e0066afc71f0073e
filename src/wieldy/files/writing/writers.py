"""Reads and writes files, on this machine or on a backend. The journal has one of the two writers.

`LocalWriter` replaces files of this machine. `RemoteWriter` does the same through the few operations of a backend: each file is
replaced atomically by the backend itself, so several files are written one by one, and written back when one fails.
"""

from __future__ import annotations

import errno
import os
import stat as st
from collections.abc import Iterable, Sequence
from contextlib import suppress

from wieldy.core.backend import Backend
from wieldy.core.errors import StaleFileError
from wieldy.core.filesystem import LOCAL_FILES, FileSystem, RemoteFileSystem, stat_result
from wieldy.core.realpath import open_resolved
from wieldy.files.writing.commit import (
    WrittenFile,
    commit_writes,
    recover_writes,
    remove_empty_folders,
    roll_back_writes,
    write_states,
)
from wieldy.files.writing.disk import (
    LOCAL_DISK,
    READ_FLAGS,
    Disk,
    FileWrite,
    RollbackError,
    Target,
    WriteError,
    WriteMethod,
    can_keep_owner,
    can_write,
    explain_os_error,
    file_identity,
    lock_names_of,
    not_regular,
    read_all,
    split_path,
)
from wieldy.files.writing.tree_commit import NodeChange, commit_tree, recover_tree

READ_BLOCK = 1 << 20


class LocalWriter:
    """Reads and writes files of this machine. `disk` makes the system calls that change something."""

    files: FileSystem = LOCAL_FILES

    def __init__(self, disk: Disk = LOCAL_DISK) -> None:
        self.disk = disk

    def resolve_target(self, path: str, real_path: str | None = None) -> Target:
        """Stat the target without opening it. `real_path` is where the permission check saw the path lead."""
        real = real_path or self.files.realpath(path)
        try:
            stat, version = self._status(real)
        except FileNotFoundError:
            return Target(path, real, None, self._missing_folders(path, real))
        except NotADirectoryError:
            raise WriteError(path, f"{path} cannot exist: part of the path is a file, not a folder.") from None
        if not st.S_ISREG(stat.st_mode):
            raise not_regular(path, stat.st_mode)
        return Target(path, real, stat, version=version)

    def with_content(self, target: Target) -> Target:
        """Read the content of an existing target, following no symlink on the way."""
        try:
            fd = open_resolved(target.real_path, READ_FLAGS)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.ENOENT):
                raise StaleFileError(target.path, "was replaced while it was being opened") from None
            raise
        try:
            stat = os.fstat(fd)
            if not st.S_ISREG(stat.st_mode):
                raise StaleFileError(target.path, "was replaced while it was being opened")
            return Target(target.path, target.real_path, stat, (), read_all(fd, stat.st_size))
        finally:
            os.close(fd)

    def read_target(self, path: str, real_path: str | None = None) -> Target:
        """Resolve the target and read its content."""
        target = self.resolve_target(path, real_path)
        return target if target.stat is None else self.with_content(target)

    def lock_names_at(self, real_path: str) -> tuple[str, ...]:
        """The locks for a real path, without resolving links."""
        try:
            return lock_names_of(real_path, os.lstat(real_path))
        except OSError:
            return (real_path,)

    def plan_write(
        self,
        target: Target,
        after: bytes | None,
        *,
        mode: int | None = None,
        alone: bool = False,
        keep_links: bool = True,
    ) -> FileWrite:
        """Plan the write that gives the target the content `after` (None deletes it).

        `mode` applies to a new file. A write that is `alone` in its commit needs no backup: nothing can fail after its
        switch. A file with other names (hard links) is written in place, so that they stay one file, unless `keep_links`
        is false.
        """
        stat = target.stat
        notes = self._symlink_notes(target)
        method: WriteMethod = "create"
        if stat is not None and after is None:
            method = "delete"
            if stat.st_nlink > 1:
                notes = (*notes, "only this name was removed: the file has other names (hard links)")
        elif stat is not None:
            reason = _reason_for_in_place(target.real_path, stat, keep_links)
            method = "in_place" if reason else "replace"
            notes = (*notes, f"written in place, because {reason}") if reason else notes
        token = f".wieldy-{os.getpid()}-{os.urandom(6).hex()}"
        return FileWrite(
            path=target.path,
            real_path=target.real_path,
            method=method,
            before=target.content,
            after=after,
            temp=f"{token}.tmp",
            backup="" if alone and method == "replace" else f"{token}.old.tmp",
            folders=target.folders,
            identity=None if stat is None else file_identity(stat),
            mode=mode if stat is None else st.S_IMODE(stat.st_mode),
            notes=notes,
        )

    def commit(
        self, writes: Sequence[FileWrite], nodes: Sequence[NodeChange] = (), roots: Sequence[str] = ()
    ) -> tuple[WrittenFile, ...]:
        """Write files and change symlinks, folders and permissions, all or none. `roots`: see `commit_writes`."""
        if nodes:
            return commit_tree(writes, nodes, disk=self.disk, roots=roots)
        return commit_writes(writes, disk=self.disk, roots=roots)

    def recover(self, writes: Sequence[FileWrite], nodes: Sequence[NodeChange] = ()) -> bool:
        """Bring what a dead process was about to change to all new (true) or all old (false). The caller holds the locks."""
        return recover_tree(writes, nodes, disk=self.disk) if nodes else recover_writes(writes, disk=self.disk)

    def remove_empty_folders(self, folders: Iterable[str]) -> None:
        remove_empty_folders(folders, self.disk)

    def holds(self, path: str, content: bytes) -> bool:
        """Whether a file holds exactly this content, read in blocks."""
        offset = 0
        try:
            with open(os.open(path, READ_FLAGS), "rb", buffering=0) as file:
                while block := file.read(READ_BLOCK):
                    if not content.startswith(block, offset):
                        return False
                    offset += len(block)
        except OSError:
            return False
        return offset == len(content)

    def explain(self, error: OSError, path: str, needed: int = 0) -> WriteError:
        return explain_os_error(error, path, needed=needed)

    def _status(self, real_path: str) -> tuple[os.stat_result, str]:
        """The status of what is at a path, and what a backend calls its content."""
        return os.lstat(real_path), ""

    def _symlink_notes(self, target: Target) -> tuple[str, ...]:
        if target.path == target.real_path or not self.files.is_link(target.path):
            return ()
        return (f"{target.path} is a symlink and stays one: its target {target.real_path} was written",)

    def _missing_folders(self, path: str, real: str) -> tuple[str, ...]:
        missing: list[str] = []
        folder = os.path.dirname(real)
        while not self.files.is_folder(folder):
            if self.files.exists(folder):
                if self.files.is_folder(folder):  # another process has just made it
                    break
                raise WriteError(path, f"{path} cannot be made: {folder} is not a folder.")
            missing.append(folder)
            parent = os.path.dirname(folder)
            if parent == folder:
                break
            folder = parent
        return tuple(reversed(missing))


def _reason_for_in_place(real_path: str, stat: os.stat_result, keep_links: bool) -> str | None:
    _require_write_permission(real_path)
    if stat.st_nlink > 1 and keep_links:
        return f"the file has {stat.st_nlink} names (hard links) that stay one file"
    if not can_keep_owner(stat):
        return "a replacement would change its owner"
    if not can_write(split_path(real_path)[0]):
        return "its folder takes no new files"
    return None


def _require_write_permission(path: str) -> None:
    """Replacing a file needs no write permission on it, so check it here; opening it yields the true reason."""
    if can_write(path):
        return
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError as error:
        if error.errno != errno.ETXTBSY:  # a running program keeps its old inode, so it can be replaced
            raise


class RemoteWriter(LocalWriter):
    """Reads and writes files of a backend. What a session keeps on this machine is written here."""

    def __init__(self, files: RemoteFileSystem, disk: Disk = LOCAL_DISK) -> None:
        super().__init__(disk)
        self.files = files
        self._is_on_host = files.is_on_host
        self._backend: Backend = files.backend

    def _status(self, real_path: str) -> tuple[os.stat_result, str]:
        if self._is_on_host(real_path):
            return super()._status(real_path)
        info = self._backend.stat(real_path, follow=False)
        return stat_result(info), info.version

    def with_content(self, target: Target) -> Target:
        if self._is_on_host(target.real_path):
            return super().with_content(target)
        try:
            # The version is older than the content: what changes in between is refused when it is written.
            stat, version = self._status(target.real_path)
            content = self._backend.read(target.real_path) if st.S_ISREG(stat.st_mode) else None
        except FileNotFoundError:
            content = None
        if content is None:
            raise StaleFileError(target.path, "was replaced while it was being opened")
        return Target(target.path, target.real_path, stat, (), content, version)

    def lock_names_at(self, real_path: str) -> tuple[str, ...]:
        return (real_path,)

    def plan_write(
        self,
        target: Target,
        after: bytes | None,
        *,
        mode: int | None = None,
        alone: bool = False,
        keep_links: bool = True,
    ) -> FileWrite:
        if self._is_on_host(target.real_path):
            return super().plan_write(target, after, mode=mode, alone=alone, keep_links=keep_links)
        method: WriteMethod = "create" if target.stat is None else "delete" if after is None else "replace"
        return FileWrite(
            path=target.path,
            real_path=target.real_path,
            method=method,
            before=target.content,
            after=after,
            temp="",
            backup="",
            folders=target.folders,
            mode=mode if target.stat is None else st.S_IMODE(target.stat.st_mode),
            notes=self._symlink_notes(target),
            version=target.version,
        )

    def commit(
        self, writes: Sequence[FileWrite], nodes: Sequence[NodeChange] = (), roots: Sequence[str] = ()
    ) -> tuple[WrittenFile, ...]:
        """Write one file after the other, those of this machine last; what was written before one fails is written back.

        Symlinks, folders and permissions are never given: undo knows them of this machine only.
        """
        here, there = self._by_place(writes)
        written: list[WrittenFile] = []
        done: list[FileWrite] = []
        for write in there:
            try:
                written.append(self._write(write))
            except (StaleFileError, WriteError) as error:
                self._roll_back(done, write, error)
                raise
            done.append(write)
        if here:
            try:
                written += super().commit(here, roots=roots)
            except RollbackError:
                raise  # recovery brings back all of them
            except (StaleFileError, WriteError) as error:
                self._roll_back(done, here[0], error)
                raise
        self._remove_emptied(there)
        by_path = {file.real_path: file for file in written}
        return tuple(by_path[write.real_path] for write in writes)

    def recover(self, writes: Sequence[FileWrite], nodes: Sequence[NodeChange] = ()) -> bool:
        here, there = self._by_place(writes)
        if not there:
            return super().recover(here)
        contents = [self._content(write.real_path) for write in there]
        finished = all(content == write.after for content, write in zip(contents, there, strict=True))
        if here and finished:
            finished = super().recover(here)
        elif here:
            roll_back_writes(here, write_states(here), self.disk, finished=False)
        if finished:
            self._remove_emptied(there)
        else:
            for write, content in zip(reversed(there), reversed(contents), strict=True):
                if content == write.after:  # else it was not written, or was changed since
                    with suppress(StaleFileError):  # it is being changed right now
                        self._write_back(write)
        return finished

    def remove_empty_folders(self, folders: Iterable[str]) -> None:
        for folder in sorted(set(folders), key=len, reverse=True):
            if self._is_on_host(folder):
                super().remove_empty_folders((folder,))
                continue
            with suppress(OSError):  # it is not empty, or gone
                self._backend.delete(folder)

    def holds(self, path: str, content: bytes) -> bool:
        if self._is_on_host(path):
            return super().holds(path, content)
        try:
            return self._backend.read(path) == content
        except OSError:
            return False

    def explain(self, error: OSError, path: str, needed: int = 0) -> WriteError:
        why = (error.strerror or str(error)).lower()
        return WriteError(path, f"{path} could not be written: {why}. It is unchanged.", number=error.errno or 0)

    def _by_place(self, writes: Sequence[FileWrite]) -> tuple[list[FileWrite], list[FileWrite]]:
        """The writes on this machine, and those on the backend."""
        here = [write for write in writes if self._is_on_host(write.real_path)]
        return here, [write for write in writes if not self._is_on_host(write.real_path)]

    def _write(self, write: FileWrite) -> WrittenFile:
        try:
            if write.after is None:
                self._backend.delete(write.real_path, expected=write.version)
                return WrittenFile(write.path, write.real_path, None, write.notes)
            expected = None if write.method == "create" else write.version
            info = self._backend.write(write.real_path, write.after, expected=expected, mode=write.mode)
            return WrittenFile(write.path, write.real_path, stat_result(info), write.notes)
        except OSError as error:
            return self._find_out(write, error)

    def _find_out(self, write: FileWrite, error: OSError) -> WrittenFile:
        """Look whether a write that failed has happened all the same, as when its answer was lost."""
        try:
            content = self._content(write.real_path)
            if content == write.after and content != write.before:
                stat = None if content is None else self.files.lstat(write.real_path)
                return WrittenFile(write.path, write.real_path, stat, write.notes)
        except OSError as problem:
            why = (problem.strerror or str(problem)).lower()
            text = f"Whether {write.path} was written is not known ({why}); found out when it can be reached again."
            raise RollbackError(write.path, text) from error
        raise self.explain(error, write.path) from error

    def _roll_back(self, done: Sequence[FileWrite], failed: FileWrite, cause: Exception) -> None:
        try:
            for write in reversed(done):
                if self._content(write.real_path) == write.after:
                    self._write_back(write)
        except (OSError, StaleFileError) as error:
            text = (
                f"Writing {failed.path} failed ({cause}), and so did rolling it back ({error}); retried at next start."
            )
            raise RollbackError(failed.path, text) from cause

    def _write_back(self, write: FileWrite) -> None:
        if write.after is None:
            self._backend.write(write.real_path, write.before or b"", expected=None, mode=write.mode)
            return
        version = self._backend.stat(write.real_path, follow=False).version
        if write.before is None:
            self._backend.delete(write.real_path, expected=version)
            self.remove_empty_folders(write.folders)
        else:
            self._backend.write(write.real_path, write.before, expected=version, mode=write.mode)

    def _content(self, real_path: str) -> bytes | None:
        try:
            return self._backend.read(real_path)
        except FileNotFoundError:
            return None

    def _remove_emptied(self, writes: Sequence[FileWrite]) -> None:
        self.remove_empty_folders(folder for write in writes if write.method == "delete" for folder in write.folders)
