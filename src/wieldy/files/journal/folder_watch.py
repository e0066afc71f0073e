"""Which folders change while a command runs, as the kernel tells it (inotify): then no second walk is needed.

A process that changes a file has opened it, renamed it or called for the change by path. Each of these is told to those who
watch the folder: a write at the latest when the file is closed, also a write through shared memory. Not told are changes
by another name of the file (hard link) and changes that another machine makes on a shared file system. Where these are
possible, or where the kernel has lost count, the answer is that nothing is known; the exception is a hard link that a
command makes, writes through and removes again, or makes outside the watched folders.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterable, Iterator

from msgspec import Struct

from wieldy.files.writing.target import is_at_or_below

IN_MODIFY = 0x2
IN_ATTRIB = 0x4
IN_CLOSE_WRITE = 0x8
IN_MOVED_FROM = 0x40
IN_MOVED_TO = 0x80
IN_CREATE = 0x100
IN_DELETE = 0x200
IN_DELETE_SELF = 0x400
IN_MOVE_SELF = 0x800
IN_UNMOUNT = 0x2000
IN_Q_OVERFLOW = 0x4000
IN_ISDIR = 0x40000000

NAMES_CHANGED = IN_MOVED_FROM | IN_MOVED_TO | IN_CREATE | IN_DELETE
SELF_CHANGED = IN_DELETE_SELF | IN_MOVE_SELF
WATCHED_EVENTS = IN_MODIFY | IN_ATTRIB | IN_CLOSE_WRITE | NAMES_CHANGED | SELF_CHANGED

# File systems on which every change goes through this machine's kernel.
LOCAL_FILE_SYSTEMS = frozenset(
    {"bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "jfs", "overlay", "ramfs", "reiserfs", "tmpfs", "xfs", "zfs"}
)
MOUNTS_FILE = "/proc/self/mountinfo"
WATCH_LIMIT_FILE = "/proc/sys/fs/inotify/max_user_watches"
READ_BYTES = 1 << 16
_EVENT = struct.Struct("iIII")


class WatchedChanges(Struct, frozen=True):
    """The folders in which something changed, and those that were made, moved or removed themselves."""

    changed: frozenset[str]
    replaced: frozenset[str]

    def may_differ(self, path: str) -> bool:
        """Whether a folder may not be as it was when the watch began."""
        return path in self.changed or (bool(self.replaced) and is_at_or_below(path, self.replaced))


class FolderWatch:
    """A watch on folders, each from the moment at which it is added. `tops` are the paths above all of them.

    All programs of a user share a number of watches: of these it takes `max_watches`, by default half, and none once it is
    of no use. Raises `OSError` where the system cannot watch them.
    """

    def __init__(self, tops: Iterable[str], *, max_watches: int | None = None) -> None:
        self._max_watches = _watch_limit() // 2 if max_watches is None else max_watches
        self._tops = {top: _identity(top) for top in tops}
        if not is_local(self._tops):
            raise OSError("other machines may change these folders")
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = _check(self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        self._paths: dict[int, str] = {}

    def add(self, path: str, descriptor: int) -> None:
        """Watch the folder that is open as `descriptor`. If that fails, `changes` will say that nothing is known."""
        if self._fd < 0:
            return
        if len(self._paths) >= self._max_watches:
            self.close()
            return
        number = self._libc.inotify_add_watch(self._fd, b"/proc/self/fd/%d" % descriptor, WATCHED_EVENTS)
        if number < 0 or self._paths.setdefault(number, path) != path:
            self.close()  # there are too many watches, or one folder has two paths

    def changes(self) -> WatchedChanges | None:
        """What has changed since the last call; None if that is not known."""
        if self._fd < 0:
            return None
        changed: set[str] = set()
        replaced: set[str] = set()
        is_known = True
        for number, mask, name in self._events():
            path = self._paths.get(number)
            if mask & (IN_Q_OVERFLOW | IN_UNMOUNT) or (mask & SELF_CHANGED and path in self._tops):
                is_known = False
            elif path is not None and not mask & SELF_CHANGED:  # the folder above is told as well
                changed.add(path)
                if mask & IN_ISDIR and mask & NAMES_CHANGED:
                    replaced.add(f"{path.rstrip('/')}/{name}")
        if is_known and self._are_tops_the_same():
            return WatchedChanges(frozenset(changed), frozenset(replaced))
        self.close()
        return None

    def close(self) -> None:
        """Give the watches back; from now on nothing is known."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _are_tops_the_same(self) -> bool:
        try:
            return all(_identity(top) == identity for top, identity in self._tops.items()) and is_local(self._tops)
        except OSError:
            return False

    def _events(self) -> Iterator[tuple[int, int, str]]:
        """The events that are waiting: number of the watch, kind, name of the entry."""
        while True:
            try:
                data = os.read(self._fd, READ_BYTES)
            except BlockingIOError:
                return
            position = 0
            while position < len(data):
                number, mask, _, length = _EVENT.unpack_from(data, position)
                position += _EVENT.size
                yield number, mask, os.fsdecode(data[position : position + length].rstrip(b"\0"))
                position += length


def open_watch(tops: Iterable[str]) -> FolderWatch | None:
    """A watch on what is below these folders, where the system has one that can be relied on."""
    try:
        return FolderWatch(tops)
    except (OSError, AttributeError):  # no such function in the C library: another system
        return None


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


def _watch_limit() -> int:
    with open(WATCH_LIMIT_FILE, "rb") as file:
        return int(file.read())


def _parse_mount(line: bytes) -> tuple[str, str]:
    """The folder and the file system of one line of mountinfo."""
    fields, _, rest = line.partition(b" - ")
    place = fields.split(b" ")[4].decode("unicode_escape").encode("latin-1")  # a space is written \040
    return os.fsdecode(place), rest.split(b" ")[0].decode()


def _identity(path: str) -> tuple[int, int] | None:
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _check(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
