"""Resolve where a write goes, read what is there, and plan how it is written and with which metadata."""

from __future__ import annotations

import errno
import os
import stat as st
from collections.abc import Callable, Collection
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from wieldy.core.errors import StaleFileError
from wieldy.core.realpath import open_resolved, realpath
from wieldy.files.writing.disk import Disk, WriteError, read_all

PRIVATE_MODE = 0o600
# The kernel drops these when a file is written to; a replacement must not carry them over either.
CONTENT_BOUND_ATTRIBUTES = frozenset({"security.capability", "security.ima", "security.evm"})
UNSUPPORTED_ERRNOS = frozenset({errno.ENOTSUP, errno.EPERM, errno.EACCES, errno.EINVAL})


def can_keep_owner(stat: os.stat_result) -> bool:
    """Whether we may give a new file this owner and group."""
    if os.geteuid() == 0:
        return True
    return stat.st_uid == os.geteuid() and (stat.st_gid == os.getegid() or stat.st_gid in os.getgroups())


def restorable_mode(status_mode: int, owner: int) -> int:
    """The permissions of a file that may be given to a new one of ours: with another owner, special bits mean another user."""
    mode = st.S_IMODE(status_mode)
    return mode if not hasattr(os, "geteuid") or owner == os.geteuid() else mode & 0o777


def copy_metadata(disk: Disk, original: int, new: int) -> tuple[str, ...]:
    """Copy what `original` has to the open file `new`; returns notes on what could not be kept."""
    old_stat, new_stat = os.fstat(original), os.fstat(new)
    notes: list[str] = []
    mode = st.S_IMODE(old_stat.st_mode)
    if (new_stat.st_uid, new_stat.st_gid) != (old_stat.st_uid, old_stat.st_gid):
        try:
            disk.chown(new, old_stat.st_uid, old_stat.st_gid)
        except PermissionError:
            # Another owner or group must not gain what the old one was allowed.
            others = mode & 0o007
            mode = (mode & 0o700) | (mode & (others << 3)) | others
            notes.append("its owner could not be kept, so its mode was narrowed")
    notes += _copy_attributes(disk, original, new)
    disk.chmod(new, mode)  # after chown, which clears bits, and after the access list, which sets them
    return tuple(notes)


def _copy_attributes(disk: Disk, original: int, new: int) -> list[str]:
    if not hasattr(os, "listxattr"):
        return []
    try:
        names = os.listxattr(original)
    except OSError:
        return []  # a file system without extended attributes
    lost: list[str] = []
    for name in names:
        if name in CONTENT_BOUND_ATTRIBUTES:
            continue
        try:
            disk.setxattr(new, name, os.getxattr(original, name))
        except OSError as error:
            if error.errno == errno.ENODATA:
                continue
            if error.errno not in UNSUPPORTED_ERRNOS:
                raise
            lost.append(name)
    return [f"extended attributes could not be kept: {', '.join(lost)}"] if lost else []


WriteMethod: TypeAlias = Literal["create", "replace", "in_place", "delete"]
FileIdentity: TypeAlias = tuple[int, int, int, int]

READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Target(Struct, frozen=True):
    """The real path behind `path`, its stat and content (None where there is no file), and the parents it lacks.

    `version` is what a backend calls this content.
    """

    path: str
    real_path: str
    stat: os.stat_result | None
    folders: tuple[str, ...] = ()
    content: bytes | None = None
    version: str = ""

    @property
    def lock_names(self) -> tuple[str, ...]:
        """The locks a writer must hold: the path and, for a hard-linked file, its inode."""
        return _lock_names(self.real_path, self.stat)


class FileWrite(Struct, frozen=True):
    """One planned file write. It names every temporary file in advance, so that recovery knows what to look for.

    `temp` holds the new content before the switch. `backup` is a second name of the old file while a batch is being
    switched. `folders` are missing parents, outermost first; for a deletion, parents to remove if they become empty. On a
    backend, `version` is the one that is replaced, and there are neither temporary files nor backups of ours.
    """

    path: str
    real_path: str
    folder: str
    name: str
    method: WriteMethod
    before: bytes | None
    after: bytes | None
    temp: str
    backup: str
    folders: tuple[str, ...] = ()
    identity: FileIdentity | None = None
    mode: int | None = None
    notes: tuple[str, ...] = ()
    version: str = ""


