"""Write one file or several, all or none, and roll back an unfinished commit, also that of a process that died.

A reader sees each file whole, old or new: usually a temporary file beside the target takes its name. A file with several
names (hard links), of another owner, or in a folder that takes no new files is written in place, because a replacement would
split it or change its owner; the journal's copy covers a crash in the middle of such a write. Recovery searches for nothing:
each planned write names the files it may have left, and the disk shows how far it came.
"""

from __future__ import annotations

import errno
import os
import stat as st
from collections.abc import Collection, Iterable, Sequence
from contextlib import ExitStack, suppress
from itertools import zip_longest
from typing import Literal, TypeAlias

from msgspec import Struct

from wieldy.core.errors import StaleFileError
from wieldy.core.own_writes import note_own_write
from wieldy.core.realpath import PathChanged, open_resolved_folder
from wieldy.files.writing.disk import (
    LOCAL_DISK,
    PRIVATE_MODE,
    READ_FLAGS,
    Disk,
    FileWrite,
    RollbackError,
    copy_metadata,
    explain_os_error,
    file_identity,
    pwrite_all,
    read_all,
    sync_folder,
    write_all,
)

WriteState: TypeAlias = Literal["old", "new", "partial", "foreign"]

BLOCK = 4096
# A block that holds old and new bytes is compared byte by byte; more of them than this is not our doing.
MAX_MIXED_BLOCKS = 64
NEW_FILE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
# Where nothing may be removed, unlink fails like this also for names that do not exist.
NOT_ALLOWED_ERRNOS = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})
NO_HARD_LINKS_ERRNOS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.ENOSYS, errno.EXDEV})


def recover_writes(writes: Sequence[FileWrite], *, disk: Disk = LOCAL_DISK) -> bool:
    """Bring the files of a dead process's commit to all new (true) or all old (false), and remove temporary files.

    The caller holds the locks of every path. A file that someone else has changed since is left alone.
    """
    states = write_states(writes)
    finished = is_finished(states)
    roll_back_writes(writes, states, disk, finished=finished)
    return finished


def write_states(writes: Sequence[FileWrite]) -> list[WriteState]:
    """How far each of these writes came."""
    with ExitStack() as stack:
        folders = {write.folder: _open_folder(write.folder, stack) for write in writes}
        return [write_state(write, folders[write.folder]) for write in writes]


def is_finished(states: Collection[WriteState]) -> bool:
    return "new" in states and "old" not in states and "partial" not in states


def roll_back_writes(writes: Sequence[FileWrite], states: Sequence[WriteState], disk: Disk, *, finished: bool) -> None:
    """Give files that are in these states their old contents, unless the commit is `finished`; remove temporary files."""
    with ExitStack() as stack:
        folders = {write.folder: _open_folder(write.folder, stack) for write in writes}
        for write, state in zip(reversed(writes), reversed(states), strict=True):
            folder = folders[write.folder]
            if folder is None:
                continue
            if not finished and state in ("new", "partial"):
                roll_back_write(write, folder, disk)
            remove_temporary_files((write.temp, write.backup), folder, disk)
        if finished:
            remove_emptied_folders(writes, disk)
        else:
            created = (folder for write in writes if write.method == "create" for folder in write.folders)
            remove_empty_folders(created, disk)
        for folder in folders.values():
            if folder is not None:
                sync_folder(disk, folder)


def write_state(write: FileWrite, folder: int | None) -> WriteState:
    """Tell how far a write came from what the file holds now."""
    content = None if folder is None else _read(write.name, folder)
    if content is False:
        return "foreign"
    if content == write.after:
        return "new"
    if content == write.before:
        return "old"
    if write.method == "in_place" and content is not None:
        return "partial" if is_partial_overwrite(content, write.before or b"", write.after or b"") else "foreign"
    return "foreign"


def roll_back_write(write: FileWrite, folder: int, disk: Disk) -> None:
    """Give a file, which may have been switched already, its old content."""
    current = inode_of(write.name, folder)
    if write.method == "create":
        disk.unlink(write.name, dir_fd=folder)
    elif write.method == "in_place":
        fd = disk.open(write.name, os.O_RDWR | os.O_NOFOLLOW, dir_fd=folder)
        try:
            restore_in_place(disk, fd, write.before or b"")
        finally:
            os.close(fd)
    elif not write.backup or (backup := inode_of(write.backup, folder)) is None:
        _rewrite_old_content(write, folder, disk)
    elif backup != current and (write.method == "replace" or current is None):
        disk.rename(write.backup, write.name, dir_fd=folder)


