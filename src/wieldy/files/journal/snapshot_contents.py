"""Where the contents that files had before a command come from: copies, and git.

Files that git has need no copy, nor do files that were copied before and have not changed. What a command turns out to have
changed goes into the journal's database; a copy is written in a tenth of that time, to one file in the journal's folder. Each
process has a folder of its own for it, a slot, which the next one takes over together with the copies in it.
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from hashlib import sha1, sha256
from heapq import nlargest
from operator import itemgetter
from pathlib import Path
from struct import Struct as BinaryStruct
from typing import NamedTuple

from msgspec import Struct

from wieldy.core.git import look_up_with_git
from wieldy.core.project_text import read_project_bytes, read_project_text
from wieldy.core.state_dirs import make_private_folder
from wieldy.core.threads import run_in_background
from wieldy.files.journal.entries import FileChange, Uncovered
from wieldy.files.journal.store import ContentUnavailable
from wieldy.files.journal.tree_manifest import (
    CLOCK_TICK_NS,
    FileStamp,
    FolderState,
    FolderWatch,
    Source,
    TimeLimit,
    TreeManifest,
    iter_files,
    load_manifest,
    read_stamp,
    remove_manifests,
    stamp_of,
)
from wieldy.files.search.patterns import IgnoreFile, git_folders, parse_ignore_file
from wieldy.files.writing.tree_commit import Node, NodeChange

# The index of some 250 000 files. A larger one takes too long to read.
MAX_INDEX_BYTES = 24 << 20
_HEADER = BinaryStruct(">4sII")
_ENTRY = BinaryStruct(">10I20sH")
_WORD = 0xFFFFFFFF
_CONVERTING_CONFIG = r"^(core\.(autocrlf|attributesfile)|extensions\.(partialclone|objectformat)|remote\..*\.promisor)$"
_CONVERTING_ATTRIBUTE = re.compile(
    r"(?:^|\s)(?:filter|working-tree-encoding|ident|eol=crlf|text=crlf|crlf|\[attr\])", re.I
)


class GitIndex:
    """What the index of a repository knew at one moment about the files in its working tree."""

    def __init__(self, root: str, data: bytes, written: int) -> None:
        self.root = root
        self._data = data
        self._written = written
        self._positions: dict[bytes, int] | None = None
        self.converted: list[IgnoreFile] = []

    def object_id(self, path: str, stamp: FileStamp) -> bytes | None:
        """The id of the object that holds the bytes of a file in this state; None if that is not certain."""
        if self._positions is None:
            self._positions = dict(_entries(self._data))
        position = self._positions.get(os.fsencode(path[len(self.root.rstrip("/")) + 1 :]))
        if position is None:
            return None
        entry = _ENTRY.unpack_from(self._data, position)
        changed, changed_ns, modified, modified_ns, _, inode, mode, _, _, size, object_id, flags = entry
        known = modified * 10**9 + modified_ns, changed * 10**9 + changed_ns, size, inode
        if known != (stamp.modified, stamp.changed, stamp.size & _WORD, stamp.inode & _WORD):
            return None
        if flags & 0xF000 or not stat.S_ISREG(mode) or stamp.size > _WORD:
            return None  # assumed unchanged, extended, or in conflict
        if max(stamp.modified, stamp.changed) > self._written - CLOCK_TICK_NS:
            return None  # it may have changed after git read it, without a new time stamp
        if any(rules.verdict(path, False) for rules in self.converted):
            return None
        return bytes(object_id)


def load_index(root: str, env: Mapping[str, str], attribute_files: Iterable[str] = ()) -> GitIndex | None:
    """The index of the repository at `root`; None where git cannot be relied on to give files back byte by byte.

    `attribute_files` are the `.gitattributes` of its working tree.
    """
    git_folder, common = git_folders(f"{root.rstrip('/')}/.git")
    try:
        if not _is_plain(root, env):
            return None
        written = os.stat(f"{git_folder}/index").st_mtime_ns
        data = read_project_bytes(f"{git_folder}/index", max_bytes=MAX_INDEX_BYTES)
    except OSError:
        return None
    if (
        len(data) < _HEADER.size
        or _HEADER.unpack_from(data)[0] != b"DIRC"
        or _HEADER.unpack_from(data)[1] not in (2, 3)
    ):
        return None
    index = GitIndex(root, data, written)
    for path in (*attribute_files, f"{common or git_folder}/info/attributes"):
        base = root if path.endswith("/info/attributes") else os.path.dirname(path)
        if (patterns := _converted_patterns(path)) and (rules := parse_ignore_file("\n".join(patterns), base)):
            index.converted.append(rules)
    return index


def read_objects(root: str, object_ids: Iterable[bytes], env: Mapping[str, str]) -> Iterator[tuple[bytes, bytes]]:
    """Ask git for objects; yields those that it has, verified. Nothing is fetched, and no hook or filter runs."""
    requests = b"".join(object_id.hex().encode() + b"\n" for object_id in dict.fromkeys(object_ids))
    if not requests:
        return
    arguments = ["-c", "core.fsmonitor=false", "cat-file", "--batch", "--buffer"]
    done = look_up_with_git(arguments, root, env, input=requests)
    if done is None:
        return
    output, position = done.stdout, 0
    while (end := output.find(b"\n", position)) >= 0:
        fields = output[position:end].split()
        position = end + 1
        if len(fields) != 3 or not fields[2].isdigit():
            continue  # "<id> missing"
        size = int(fields[2])
        content = output[position : position + size]
        position += size + 1
        if fields[1] == b"blob" and sha1(b"blob %d\0%s" % (size, content), usedforsecurity=False).hexdigest() == (
            fields[0].decode()
        ):
            yield bytes.fromhex(fields[0].decode()), content


def _entries(data: bytes) -> Iterator[tuple[bytes, int]]:
    """Path and position of each entry."""
    _, _, count = _HEADER.unpack_from(data)
    position, fixed = _HEADER.size, _ENTRY.size
    for _ in range(count):
        start = position + fixed
        flags = data[start - 2 : start]
        if len(flags) < 2:
            return
        length = (flags[0] & 0x0F) << 8 | flags[1]
        if flags[0] & 0x40:
            start += 2
        if length == 0xFFF:
            length = data.index(b"\0", start) - start
        yield data[start : start + length], position
        position += (start - position + length + 8) & ~7


def _is_plain(root: str, env: Mapping[str, str]) -> bool:
    """Whether no configuration makes files in the working tree differ from git's objects, or objects be missing."""
    done = look_up_with_git(["config", "--includes", "-z", "--get-regexp", _CONVERTING_CONFIG], root, env)
    if done is None:
        return False
    settings = [setting for setting in done.stdout.split(b"\0") if setting]
    if done.returncode not in (0, 1) or any(setting.lower() != b"core.autocrlf\nfalse" for setting in settings):
        return False
    config = env.get("XDG_CONFIG_HOME") or f"{env.get('HOME', '')}/.config"
    return not any(_converted_patterns(path) for path in (f"{config}/git/attributes", "/etc/gitattributes"))


