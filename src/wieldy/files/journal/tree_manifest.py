"""The regular files of a tree at one moment, with what tells two states of a file apart: a walk that reads no content.

A walk has a time limit. Folders that it did not reach are named, so that nobody takes them for unchanged.
"""

from __future__ import annotations

import os
import stat
import time
from array import array
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import islice
from struct import Struct as BinaryStruct
from typing import NamedTuple, TypeAlias

from wieldy.files.journal.folder_watch import FolderWatch, WatchedChanges
from wieldy.files.search.ignore import VERSION_CONTROL, IgnoreRules, inside_repository, load_parent_rules
from wieldy.files.writing.metadata import restorable_mode

# Where the content of a file can be had: an offset in the copies, the id of a git object, or nowhere.
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
    that their stamp proves nothing. `sources` says, in the order of `names`, where each content can be had; it is filled in
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
            pending.append((top, rules, _repository_above(top)))
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
        rules = load_parent_rules(top, inside_repository(top), self._env)
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


def _repository_above(folder: str) -> str:
    """The nearest folder above with a `.git`; empty where there is none."""
    while (parent := os.path.dirname(folder)) != folder:
        folder = parent
        if os.path.lexists(os.path.join(folder, ".git")):
            return folder
    return ""


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