def resolve_target(path: str, real_path: str | None = None) -> Target:
    """Stat the target without opening it. `real_path` is where the permission check saw the path lead."""
    real = real_path or realpath(path)
    try:
        stat = os.lstat(real)
    except FileNotFoundError:
        return Target(path, real, None, _missing_folders(path, real))
    except NotADirectoryError:
        raise WriteError(path, f"{path} cannot exist: {_nearest_existing(real)} is a file, not a folder.") from None
    if not st.S_ISREG(stat.st_mode):
        raise not_regular(path, stat.st_mode)
    return Target(path, real, stat)


def read_target(path: str, real_path: str | None = None) -> Target:
    """Resolve the target and read its content."""
    target = resolve_target(path, real_path)
    return target if target.stat is None else with_content(target)


def with_content(target: Target) -> Target:
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


def lock_names_at(real_path: str) -> tuple[str, ...]:
    """The locks for a real path, without resolving links."""
    try:
        return _lock_names(real_path, os.lstat(real_path))
    except OSError:
        return (real_path,)


def plan_write(
    target: Target, after: bytes | None, *, mode: int | None = None, alone: bool = False, keep_links: bool = True
) -> FileWrite:
    """Plan the write that gives the target the content `after` (None deletes it).

    `mode` applies to a new file. A write that is `alone` in its commit needs no backup: nothing can fail after its switch.
    A file with other names (hard links) is written in place, so that they stay one file, unless `keep_links` is false.
    """
    stat = target.stat
    notes = symlink_notes(target, os.path.islink)
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
    folder, name = split_path(target.real_path)
    return FileWrite(
        path=target.path,
        real_path=target.real_path,
        folder=folder,
        name=name,
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


def symlink_notes(target: Target, is_link: Callable[[str], bool]) -> tuple[str, ...]:
    """What to say about a write through a symlink."""
    if target.path == target.real_path or not is_link(target.path):
        return ()
    return (f"{target.path} is a symlink and stays one: its target {target.real_path} was written",)


def in_place(write: FileWrite, reason: str) -> FileWrite:
    """The same write without a replacement file."""
    return replace(write, method="in_place", notes=(*write.notes, f"written in place, because {reason}"))


def is_at_or_below(path: str, places: Collection[str]) -> bool:
    """Whether a path is one of these places, or below one."""
    while path not in places:
        parent = os.path.dirname(path)
        if parent == path:
            return False
        path = parent
    return True


def split_path(real_path: str) -> tuple[str, str]:
    """Split a path into folder and name."""
    folder, _, name = real_path.rpartition("/")
    return folder or "/", name


def file_identity(stat: os.stat_result) -> FileIdentity:
    """What shows that a name still leads to the same, unchanged file."""
    return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns


def can_write(path: str) -> bool:
    """Whether the effective user may write there."""
    return os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


def _lock_names(real_path: str, stat: os.stat_result | None) -> tuple[str, ...]:
    if stat is None or stat.st_nlink == 1:
        return (real_path,)
    return (real_path, f"{stat.st_dev}:{stat.st_ino}")


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


def _missing_folders(path: str, real: str) -> tuple[str, ...]:
    missing: list[str] = []
    folder = os.path.dirname(real)
    while not os.path.isdir(folder):
        if os.path.lexists(folder):
            if os.path.isdir(folder):  # somebody has just made it
                break
            raise WriteError(path, f"{path} cannot be made: {folder} is not a folder.")
        missing.append(folder)
        folder = os.path.dirname(folder)
    return tuple(reversed(missing))


def _nearest_existing(path: str) -> str:
    folder = os.path.dirname(path)
    while not os.path.lexists(folder):
        folder = os.path.dirname(folder)
    return folder


def not_regular(path: str, mode: int) -> WriteError:
    """The error about a target that cannot be written because of its type."""
    kind = "a pipe, socket or device"
    if st.S_ISDIR(mode):
        kind = "a folder"
    elif st.S_ISLNK(mode):
        kind = "a symlink now" if os.path.exists(path) else "a symlink that leads nowhere"
    return WriteError(path, f"{path} is {kind}, not a regular file.")
