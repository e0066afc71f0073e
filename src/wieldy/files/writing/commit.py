"""Write one file or several, all or none. A reader sees each file whole, old or new.

Usually a temporary file beside the target takes its name. A file with several names (hard links), of another owner, or in a
folder that takes no new files is written in place, because a replacement would split it or change its owner; the
journal's copy covers a crash in the middle of such a write.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from msgspec import Struct

from wieldy.core.errors import StaleFileError
from wieldy.core.own_writes import note_own_write
from wieldy.core.realpath import PathChanged, open_resolved_folder
from wieldy.files.writing.disk import LOCAL_DISK, Disk, sync_folder, write_all
from wieldy.files.writing.errors import RollbackError, explain_os_error
from wieldy.files.writing.metadata import PRIVATE_MODE, copy_metadata
from wieldy.files.writing.recovery import (
    NEW_FILE_FLAGS,
    NO_HARD_LINKS_ERRNOS,
    inode_of,
    overwrite_in_place,
    remove_emptied_folders,
    remove_empty_folders,
    remove_temporary_files,
    roll_back_write,
    write_state,
)
from wieldy.files.writing.target import READ_FLAGS, FileWrite, file_identity


class WrittenFile(Struct, frozen=True):
    """A file after the write: its real path, its stat (None when deleted) and notes for the reader."""

    path: str
    real_path: str
    stat: os.stat_result | None
    notes: tuple[str, ...] = ()


def commit_writes(
    writes: Sequence[FileWrite], *, disk: Disk = LOCAL_DISK, roots: Sequence[str] = ()
) -> tuple[WrittenFile, ...]:
    """Carry out all writes or none. `roots` are searched for caches to name when the disk is full."""
    if not writes:
        return ()
    commit = _Commit(writes, disk)
    try:
        try:
            return commit.run()
        except BaseException as error:
            commit.roll_back(error)
            if isinstance(error, OSError):
                needed = sum(len(write.after or b"") for write in writes)
                raise explain_os_error(error, commit.current.path, needed=needed, roots=roots) from error
            raise
    finally:
        commit.close()


class _Commit:
    """The open descriptors and the progress of one commit."""

    def __init__(self, writes: Sequence[FileWrite], disk: Disk) -> None:
        self.current = writes[0]
        self._writes = writes
        self._disk = disk
        self._folders: dict[str, int] = {}
        self._parents: list[int] = []
        self._created_folders: list[str] = []
        self._switched: list[FileWrite] = []
        self._temp_inodes: dict[str, tuple[int, int]] = {}
        self._notes: dict[str, tuple[str, ...]] = {}

    def run(self) -> tuple[WrittenFile, ...]:
        for write in self._writes:
            self.current = write
            self._open_folder(write)
            self._prepare(write)
        for write in self._writes:
            self.current = write
            self._switch(write)
        for fd in (*self._folders.values(), *self._parents):
            sync_folder(self._disk, fd)
        for write in self._writes:
            if write.method != "in_place":
                leftover = write.temp if write.method == "create" else write.backup
                remove_temporary_files((leftover,), self._folders[write.folder], self._disk)
        written = tuple(map(self._describe, self._writes))
        remove_emptied_folders(self._writes, self._disk)
        return written

    def roll_back(self, cause: BaseException) -> None:
        failures: list[OSError] = []
        for write in reversed(self._switched):
            try:
                if self._is_ours(write):
                    roll_back_write(write, self._folders[write.folder], self._disk)
            except OSError as error:
                failures.append(error)
        for write in self._writes:
            try:
                if write.folder in self._folders:
                    temporary = (write.temp, write.backup)
                    remove_temporary_files(temporary, self._folders[write.folder], self._disk)
            except OSError as error:
                failures.append(error)
        try:
            remove_empty_folders(self._created_folders, self._disk)
        except OSError as error:
            failures.append(error)
        if failures:
            path = self.current.path
            raise RollbackError(
                path,
                f"Writing {path} failed ({cause}), and so did rolling it back ({failures[0]}); retried at next start.",
            ) from cause

    def close(self) -> None:
        for fd in (*self._folders.values(), *self._parents):
            os.close(fd)

    def _open_folder(self, write: FileWrite) -> None:
        """Open the folder of a write, creating missing parents."""
        if write.folder in self._folders:
            return
        for path in write.folders:
            parent = open_resolved_folder(os.path.dirname(path))
            self._parents.append(parent)
            try:
                self._disk.mkdir(os.path.basename(path), dir_fd=parent)
            except FileExistsError:
                continue
            self._created_folders.append(path)
        try:
            self._folders[write.folder] = open_resolved_folder(write.folder)
        except (NotADirectoryError, PathChanged):
            raise StaleFileError(write.path, "lies in a folder that was replaced meanwhile") from None

    def _prepare(self, write: FileWrite) -> None:
        """Write the new content to a temporary file and, where needed, give the old file a second name."""
        if write.after is None or write.method == "in_place":
            return
        folder = self._folders[write.folder]
        private = write.method == "replace" or write.mode is not None
        fd = self._disk.open(write.temp, NEW_FILE_FLAGS, PRIVATE_MODE if private else 0o666, dir_fd=folder)
        try:
            stat = os.fstat(fd)
            self._temp_inodes[write.temp] = stat.st_dev, stat.st_ino
            write_all(self._disk, fd, write.after)
            if write.method == "replace":
                self._copy_metadata(write, fd, folder)
            elif write.mode is not None:
                self._disk.chmod(fd, write.mode)
            self._disk.sync(fd)
        finally:
            os.close(fd)
        if write.method == "replace" and write.backup:
            try:
                self._disk.link(write.name, write.backup, dir_fd=folder)
            except OSError as error:
                if error.errno not in NO_HARD_LINKS_ERRNOS:
                    raise

    def _copy_metadata(self, write: FileWrite, fd: int, folder: int) -> None:
        try:
            original = os.open(write.name, READ_FLAGS, dir_fd=folder)
        except FileNotFoundError:
            raise StaleFileError(write.path, "was removed meanwhile") from None
        try:
            self._notes[write.temp] = copy_metadata(self._disk, original, fd)
        finally:
            os.close(original)

    def _switch(self, write: FileWrite) -> None:
        folder, name = self._folders[write.folder], write.name
        if write.method != "create":
            self._require_unchanged(write, name, folder)
        self._switched.append(write)
        if write.method == "create":
            self._create(write, folder)
        elif write.method == "replace":
            self._disk.rename(write.temp, name, dir_fd=folder)
        elif write.method == "delete":
            self._disk.rename(name, write.backup, dir_fd=folder)
            self._require_unchanged(write, write.backup, folder)
        else:
            fd = self._disk.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
            try:
                if file_identity(os.fstat(fd)) != write.identity:
                    raise StaleFileError(write.path, "was changed by someone else meanwhile")
                overwrite_in_place(self._disk, fd, len(write.before or b""), write.after or b"")
            finally:
                os.close(fd)

    def _create(self, write: FileWrite, folder: int) -> None:
        """Link rather than rename: a file that appeared meanwhile must not be replaced."""
        try:
            self._disk.link(write.temp, write.name, dir_fd=folder)
        except FileExistsError:
            raise StaleFileError(write.path, "was made by someone else meanwhile") from None
        except OSError as error:
            if error.errno not in NO_HARD_LINKS_ERRNOS:
                raise
            if inode_of(write.name, folder) is not None:
                raise StaleFileError(write.path, "was made by someone else meanwhile") from None
            self._disk.rename(write.temp, write.name, dir_fd=folder)

    def _require_unchanged(self, write: FileWrite, name: str, folder: int) -> None:
        try:
            stat = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            raise StaleFileError(write.path, "was removed meanwhile") from None
        if file_identity(stat) != write.identity:
            raise StaleFileError(write.path, "was changed by someone else meanwhile")

    def _is_ours(self, write: FileWrite) -> bool:
        """Whether the file is as this commit left it, and not as someone else made it afterwards."""
        folder = self._folders[write.folder]
        if write.method == "in_place":
            return write_state(write, folder) in ("new", "partial")
        return inode_of(write.name, folder) == self._temp_inodes.get(write.temp)

    def _describe(self, write: FileWrite) -> WrittenFile:
        notes = write.notes + self._notes.get(write.temp, ())
        if write.after is None:
            return WrittenFile(write.path, write.real_path, None, notes)
        stat = os.stat(write.name, dir_fd=self._folders[write.folder], follow_symlinks=False)
        note_own_write(write.real_path, stat)
        return WrittenFile(write.path, write.real_path, stat, notes)