def _converted_patterns(path: str) -> list[str]:
    """The patterns of an attributes file whose files git converts."""
    patterns = []
    for line in _read_text(path).split("\n"):
        words = line.split(maxsplit=1)
        if line.startswith("[attr]"):
            return ["*"]  # it may mean anything
        if len(words) == 2 and not line.startswith("#") and _CONVERTING_ATTRIBUTE.search(words[1]):
            patterns.append("*" if words[0].startswith('"') else words[0])
    return patterns


def _read_text(path: str) -> str:
    try:
        return read_project_text(path)
    except FileNotFoundError:
        return ""
    except OSError:
        return "[attr]"  # it may say anything


SLOTS = 64
# A slot with such a file had a process that died while a command ran: it waits for recovery.
RUNNING_PREFIX = "running-"
LOCK_NAME = "lock"
DIGEST_BYTES = 20
BUFFER_BYTES = 1 << 20


class FileCopies:
    """Contents by offset in one file. Not safe for two threads at once; failures to write are `OSError`s."""

    def __init__(self, folder: Path, lock: int, name: str = "copies") -> None:
        self.folder = folder
        self._lock = lock
        self._fd = os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._written = os.fstat(self._fd).st_size
        self._buffer = bytearray()

    @property
    def size(self) -> int:
        return self._written + len(self._buffer)

    def add(self, content: bytes) -> int:
        """Append a content; returns its offset."""
        offset = self.size
        self._buffer += sha256(content).digest()[:DIGEST_BYTES]
        self._buffer += content
        if len(self._buffer) > BUFFER_BYTES:
            self.flush()
        return offset

    def flush(self) -> None:
        """Hand everything to the system, so that it outlives this process."""
        data, self._buffer = self._buffer, bytearray()
        position, self._written = self._written, self._written + len(data)  # an offset is never used twice
        done = 0
        while done < len(data):
            done += os.pwrite(self._fd, data[done:] if done else data, position + done)

    def read(self, offset: int, size: int) -> bytes:
        """The content of `size` bytes at an offset, verified."""
        if offset + DIGEST_BYTES + size > self._written:
            self.flush()
        record = os.pread(self._fd, DIGEST_BYTES + size, offset)
        content = record[DIGEST_BYTES:]
        if len(content) != size or sha256(content).digest()[:DIGEST_BYTES] != record[:DIGEST_BYTES]:
            raise ContentUnavailable("its copy is damaged")
        return content

    def reset(self) -> None:
        """Remove all copies. Only while no offset is in use."""
        self._buffer, self._written = bytearray(), 0
        os.ftruncate(self._fd, 0)

    def compact(self, sizes: Mapping[int, int]) -> dict[int, int]:
        """Keep only the copies at these offsets, given with their sizes; returns the new offsets of those that are intact."""
        fresh = FileCopies(self.folder, self._lock, "copies.new")
        fresh.reset()
        moved = {}
        for offset, size in sizes.items():
            with suppress(ContentUnavailable):
                moved[offset] = fresh.add(self.read(offset, size))
        fresh.flush()
        os.replace(self.folder / "copies.new", self.folder / "copies")
        os.close(self._fd)
        self._fd, self._written, self._buffer = fresh._fd, fresh._written, bytearray()
        return moved

    def close(self) -> None:
        """Release the slot; the copies stay."""
        os.close(self._fd)
        os.close(self._lock)


