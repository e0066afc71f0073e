"""Files on disk as a write sees them: the system calls, what is at a path, a planned write, metadata, and errors in sentences."""

from __future__ import annotations

import errno
import fcntl
import os
import stat as st
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from wieldy.core.errors import WieldyError
from wieldy.core.text import format_size

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


class WriteError(WieldyError):
    """The system does not let the file be written. The message says what is needed."""

    def __init__(self, path: str, message: str, *, number: int = 0) -> None:
        super().__init__(message)
        self.path = path
        self.message = message
        self.number = number


class RollbackError(WriteError):
    """A write failed and so did its rollback; recovery tries again at the next start."""


def explain_os_error(error: OSError, path: str, *, needed: int = 0, roots: Sequence[str] = ()) -> WriteError:
    """Explain why `needed` bytes could not be written to `path`; `roots` are searched for caches that could go."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        message = describe_full_disk(path, needed, quota=error.errno == errno.EDQUOT, roots=roots)
        return WriteError(path, message, number=error.errno)
    template = _MESSAGES.get(error.errno or 0, "{path} could not be written: {why}")
    why = (error.strerror or str(error)).lower()
    message = template.format(path=path, folder=os.path.dirname(path), why=why, who=_user_name(), mode=_mode(path))
    return WriteError(path, f"{message}. It is unchanged.", number=error.errno or 0)


_MESSAGES = {
    errno.EACCES: "{path} may not be written by {who}{mode}; it takes write permission on it and its folder {folder}",
    errno.EPERM: "{path} is protected{mode}: it, or its folder {folder}, is immutable or belongs to someone else",
    errno.EROFS: "{path} is on a file system mounted read-only; it takes another place, or a mount that allows writing",
    errno.EIO: "the disk reported an error while writing {path} ({why}); check the medium before trying again",
    errno.ENAMETOOLONG: "{path} has a name too long for its file system; choose a shorter one",
    errno.EBUSY: "{path} is held by the system (a mount point, perhaps) and cannot be replaced",
    errno.ETXTBSY: "{path} is a program that is running; stop it first",
    errno.EFBIG: "{path} would exceed the size limit for files here",
    errno.EMFILE: "too many files are open to write {path}; close some and try again",
}


def _user_name() -> str:
    import pwd

    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return f"user {os.geteuid()}"


def _mode(path: str) -> str:
    try:
        return f" (mode {os.stat(path).st_mode & 0o7777:04o})"
    except OSError:
        return ""


CACHE_FOLDERS = frozenset(
    (
        *("node_modules", "bower_components", ".next", ".nuxt", ".turbo", ".parcel-cache"),
        *(".venv", "venv", "__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".tox", ".nox", ".hypothesis"),
        *("target", "build", "dist", ".gradle", "DerivedData", ".terraform", ".cache", "coverage", "htmlcov"),
    )
)
HOME_CACHES = (".cache", ".npm", ".cargo/registry", ".gradle/caches", ".m2/repository", "go/pkg/mod")
SEARCH_DEPTH = 5
MAX_SEARCH_SECONDS = 2.0
MAX_SEARCH_ENTRIES = 200_000
MAX_LISTED_CACHES = 5


def describe_full_disk(path: str, needed: int, *, quota: bool, roots: Sequence[str], home: str | None = None) -> str:
    """One message with the numbers and up to five cache or build folders that could be rebuilt."""
    ground = _nearest_existing(path)
    volume = os.statvfs(ground)
    free = volume.f_bavail * volume.f_frsize
    what = "The quota is used up" if quota else "The disk is full"
    message = f"{what}: {path} needs {format_size(needed)}, {format_size(free)} are free. It is unchanged."
    device = os.stat(ground).st_dev
    caches = largest_caches(roots or (ground,), device=device, home=os.path.expanduser("~") if home is None else home)
    if not caches:
        return f"{message} Free some space and try again."
    listed = ", ".join(f"{folder} ({format_size(size)})" for folder, size in caches)
    return f"{message} These can be rebuilt and could go, if the user agrees: {listed}."


def largest_caches(roots: Sequence[str], *, device: int, home: str) -> list[tuple[str, int]]:
    """The biggest cache and build folders on a device, found by a walk that is bounded in time and entries."""
    budget = _Budget()
    candidates: list[str] = []
    for root in dict.fromkeys(roots):
        candidates += _cache_folders(root, budget)
    candidates += [os.path.join(home, *cache.split("/")) for cache in HOME_CACHES]
    sizes = {folder: size for folder in dict.fromkeys(candidates) if (size := _size(folder, device, budget)) > 0}
    return sorted(sizes.items(), key=lambda item: -item[1])[:MAX_LISTED_CACHES]


class _Budget:
    def __init__(self) -> None:
        self._deadline = time.monotonic() + MAX_SEARCH_SECONDS
        self._entries = MAX_SEARCH_ENTRIES

    def spend(self) -> bool:
        self._entries -= 1
        if self._entries % 256 == 0 and time.monotonic() > self._deadline:
            self._entries = 0
        return self._entries > 0


def _cache_folders(root: str, budget: _Budget) -> Iterator[str]:
    level = [root]
    for _ in range(SEARCH_DEPTH):
        deeper: list[str] = []
        for folder in level:
            for entry in _entries(folder):
                if not budget.spend():
                    return
                if entry.is_dir(follow_symlinks=False) and entry.name != ".git":
                    if entry.name in CACHE_FOLDERS:
                        yield entry.path
                    else:
                        deeper.append(entry.path)
        level = deeper


def _size(folder: str, device: int, budget: _Budget) -> int:
    total = 0
    stack = [folder]
    while stack:
        for entry in _entries(stack.pop()):
            if not budget.spend():
                return total
            try:
                stat = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            if stat.st_dev != device:
                continue
            total += stat.st_blocks * 512
            if entry.is_dir(follow_symlinks=False):
                stack.append(entry.path)
    return total


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


def _nearest_existing(path: str) -> str:
    while not os.path.exists(path):
        path = os.path.dirname(path)
    return path


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
        return lock_names_of(self.real_path, self.stat)


class FileWrite(Struct, frozen=True, dict=True):
    """One planned file write. It names every temporary file in advance, so that recovery knows what to look for.

    `temp` holds the new content before the switch. `backup` is a second name of the old file while a batch is being
    switched. `folders` are missing parents, outermost first; for a deletion, parents to remove if they become empty. On a
    backend, `version` is the one that is replaced, and there are neither temporary files nor backups of ours.
    """

    path: str
    real_path: str
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

    @cached_property
    def folder(self) -> str:
        return split_path(self.real_path)[0]

    @cached_property
    def name(self) -> str:
        return split_path(self.real_path)[1]


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


def lock_names_of(real_path: str, stat: os.stat_result | None) -> tuple[str, ...]:
    """The locks a writer must hold: the path and, for a hard-linked file, its inode."""
    if stat is None or stat.st_nlink == 1:
        return (real_path,)
    return (real_path, f"{stat.st_dev}:{stat.st_ino}")


def not_regular(path: str, mode: int) -> WriteError:
    """The error about a target that cannot be written because of its type."""
    kind = "a pipe, socket or device"
    if st.S_ISDIR(mode):
        kind = "a folder"
    elif st.S_ISLNK(mode):
        kind = "a symlink now" if os.path.exists(path) else "a symlink that leads nowhere"
    return WriteError(path, f"{path} is {kind}, not a regular file.")


# File systems on which every change goes through this machine's kernel.
LOCAL_FILE_SYSTEMS = frozenset(
    (
        *("bcachefs", "btrfs", "exfat", "ext2", "ext3", "ext4", "f2fs", "jfs", "ntfs3", "overlay", "ramfs", "reiserfs"),
        *("tmpfs", "vfat", "xfs", "zfs"),
    )
)
MOUNTS_FILE = "/proc/self/mountinfo"


def is_local(tops: Iterable[str], mounts_file: str = MOUNTS_FILE) -> bool:
    """Whether these folders and all that is mounted below them can be changed by this machine only."""
    with open(mounts_file, "rb") as file:
        mounts = [_parse_mount(line) for line in file]
    for top in tops:
        kind, length = "", 0
        for place, mounted in mounts:
            if f"{top}/".startswith(f"{place.rstrip('/')}/"):
                if len(place) >= length:  # of two at one place, the later one covers the earlier one
                    kind, length = mounted, len(place)
            elif place.startswith(f"{top.rstrip('/')}/") and mounted not in LOCAL_FILE_SYSTEMS:
                return False
        if kind not in LOCAL_FILE_SYSTEMS:
            return False
    return True


def _parse_mount(line: bytes) -> tuple[str, str]:
    """The folder and the file system of one line of mountinfo."""
    fields, _, rest = line.partition(b" - ")
    place = fields.split(b" ")[4].decode("unicode_escape").encode("latin-1")  # a space is written \040
    return os.fsdecode(place), rest.split(b" ")[0].decode()