def overwrite_in_place(disk: Disk, fd: int, old_size: int, data: bytes) -> None:
    """Turn an open file of `old_size` bytes into `data`. It grows first, so that a full disk shows before anything is lost."""
    view = memoryview(data)
    pwrite_all(disk, fd, view[old_size:], old_size)
    pwrite_all(disk, fd, view[:old_size], 0)
    if len(data) < old_size:
        disk.truncate(fd, len(data))
    disk.sync(fd)


def restore_in_place(disk: Disk, fd: int, before: bytes) -> None:
    """Undo an overwrite, finished or not, touching only blocks that differ: this works on a full disk too."""
    content = read_all(fd)
    if len(content) > len(before):
        disk.truncate(fd, len(before))
    for start in range(0, len(before), BLOCK):
        old = before[start : start + BLOCK]
        if content[start : start + BLOCK] != old:
            pwrite_all(disk, fd, old, start)
    disk.sync(fd)


def is_partial_overwrite(content: bytes, before: bytes, after: bytes) -> bool:
    """Whether an interrupted `overwrite_in_place` left this: every byte is the old one or the new one."""
    if not min(len(before), len(after)) <= len(content) <= max(len(before), len(after)):
        return False
    mixed = 0
    for start in range(0, len(content), BLOCK):
        piece, old, new = (data[start : start + BLOCK] for data in (content, before, after))
        if piece in (old[: len(piece)], new[: len(piece)]):
            continue
        mixed += 1
        if mixed > MAX_MIXED_BLOCKS or not all(p is None or p in (o, n) for p, o, n in zip_longest(piece, old, new)):
            return False
    return True


def remove_temporary_files(names: Iterable[str], folder: int, disk: Disk) -> None:
    """Remove those names that exist."""
    for name in names:
        if not name:
            continue
        try:
            disk.unlink(name, dir_fd=folder)
        except FileNotFoundError:
            continue
        except OSError as error:
            if error.errno not in NOT_ALLOWED_ERRNOS or inode_of(name, folder) is not None:
                raise


def remove_emptied_folders(writes: Iterable[FileWrite], disk: Disk) -> None:
    """Remove the folders that deletions left empty, where that was asked for. Failing to is harmless."""
    emptied = [folder for write in writes if write.method == "delete" for folder in write.folders]
    if emptied:
        with suppress(OSError):
            remove_empty_folders(emptied, disk)


def remove_empty_folders(folders: Iterable[str], disk: Disk) -> None:
    """Remove these folders, innermost first, as far as they exist and are empty."""
    for path in sorted(set(folders), key=len, reverse=True):
        try:
            parent = open_resolved_folder(os.path.dirname(path))
        except (FileNotFoundError, NotADirectoryError, PathChanged):
            continue
        try:
            disk.rmdir(os.path.basename(path), dir_fd=parent)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise
        finally:
            os.close(parent)


def inode_of(name: str, folder: int) -> tuple[int, int] | None:
    """Device and inode behind a name, if it exists."""
    try:
        stat = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    return stat.st_dev, stat.st_ino


def _rewrite_old_content(write: FileWrite, folder: int, disk: Disk) -> None:
    """Replace the file by a new one with the old content, where no backup was kept."""
    with suppress(FileNotFoundError):
        disk.unlink(write.temp, dir_fd=folder)
    fd = disk.open(write.temp, NEW_FILE_FLAGS, PRIVATE_MODE, dir_fd=folder)
    try:
        write_all(disk, fd, write.before or b"")
        if inode_of(write.name, folder) is None:
            disk.chmod(fd, PRIVATE_MODE if write.mode is None else write.mode)
        else:
            current = os.open(write.name, READ_FLAGS, dir_fd=folder)
            try:
                copy_metadata(disk, current, fd)
            finally:
                os.close(current)
        disk.sync(fd)
    finally:
        os.close(fd)
    disk.rename(write.temp, write.name, dir_fd=folder)


def _read(name: str, folder: int) -> bytes | Literal[False] | None:
    """The content behind a name; None where there is nothing, False where it is not a readable regular file."""
    try:
        fd = os.open(name, READ_FLAGS, dir_fd=folder)
    except FileNotFoundError:
        return None
    except OSError:
        return False
    try:
        return read_all(fd) if st.S_ISREG(os.fstat(fd).st_mode) else False
    finally:
        os.close(fd)


def _open_folder(path: str, stack: ExitStack) -> int | None:
    try:
        fd = open_resolved_folder(path)
    except OSError:
        return None
    stack.callback(os.close, fd)
    return fd


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
