"""The regular files of a tree at one moment, with what tells two states of a file apart: a walk that reads no content.

A walk has a time limit. Folders that it did not reach are named, so that they are not taken for unchanged. Where the kernel
tells in which folders something changed (inotify), the second walk looks only there. A manifest is saved for the next
process, and for recovery when a process dies while a command runs.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
import time
from array import array
from collections import deque
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from struct import Struct as BinaryStruct
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import msgspec
from msgspec import Struct

from wieldy.files.search.patterns import VERSION_CONTROL, IgnoreRules, load_parent_rules, repository_of
from wieldy.files.writing.disk import is_at_or_below, is_local, restorable_mode

if TYPE_CHECKING:
    from wieldy.files.journal.snapshot_contents import FileCopies

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


def _watch_limit() -> int:
    with open(WATCH_LIMIT_FILE, "rb") as file:
        return int(file.read())


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


# Where the content of a file is available: an offset in the copies, the id of a git object, or nowhere.
Source: TypeAlias = int | bytes | None

# Clocks of file systems tick slowly: what was written this shortly before cannot be told from what came after.
CLOCK_TICK_NS = 50_000_000
# No kernel's clock for time stamps ticks more slowly.
KERNEL_TICK_NS = 11_000_000
# Entries of one folder that are looked at; the memory for more would be out of proportion.
MAX_ENTRIES = 100_000
CHECK_EVERY = 1024
FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# How much longer than the computing time that it may take a walk may wait for the disk, or for other programs.
WAITING_FACTOR = 2.0
IGNORE_FILES = (".gitignore", ".ignore", ".rgignore")
_STAMP = BinaryStruct("=6Q")
STAMP_BYTES = _STAMP.size
_WORD = (1 << 64) - 1


class FileStamp(NamedTuple):
    """What tells two states of a file apart without reading it. The kernel sets `changed` at every change of any kind.

    `owner` is user and group in one number.
    """

    modified: int
    changed: int
    size: int
    inode: int
    mode: int
    owner: int

    @property
    def permissions(self) -> int:
        """What undo restores; the special bits only of a file of our own."""
        return restorable_mode(self.mode, self.owner >> 32)


class FolderState:
    """One folder: its regular files that no ignore rule hides, with packed stamps, its symlinks with targets, and its
    subfolders. `mode` and `owner` are its own.

    `listing` are all its entries, `others` its pipes, sockets and devices. `fresh` are files that changed so shortly before
    that their stamp proves nothing. `sources` says, in the order of `names`, where each content is available; it is filled in
    after the walk. `has_hard_links`: a file in it has other names, by which it can be changed without anything happening in
    this folder.
    """

    __slots__ = (
        "fresh",
        "has_hard_links",
        "ignored",
        "links",
        "listing",
        "mode",
        "names",
        "others",
        "owner",
        "parent_rules",
        "partial",
        "repository",
        "rules",
        "rules_key",
        "sources",
        "stamps",
        "subfolders",
    )

    def __init__(self, listing: tuple[str, ...]) -> None:
        self.listing = listing
        self.ignored: frozenset[str] = frozenset()
        self.names: tuple[str, ...] = ()
        self.stamps = b""
        self.subfolders: tuple[str, ...] = ()
        self.links: tuple[tuple[str, str], ...] = ()
        self.others: tuple[tuple[str, int], ...] = ()
        self.mode = 0
        self.owner = 0
        self.fresh: frozenset[str] = frozenset()
        self.sources: list[Source] = []
        self.partial = False
        self.has_hard_links = False
        self.repository = ""
        self.parent_rules: IgnoreRules | None = None
        self.rules: IgnoreRules | None = None
        self.rules_key: tuple[int, ...] = ()

    def stamp(self, position: int) -> FileStamp:
        return FileStamp(*_STAMP.unpack_from(self.stamps, position * STAMP_BYTES))

    def packed(self, position: int) -> bytes:
        return self.stamps[position * STAMP_BYTES : (position + 1) * STAMP_BYTES]

    def positions(self) -> dict[str, int]:
        return {name: position for position, name in enumerate(self.names)}

    def same_files(self, other: FolderState) -> bool:
        """Whether both have the same files in the same state, as far as stamps can tell."""
        return self.stamps == other.stamps and self.names == other.names


class TreeManifest:
    """What a walk found. `unreached` are the folders that it had no time to look into."""

    def __init__(self, started: int) -> None:
        self.started = started
        self.folders: dict[str, FolderState] = {}
        self.unreached: list[str] = []
        self.unreadable: list[str] = []

    @property
    def file_count(self) -> int:
        return sum(len(folder.names) for folder in self.folders.values())


class TimeLimit:
    """A limit of computing time of this thread. On a busy machine or a slow disk it may take twice as long, and no longer."""

    def __init__(self, seconds: float, clock: Callable[[], float] | None = None) -> None:
        self._seconds = seconds
        self._working_time = clock or time.thread_time
        self._time = clock or time.monotonic
        self._began = self._working_time()
        self._deadline = self._time() + WAITING_FACTOR * seconds

    @property
    def spent(self) -> float:
        return self._working_time() - self._began

    def is_up(self) -> bool:
        return self.spent > self._seconds or self._time() > self._deadline


class TreeWalker:
    """Walks trees, and remembers from one walk to the next what the ignore rules said about unchanged folders.

    It never enters the `excluded` folders.
    """

    def __init__(self, env: Mapping[str, str], excluded: Collection[str] = ()) -> None:
        self._env = env
        self._excluded = frozenset(excluded)
        self._top_rules: dict[str, IgnoreRules] = {}

    def walk(
        self,
        tops: Iterable[str],
        known: Mapping[str, FolderState],
        limit: TimeLimit,
        *,
        first: str = "",
        keep_rules: bool = False,
        skip: Collection[str] = (),
        watch: FolderWatch | None = None,
        changes: WatchedChanges | None = None,
    ) -> TreeManifest:
        """Look at the folders at and below `tops`, breadth first; at the folder `first` and those below it before others.

        `known` are the folders of an earlier walk; where a folder is as it was, the same object is returned again. With
        `keep_rules` the ignore rules of `known` folders are used even if they have changed since. Folders in `skip` are left out.
        From the moment at which a folder is looked at it is watched by `watch`. Where `changes` are given, known folders
        that are not among them are taken to be as they were.
        """
        manifest = TreeManifest(time.time_ns())
        skip = self._excluded.union(skip)
        preferred: deque[tuple[str, IgnoreRules | None, str]] = deque()
        pending: deque[tuple[str, IgnoreRules | None, str]] = deque()
        for top in tops:
            rules = known[top].parent_rules if keep_rules and top in known else self._rules_above(top)
            pending.append((top, rules, repository_of(os.path.dirname(top))))
        while queue := preferred or pending:
            path, rules, repository = queue.popleft()
            if path in manifest.folders or path in skip:
                continue
            if limit.is_up():
                rest = (path, *(path for path, _, _ in (*preferred, *pending)))
                manifest.unreached = [path for path in rest if path not in manifest.folders and path not in skip]
                break
            known_folder = known.get(path)
            try:
                if changes is None or known_folder is None or _may_differ(path, known_folder, changes):
                    request = _ScanRequest(rules, repository, known_folder, manifest.started, limit, keep_rules, watch)
                    folder = _scan(path, request)
                else:
                    folder = known_folder
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError:
                manifest.unreadable.append(path)
                continue
            manifest.folders[path] = folder
            prefix = path.rstrip("/") + "/"
            for name in folder.subfolders:
                below = prefix + name
                is_first = first and (f"{first}/".startswith(f"{below}/") or below.startswith(f"{first}/"))
                (preferred if is_first else pending).append((below, folder.rules, folder.repository))
        return manifest

    def _rules_above(self, top: str) -> IgnoreRules:
        """The rules that apply in a top folder; the same object as last time unless they have changed."""
        rules = load_parent_rules(top, self._env)
        if rules == self._top_rules.get(top):
            return self._top_rules[top]
        self._top_rules[top] = rules
        return rules


class _ScanRequest(NamedTuple):
    """How to look at one folder: the rules and repository above it, what is known of it, when the walk began."""

    rules: IgnoreRules | None
    repository: str
    known: FolderState | None
    started: int
    limit: TimeLimit
    keep_rules: bool
    watch: FolderWatch | None


def _scan(path: str, request: _ScanRequest) -> FolderState:
    descriptor = os.open(path, FOLDER_FLAGS)
    try:
        if request.watch is not None:
            request.watch.add(path, descriptor)
        with os.scandir(descriptor) as scan:
            entries = list(islice(scan, MAX_ENTRIES + 1))
        return _read_entries(path, descriptor, entries, request)
    finally:
        os.close(descriptor)


def _read_entries(path: str, descriptor: int, entries: list[os.DirEntry[str]], request: _ScanRequest) -> FolderState:
    """The state of a folder whose entries are those of an open descriptor."""
    known = request.known
    is_cut = len(entries) > MAX_ENTRIES
    listing = tuple([entry.name for entry in entries])
    folder = FolderState(known.listing if known is not None and known.listing == listing else listing)
    folder.partial = is_cut
    own = os.fstat(descriptor)
    folder.mode, folder.owner = stat.S_IMODE(own.st_mode), own.st_uid << 32 | own.st_gid
    folder.repository = path if ".git" in listing else request.repository
    _apply_rules(folder, path, request.rules, known, entries, request.keep_rules)
    ignored = folder.ignored
    names: list[str] = []
    values: list[int] = []
    subfolders: list[str] = []
    links: list[tuple[str, str]] = []
    others: list[tuple[str, int]] = []
    for count, entry in enumerate(entries):
        name = entry.name
        if name in ignored:
            continue
        if count % CHECK_EVERY == CHECK_EVERY - 1 and request.limit.is_up():
            folder.partial = True
            break
        try:
            if entry.is_file(follow_symlinks=False):
                status = entry.stat(follow_symlinks=False)
                names.append(name)
                values += (
                    status.st_mtime_ns,
                    status.st_ctime_ns,
                    status.st_size,
                    status.st_ino,
                    status.st_mode,
                    status.st_uid << 32 | status.st_gid,
                )
                if status.st_nlink > 1:
                    folder.has_hard_links = True
            elif entry.is_dir(follow_symlinks=False):
                subfolders.append(name)
            elif entry.is_symlink():
                links.append((name, os.readlink(name, dir_fd=descriptor)))
            else:
                others.append((name, entry.stat(follow_symlinks=False).st_ctime_ns))
        except OSError:
            continue  # gone since the folder was listed
    folder.names = folder.listing if len(names) == len(folder.listing) else tuple(names)
    folder.stamps = _pack(values)
    folder.subfolders = tuple(subfolders)
    folder.links = tuple(links)
    folder.others = tuple(others)
    limit = request.started - CLOCK_TICK_NS
    if max(values[1::6], default=0) > limit:
        folder.fresh = frozenset(name for name, changed in zip(names, values[1::6], strict=True) if changed > limit)
    return _reuse(folder, known)


def _may_differ(path: str, known: FolderState, changes: WatchedChanges) -> bool:
    return known.has_hard_links or known.partial or changes.may_differ(path)


def _apply_rules(
    folder: FolderState,
    path: str,
    rules: IgnoreRules | None,
    known: FolderState | None,
    entries: list[os.DirEntry[str]],
    keep_rules: bool,
) -> None:
    """Find out which entries are ignored, or take what is known about a folder that is listed as before."""
    folder.parent_rules = rules
    if keep_rules and known is not None:
        folder.rules, folder.rules_key, folder.parent_rules = known.rules, known.rules_key, known.parent_rules
    elif rules is not None:
        folder.rules_key = _ignore_file_times(path, folder.listing)
        if known is not None and known.parent_rules is rules and known.rules_key == folder.rules_key:
            folder.rules = known.rules
        else:
            folder.rules = rules.enter(path, folder.listing)
    in_force = folder.rules
    if known is not None and known.rules is in_force and known.listing is folder.listing:
        folder.ignored = known.ignored
        return
    ignored = {name for name in VERSION_CONTROL if name in folder.listing}
    if in_force is not None and (in_force.user_excludes is not None or any(in_force.chains)):
        prefix = path.rstrip("/") + "/"
        ignored.update(
            entry.name
            for entry in entries
            if in_force.ignores(prefix + entry.name, entry.is_dir(follow_symlinks=False))
        )
    folder.ignored = frozenset(ignored)


def _reuse(folder: FolderState, known: FolderState | None) -> FolderState:
    """The known state if it is the same; else the new one, with the sources of files that are as they were."""
    if known is None:
        folder.sources = [None] * len(folder.names)
        return folder
    if (
        not known.fresh
        and not folder.fresh
        and folder.same_files(known)
        and folder.subfolders == known.subfolders
        and folder.links == known.links
        and folder.others == known.others
        and (folder.mode, folder.owner) == (known.mode, known.owner)
        and folder.ignored is known.ignored
        and folder.rules is known.rules
        and folder.parent_rules is known.parent_rules
        and folder.repository == known.repository
        and folder.partial == known.partial
        and folder.has_hard_links == known.has_hard_links
    ):
        return known
    if not known.fresh and not folder.fresh and folder.same_files(known):
        folder.sources = known.sources
        return folder
    positions = known.positions()
    folder.sources = [None] * len(folder.names)
    for position, name in enumerate(folder.names):
        old = positions.get(name)
        if (
            old is not None
            and name not in known.fresh
            and name not in folder.fresh
            and known.packed(old) == folder.packed(position)
        ):
            folder.sources[position] = known.sources[old]
    return folder


def _ignore_file_times(path: str, listing: tuple[str, ...]) -> tuple[int, ...]:
    """When the ignore files of a folder changed, so that they need not be read again."""
    files = [name for name in IGNORE_FILES if name in listing]
    if ".git" in listing:
        files.append(".git/info/exclude")
    times = []
    for name in files:
        try:
            times.append(os.stat(f"{path}/{name}").st_ctime_ns)
        except OSError:
            times.append(0)
    return tuple(times)


def _pack(values: list[int]) -> bytes:
    try:
        return array("Q", values).tobytes()
    except OverflowError:  # times before 1970
        return array("Q", [value & _WORD for value in values]).tobytes()


def read_stamp(path: str) -> FileStamp | None:
    """The stamp of a regular file; None for anything else."""
    try:
        return stamp_of(os.lstat(path))
    except (OSError, ValueError):
        return None


def stamp_of(status: os.stat_result) -> FileStamp | None:
    if not stat.S_ISREG(status.st_mode):
        return None
    values = (status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino, status.st_mode)
    modified, changed, size, inode, mode = (value & _WORD for value in values)
    return FileStamp(modified, changed, size, inode, mode, status.st_uid << 32 | status.st_gid)


def path_state(path: str) -> str:
    """What identifies the state of a path, whatever is there."""
    try:
        status = os.lstat(path)
    except (OSError, ValueError):
        return "gone"
    return f"{status.st_mtime_ns} {status.st_ctime_ns} {status.st_size} {status.st_ino}"


def iter_files(folders: Mapping[str, FolderState]) -> Iterator[tuple[str, FolderState, int]]:
    """Path, folder and position of every file."""
    for path, folder in folders.items():
        prefix = path.rstrip("/") + "/"
        for position, name in enumerate(folder.names):
            yield prefix + name, folder, position


PREFIX = "manifest-"
VERSION = 2


class StoredFolder(msgspec.Struct, array_like=True):
    """A `FolderState` without its ignore rules. Names are joined by NUL bytes."""

    path: bytes
    listing: bytes
    names: bytes
    stamps: bytes
    subfolders: bytes
    ignored: bytes
    fresh: bytes
    links: list[tuple[bytes, bytes]]
    others: list[tuple[bytes, int]]
    sources: list[int | bytes | None]
    partial: bool
    repository: bytes
    mode: int
    owner: int


class StoredManifest(msgspec.Struct, array_like=True):
    version: int
    folders: list[StoredFolder]


_decoder = msgspec.msgpack.Decoder(StoredManifest)


def save_manifest(folder: Path, name: str, folders: Mapping[str, FolderState]) -> None:
    """Write a manifest. It outlives this process, but need not outlive the system. Raises `OSError`."""
    stored = [
        StoredFolder(
            os.fsencode(path),
            _join(state.listing),
            b"" if state.names is state.listing else _join(state.names),
            state.stamps,
            _join(state.subfolders),
            _join(state.ignored),
            _join(state.fresh),
            [(os.fsencode(name), os.fsencode(target)) for name, target in state.links],
            [(os.fsencode(name), changed) for name, changed in state.others],
            state.sources,
            state.partial,
            os.fsencode(state.repository),
            state.mode,
            state.owner,
        )
        for path, state in folders.items()
    ]
    temporary = folder / f"{name}.tmp"
    temporary.write_bytes(msgspec.msgpack.encode(StoredManifest(VERSION, stored)))
    os.replace(temporary, folder / name)


def read_manifest(path: Path) -> dict[str, FolderState] | None:
    """The folders of a manifest; None where there is none that can be read."""
    try:
        stored = _decoder.decode(path.read_bytes())
    except (OSError, msgspec.DecodeError):
        return None
    if stored.version != VERSION:
        return None
    folders: dict[str, FolderState] = {}
    for one in stored.folders:
        state = FolderState(_split(one.listing))
        state.names = _split(one.names) if one.names or not one.stamps else state.listing
        state.stamps, state.partial = one.stamps, one.partial
        state.subfolders = _split(one.subfolders)
        state.ignored, state.fresh = frozenset(_split(one.ignored)), frozenset(_split(one.fresh))
        state.links = tuple((os.fsdecode(name), os.fsdecode(target)) for name, target in one.links)
        state.mode, state.owner = one.mode, one.owner
        state.others = tuple((os.fsdecode(name), changed) for name, changed in one.others)
        sources: list[Source] = list(one.sources)
        state.sources = sources
        state.repository = os.fsdecode(one.repository)
        if not len(state.names) == len(sources) == len(one.stamps) // STAMP_BYTES:
            return None
        folders[os.fsdecode(one.path)] = state
    return folders


def load_manifest(copies: FileCopies) -> dict[str, FolderState]:
    """The last manifest of a slot. Without one, the copies in it are of no use and are discarded."""
    manifests = sorted(copies.folder.glob(f"{PREFIX}*[0-9]"), key=_number)
    folders = read_manifest(manifests[-1]) if manifests else None
    if folders is None:
        copies.reset()
        remove_manifests(copies.folder)
    return folders or {}


def remove_manifests(folder: Path, keep: Container[str] = ()) -> None:
    for path in folder.glob(f"{PREFIX}*"):
        if path.name not in keep:
            with suppress(OSError):
                path.unlink()


def next_manifest_name(folder: Path) -> str:
    return f"{PREFIX}{max(map(_number, folder.glob(f'{PREFIX}*[0-9]')), default=0) + 1}"


def _number(path: Path) -> int:
    return int(path.name.removeprefix(PREFIX))


def _join(names: tuple[str, ...] | frozenset[str]) -> bytes:
    return os.fsencode("\0".join(names))


def _split(names: bytes) -> tuple[str, ...]:
    return tuple(os.fsdecode(names).split("\0")) if names else ()