def open_slot(folder: Path) -> FileCopies:
    """Take the first slot below a folder that no living process has and that needs no recovery. Raises `OSError`."""
    for number in range(SLOTS):
        slot = folder / str(number)
        make_private_folder(slot)
        if (lock := try_lock(slot)) is None:
            continue
        try:
            if not awaits_recovery(slot):
                return FileCopies(slot, lock)
        except BaseException:
            os.close(lock)
            raise
        os.close(lock)
    raise OSError(f"{SLOTS} processes are at work in this project")


def try_lock(slot: Path) -> int | None:
    """Lock a slot until the descriptor returned is closed; None if a living process has it."""
    lock = os.open(slot / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    except BaseException:
        os.close(lock)
        raise
    return lock


def awaits_recovery(slot: Path) -> bool:
    """Whether an unlocked slot was left by a process that died while a command ran."""
    return any(slot.glob(f"{RUNNING_PREFIX}*"))


def slots(folder: Path) -> Iterator[Path]:
    """The slots that exist below a folder."""
    with suppress(OSError):
        yield from sorted(path for path in folder.iterdir() if path.is_dir())


class SnapshotLimits(Struct, frozen=True):
    """What a snapshot may cost. `seconds` is for one walk; copying gets what is left of it, or a little more.

    Bytes: of one file, of all copies, of the changes of one command, and of a repository that is copied although git has it,
    so that a command can be taken back that removes `.git`.
    """

    seconds: float = 0.4
    file_bytes: int = 5 << 20
    copied_bytes: int = 256 << 20
    changed_bytes: int = 64 << 20
    changed_files: int = 20_000
    repository_bytes: int = 16 << 20


class SnapshotScope(Struct, frozen=True):
    """What to watch: folders with all below them, and single paths. `first` is the folder to look at before others."""

    folders: tuple[str, ...]
    paths: tuple[str, ...] = ()
    first: str = ""


class TreeChanges(Struct, frozen=True):
    """What changed: files, and symlinks, folders and permissions; and what may have changed and cannot be restored."""

    changes: tuple[FileChange, ...]
    uncovered: tuple[Uncovered, ...]
    nodes: tuple[NodeChange, ...] = ()


class WatchedPath(NamedTuple):
    """A single path before a command: the stamp and content of a file, or what else was there."""

    stamp: FileStamp | None
    source: Source
    node: Node | None = None
    missing_folders: tuple[str, ...] = ()


class CopyCandidate(NamedTuple):
    """A file that has no copy yet."""

    modified: int
    size: int
    path: str
    folder: FolderState
    position: int


class TreeSnapshot:
    """The files in a scope before a command. `watch` tells in which folders something has changed since, where it can."""

    def __init__(self, scope: SnapshotScope, manifest: TreeManifest, watch: FolderWatch | None = None) -> None:
        self.scope = scope
        self.manifest = manifest
        self.watch = watch
        self.paths: dict[str, WatchedPath] = {}
        self.indexes: dict[str, GitIndex | None] = {}
        self.uncopied: list[CopyCandidate] = []
        self.copy_problem = ""
        self.seconds = 0.0
        self.finished = 0

    @property
    def started(self) -> int:
        return self.manifest.started

    def close(self) -> None:
        watch, self.watch = self.watch, None
        if watch is not None:
            # The kernel takes some 15 ms to free the watches, while it computes nothing.
            try:
                run_in_background(watch.close)
            except RuntimeError:  # the system allows no thread
                watch.close()


def too_large(limit: int) -> str:
    return f"larger than {limit >> 20} MB"


READ_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
# So few files are read faster than git's index.
FEW_FILES = 200
FEW_BYTES = 4 << 20
# The most recently modified files are copied first; of more than this, only so many are put in order.
SORTED_FILES = 20_000
# Repositories of more files are not copied, however small they are.
SMALL_REPOSITORY_FILES = 5_000


class SnapshotContents:
    """The copies of one process. `known` are the folders as they were last seen, with the source of each content.

    `reads` counts the files that were opened.
    """

    def __init__(self, slots: Path, env: Mapping[str, str], limits: SnapshotLimits) -> None:
        self.reads = 0
        self.limits = limits
        self.copies: FileCopies | None = None
        self.known: dict[str, FolderState] = {}
        self._slots = slots
        self._env = env
        self._room = 0
        self._is_full = False

    def open(self) -> str:
        """Open the copies at first use; returns why that is not possible."""
        if self.copies is None:
            try:
                self.copies = open_slot(self._slots)
                self.known = load_manifest(self.copies)
                self._room = self.limits.copied_bytes - self.copies.size
            except OSError as error:
                return error.strerror or str(error)
        return ""

    def compact_if_full(self) -> None:
        """Drop copies of states that files are no longer in, where they take up much of the room."""
        copies = self.copies
        if copies is None or not self._is_full:
            return
        live = self._live_copies()
        self._is_full = False
        if sum(live.values()) < 0.75 * copies.size:
            remove_manifests(copies.folder)
            moved = copies.compact(live)
            for sources in {id(folder.sources): folder.sources for folder in self.known.values()}.values():
                sources[:] = [moved.get(source) if isinstance(source, int) else source for source in sources]
        self._room = self.limits.copied_bytes - copies.size

    def _live_copies(self) -> dict[int, int]:
        """The copies of files in their present state: offset and size."""
        return {
            source: folder.stamp(position).size
            for folder in self.known.values()
            for position, source in enumerate(folder.sources)
            if isinstance(source, int)
        }

    def find_sources(self, snapshot: TreeSnapshot, limit: TimeLimit) -> None:
        """Find files whose content is nowhere; ask git's index where these are many."""
        missing = [(path, folder) for path, folder in snapshot.manifest.folders.items() if None in folder.sources]
        count = sum(folder.sources.count(None) for _, folder in missing)
        size = 0
        if count <= FEW_FILES:
            size = sum(folder.stamp(p).size for _, folder in missing for p, s in enumerate(folder.sources) if s is None)
        use_git = count > FEW_FILES or size > FEW_BYTES
        for path, folder in missing:
            index = self._index(snapshot, folder.repository) if use_git and folder.repository else None
            self._find_in_folder(snapshot, path, folder, index)
            if limit.is_up():
                break  # what is left is asked of git's index after the command, as it was before it

    def _find_in_folder(self, snapshot: TreeSnapshot, path: str, folder: FolderState, index: GitIndex | None) -> None:
        prefix = path.rstrip("/") + "/"
        for position, source in enumerate(folder.sources):
            if source is not None:
                continue
            name, stamp = folder.names[position], folder.stamp(position)
            if index is not None and name not in folder.fresh:
                folder.sources[position] = index.object_id(prefix + name, stamp)
            if folder.sources[position] is None and stamp.size <= self.limits.file_bytes:
                snapshot.uncopied.append(CopyCandidate(stamp.modified, stamp.size, prefix + name, folder, position))

    def _index(self, snapshot: TreeSnapshot, repository: str) -> GitIndex | None:
        if repository not in snapshot.indexes:
            attributes = [
                f"{path}/.gitattributes"
                for path, folder in snapshot.manifest.folders.items()
                if folder.repository == repository and ".gitattributes" in folder.listing
            ]
            # Folders that were not looked at may have attributes of their own, but none of their files is covered.
            snapshot.indexes[repository] = load_index(repository, self._env, attributes)
        return snapshot.indexes[repository]

    def copy(self, snapshot: TreeSnapshot, is_time_up: Callable[[], bool]) -> None:
        """Copy files that have no source, the most recently modified first, until the time is up."""
        if self.copies is None:
            snapshot.uncopied.clear()
            return
        if len(snapshot.uncopied) <= SORTED_FILES:
            snapshot.uncopied.sort(key=itemgetter(0))
        else:
            recent = nlargest(SORTED_FILES, snapshot.uncopied, key=itemgetter(0))
            chosen = {id(candidate) for candidate in recent}
            snapshot.uncopied = [each for each in snapshot.uncopied if id(each) not in chosen] + recent[::-1]
        while snapshot.uncopied and not is_time_up():
            self.copy_next(snapshot)

    def copy_next(self, snapshot: TreeSnapshot) -> None:
        if not self._copy_file(snapshot.uncopied.pop()):
            snapshot.copy_problem = snapshot.copy_problem or self._room_problem()

    def _room_problem(self) -> str:
        return f"beyond the {self.limits.copied_bytes >> 20} MB that are kept"

    def _copy_file(self, candidate: CopyCandidate) -> bool:
        """Copy one file; False if there is no room for it."""
        if candidate.folder.sources[candidate.position] is not None:
            return True
        if candidate.size > self._room:
            self._is_full = True
            return False
        assert self.copies is not None
        self.reads += 1
        stamp = candidate.folder.stamp(candidate.position)
        try:
            descriptor = os.open(candidate.path, READ_FLAGS)
        except OSError:
            return True
        try:
            content = _read_all(descriptor, candidate.size)
            if len(content) == candidate.size and stamp_of(os.fstat(descriptor)) == stamp:
                candidate.folder.sources[candidate.position] = self.copies.add(content)
                self._room -= candidate.size
        except OSError:
            return True
        finally:
            os.close(descriptor)
        return True

    def copy_small_repositories(self, snapshot: TreeSnapshot, limit: TimeLimit) -> None:
        """Copy what only git has, where that is little: a command may remove `.git`."""
        if self.copies is None or snapshot.manifest.file_count > SMALL_REPOSITORY_FILES:
            return
        candidates = [
            CopyCandidate(stamp.modified, stamp.size, path, folder, position)
            for path, folder, position in iter_files(snapshot.manifest.folders)
            if isinstance(folder.sources[position], bytes) and (stamp := folder.stamp(position))
        ]
        if sum(candidate.size for candidate in candidates) > min(self.limits.repository_bytes, self._room):
            return
        for candidate in candidates:
            if limit.is_up():
                return
            in_git = candidate.folder.sources[candidate.position]
            candidate.folder.sources[candidate.position] = None
            self._copy_file(candidate)
            if candidate.folder.sources[candidate.position] is None:
                candidate.folder.sources[candidate.position] = in_git

    def close(self) -> None:
        if self.copies is not None:
            self.copies.close()
            self.copies = None

    def read(self, path: str, limit: int) -> bytes | str:
        """The content of a file, or the reason why it cannot be read."""
        self.reads += 1
        try:
            descriptor = os.open(path, READ_FLAGS)
            try:
                content = _read_all(descriptor, limit)
            finally:
                os.close(descriptor)
        except OSError as error:
            return error.strerror or "could not be read"
        return content if len(content) <= limit else too_large(limit)

    def copy_path(self, path: str, stamp: FileStamp) -> Source:
        """Copy a file in a certain state, whatever its size; None if it is in another state, or cannot be copied."""
        if self.copies is None:
            return None
        content = self.read(path, stamp.size)
        if not isinstance(content, bytes) or read_stamp(path) != stamp:
            return None
        self._room -= len(content)
        return self.copies.add(content)

    def keep_copy(self, folder: FolderState, position: int, content: bytes) -> None:
        """Copy a content that has just been read, so that the next snapshot need not read it."""
        if self.copies is None or len(content) > min(self._room, self.limits.file_bytes):
            return
        if folder.stamp(position).size == len(content) and folder.names[position] not in folder.fresh:
            folder.sources[position] = self.copies.add(content)
            self._room -= len(content)

    def contents(self, wanted: Iterable[tuple[str, FileStamp, Source, str]]) -> dict[str, bytes]:
        """The contents that files had, by path, as far as they are available; each wanted with its source and repository."""
        found: dict[str, bytes] = {}
        in_git: dict[str, dict[bytes, list[tuple[str, int]]]] = {}
        for path, stamp, source, repository in wanted:
            if isinstance(source, bytes):
                in_git.setdefault(repository, {}).setdefault(source, []).append((path, stamp.size))
            elif source is not None and self.copies is not None:
                try:
                    found[path] = self.copies.read(source, stamp.size)
                except (ContentUnavailable, OSError):
                    continue
        for repository, objects in in_git.items():
            for object_id, content in read_objects(repository, objects, self._env):
                # Of another size, it was converted on its way into the working tree.
                found.update((path, content) for path, size in objects[object_id] if size == len(content))
        return found


def _read_all(descriptor: int, limit: int) -> bytes:
    """All bytes, or one more than the limit."""
    content = os.read(descriptor, min(limit, os.fstat(descriptor).st_size) + 1)
    while len(content) <= limit and (more := os.read(descriptor, min(1 << 20, limit + 1 - len(content)))):
        content += more
    return content
