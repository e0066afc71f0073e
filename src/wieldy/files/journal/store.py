"""The journal on disk: contents kept once and compressed, entries in order, both made durable by one append.

A folder of numbered files. Only the last one grows; writers take turns by a lock, readers need none.
"""

from __future__ import annotations

import hashlib
import os
import re
import struct
import threading
import time
import zlib
from collections import OrderedDict
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from contextlib import suppress
from hashlib import blake2b
from io import BufferedReader
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct

from wieldy.core.errors import WieldyError
from wieldy.core.state_dirs import state_home
from wieldy.core.workspace import Workspace
from wieldy.files.editing.splicing import Splice, diff_bytes
from wieldy.files.journal.entries import BadRecord, Change, Entry, PathRecord, Settlement, decode, encode
from wieldy.files.journal.locks import Held
from wieldy.files.writing.disk import LOCAL_DISK, Disk, pwrite_all, sync_folder
from wieldy.files.writing.target import FileWrite, split_path

if TYPE_CHECKING:
    from hashlib import _Hash as Hash


Kind: TypeAlias = Literal["blob", "entry", "delta"]

MAGIC = b"wjf3"
HEAD = struct.Struct("<4sB3xQ20s")
HASH = hashlib.sha256  # processors compute this one themselves
NAME_SIZE = 20
# An entry begins with a mark that is written over when it has ended.
MARK_SIZE = 1
CHECK = struct.Struct("<I")
HEAD_SIZE = HEAD.size + CHECK.size
CODES: dict[Kind, int] = {"blob": 1, "entry": 2, "delta": 4}
KINDS: dict[int, Kind] = {code: kind for kind, code in CODES.items()}


class Frame(Struct, frozen=True):
    """One frame found in a file. The payload of a content (a blob or a delta) is not read, save where it begins with
    the name of another; `start` says where it lies."""

    kind: Kind
    digest: bytes
    start: int
    size: int
    payload: bytes | None = None


def digest_of(data: bytes) -> bytes:
    """The name of a content."""
    return HASH(data).digest()[:NAME_SIZE]


def packed(kind: Kind, payload: bytes, digest: bytes) -> bytes:
    """A frame as bytes. The digest of a blob or delta is that of its content, of an entry that of what follows its mark."""
    head = HEAD.pack(MAGIC, CODES[kind], len(payload), digest)
    return head + CHECK.pack(zlib.crc32(head)) + payload


def frames(file: BufferedReader, start: int, end: int) -> Iterator[Frame]:
    """The whole frames between two offsets. Damage in between is stepped over; what is torn at the end is not given."""
    at = start
    while at + HEAD_SIZE <= end:
        file.seek(at)
        frame = _frame(file.read(HEAD_SIZE), at, end)
        if frame is None:
            following = _next_magic(file, at + 1, end)
            if following is None:
                return
            at = following
            continue
        if frame.kind == "blob":
            yield frame
        elif frame.kind == "delta":
            yield Frame(frame.kind, frame.digest, frame.start, frame.size, file.read(min(frame.size, NAME_SIZE)))
        else:
            payload = file.read(frame.size)
            if digest_of(payload[MARK_SIZE:]) == frame.digest:
                yield Frame(frame.kind, frame.digest, frame.start, frame.size, payload)
        at = frame.start + frame.size


def _frame(head: bytes, at: int, end: int) -> Frame | None:
    if len(head) < HEAD_SIZE or zlib.crc32(head[: HEAD.size]) != CHECK.unpack_from(head, HEAD.size)[0]:
        return None
    magic, code, size, digest = HEAD.unpack_from(head)
    start = at + HEAD_SIZE
    if magic != MAGIC or code not in KINDS or start + size > end:
        return None
    return Frame(KINDS[code], digest, start, size)


def _next_magic(file: BufferedReader, at: int, end: int) -> int | None:
    step = 1 << 20
    while at < end:
        file.seek(at)
        piece = file.read(min(step + len(MAGIC) - 1, end - at))
        found = piece.find(MAGIC)
        if found >= 0:
            return at + found
        at += step
    return None


HEAD_DELTA = struct.Struct("<20sQQ?")
FASTEST = 1
# More than this is better kept whole.
LARGEST = 1 << 14
WORTH_COMPRESSING = 1 << 9


class Delta(Struct, frozen=True):
    """The content named `base`, with its bytes from `start` to `end` replaced."""

    base: bytes
    start: int
    end: int
    new: bytes

    def applied(self, content: bytes) -> bytes:
        """The content that the base becomes."""
        view = memoryview(content)
        return b"".join((view[: self.start], self.new, view[self.end :]))

    def packed(self) -> bytes:
        """This delta as it lies in a file."""
        small = len(self.new) < WORTH_COMPRESSING
        head = HEAD_DELTA.pack(self.base, self.start, self.end, not small)
        return head + (self.new if small else zlib.compress(self.new, FASTEST))


def delta_of(base: bytes, change: Splice, size: int) -> Delta | None:
    """How a content of so many bytes is told as a change of the one named `base`; None where that is no shorter than
    telling all of it."""
    if len(change.new) > min(LARGEST, size // 2):
        return None
    return Delta(base, change.start, change.end, change.new)


def read_delta(payload: bytes) -> Delta:
    """A delta as it lies in a file. Raises `zlib.error` where it is damaged."""
    base, start, end, compressed = HEAD_DELTA.unpack_from(payload)
    new = payload[HEAD_DELTA.size :]
    return Delta(base, start, end, zlib.decompress(new) if compressed else new)


SUFFIX = ".journal"
# A content is at most so many changes away from one that is kept whole.
DEEPEST = 32
READ_AT_ONCE = 1 << 18
UNDER_WAY = b"-"
MARKS: dict[Settlement, bytes] = {"done": b"d", "taken_back": b"t", "given_up": b"g"}
ENDS: dict[bytes, Settlement] = {mark: how for how, mark in MARKS.items()}


def segment_path(folder: str, number: int) -> str:
    """Where the file of a number lies."""
    return f"{folder}/{number:06d}{SUFFIX}"


class Unreadable(WieldyError):
    """A content that the journal no longer has, or has only damaged."""


class Kept(Struct, frozen=True):
    """Where a content lies: whole, or as a change of another one, and then how many changes away from a whole one."""

    start: int
    size: int
    base: bytes | None = None
    depth: int = 0


class Piece(Struct, frozen=True):
    """A content about to be added, as it will lie in the file."""

    kind: Kind
    payload: bytes
    base: bytes | None = None
    depth: int = 0


class Extension(Struct, frozen=True):
    """What an append adds to the file: where its contents will lie, and the mark of its entry."""

    data: bytes
    contents: Mapping[bytes, Kept]
    mark: int


class Segment:
    """The frames of one file up to `end`: where each content lies, and the entries in order. `following` is the path of
    the next one, if there is any.

    `size` is that of the file as it was last seen, `begun` the time of the first entry. `torn` says that the file goes on
    behind `end` with something that is neither an entry with its contents nor room for one.
    """

    def __init__(self, folder: str, number: int) -> None:
        self.number = number
        self.path = segment_path(folder, number)
        self.following = segment_path(folder, number + 1)
        self.end = 0
        self.size = 0
        self.torn = False
        self.begun: float | None = None
        self.blobs: dict[bytes, Kept] = {}
        self._entries: dict[str, Entry] = {}
        self._ends: dict[str, Settlement] = {}
        self._marks: dict[str, int] = {}
        self._identity: tuple[int, int] | None = None

    @property
    def entries(self) -> Iterator[tuple[Entry, Settlement | None]]:
        """The entries in order, and how each ended."""
        return ((entry, self._ends.get(name)) for name, entry in self._entries.items())

    @property
    def under_way(self) -> Collection[str]:
        """The names of the entries that have not ended, though a crash may have cut them off."""
        return self._marks.keys()

    @property
    def pending(self) -> dict[str, Entry]:
        """The entries that have not ended."""
        return {name: self._entries[name] for name in self._marks}

    def read_on(self) -> bool:
        """Take in what was written since; whether the file is still there."""
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            return False  # or out of reach, which whoever wants to write will be told
        try:
            return self.read_from(fd)
        finally:
            os.close(fd)

    def read_from(self, fd: int) -> bool:
        """Take in what was written since to the file, which is open; whether it still is the same one."""
        stat = os.fstat(fd)
        size, identity = stat.st_size, (stat.st_dev, stat.st_ino)
        if size < self.end or self._identity not in (None, identity):
            return False
        self.size, self._identity = size, identity
        for name, mark in list(self._marks.items()):
            self.ended(name, ENDS.get(os.pread(fd, MARK_SIZE, mark)))
        if self.end and not os.pread(fd, HEAD_SIZE, self.end).strip(b"\0"):
            return True  # no frame begins like that
        contents: dict[bytes, Kept] = {}
        with open(fd, "rb", closefd=False) as file:
            for frame in frames(file, self.end, size):
                if frame.kind == "blob" or frame.payload is None:
                    contents[frame.digest] = Kept(frame.start, frame.size)
                elif frame.kind == "delta":
                    self._take_delta(frame.digest, frame.start, frame.size, frame.payload, contents)
                else:
                    # Contents whose entry never came may be in pieces themselves.
                    self.blobs.update(contents)
                    contents.clear()
                    self._take(frame.payload, frame.start)
                    self.end = frame.start + frame.size
        self.torn = not _is_room(fd, self.end, size)
        return True

    def pieces(self, contents: Mapping[bytes, bytes], deltas: Mapping[bytes, Delta]) -> dict[bytes, Piece]:
        """The contents that are not kept here, made ready; `deltas` tell some of them as changes of others."""
        made: dict[bytes, Piece] = {}
        for digest, data in contents.items():
            if digest not in self.blobs:
                made[digest] = self._told(deltas.get(digest), made) or whole(data)
        return made

    def extended(self, pieces: Mapping[bytes, Piece], entry: Entry, mark: bytes) -> Extension:
        """What an append adds to the file."""
        data: list[bytes] = []
        places: dict[bytes, Kept] = {}
        at = self.end
        for digest, piece in pieces.items():
            if digest not in self.blobs:
                size = len(piece.payload)
                data.append(packed(piece.kind, piece.payload, digest))
                places[digest] = Kept(at + HEAD_SIZE, size, piece.base, piece.depth)
                at += HEAD_SIZE + size
        told = encode(entry)
        data.append(packed("entry", mark + told, digest_of(told)))
        return Extension(b"".join(data), places, at + HEAD_SIZE)

    def grew(self, by: Extension, entry: Entry, mark: bytes) -> None:
        """Take in what this process has just appended."""
        self.end += len(by.data)
        self.blobs.update(by.contents)
        self._note(entry, by.mark, mark)

    def mark_of(self, name: str) -> int | None:
        """Where it will be written how an entry ended; None where that is known."""
        return self._marks.get(name)

    def ended(self, name: str, how: Settlement | None) -> None:
        """Take in how an entry ended, if it did."""
        if how is not None and self._marks.pop(name, None) is not None:
            self._ends[name] = how

    def content(self, digest: bytes) -> bytes:
        """A content, checked against its name."""
        try:
            data = self._assembled(digest)
        except FileNotFoundError:
            raise Unreadable("the journal no longer keeps this content: it was too old or too large") from None
        except (zlib.error, struct.error, KeyError):
            data = None
        if data is None or digest_of(data) != digest:
            self.blobs.pop(digest, None)  # so that it is added anew if it comes up again
            raise Unreadable(f"the journal's copy {digest.hex()[:12]} in {self.path} is damaged")
        return data

    def _assembled(self, digest: bytes) -> bytes:
        changes = []
        with open(self.path, "rb") as file:
            kept = self.blobs[digest]
            while True:
                file.seek(kept.start)
                payload = file.read(kept.size)
                if kept.base is None:
                    break
                changes.append(read_delta(payload))
                kept = self.blobs[kept.base]
        data = zlib.decompress(payload)
        for change in reversed(changes):
            data = change.applied(data)
        return data

    def _told(self, delta: Delta | None, made: Mapping[bytes, Piece]) -> Piece | None:
        """A content as a change, where what it is a change of is at hand and not too deep itself."""
        known = None if delta is None else self.blobs.get(delta.base) or made.get(delta.base)
        if delta is None or known is None or known.depth >= DEEPEST:
            return None
        return Piece("delta", delta.packed(), delta.base, known.depth + 1)

    def _take_delta(self, digest: bytes, start: int, size: int, base: bytes, contents: dict[bytes, Kept]) -> None:
        known = contents.get(base) or self.blobs.get(base)
        if known is not None:  # a change of what is lost is lost too, unless it is added again
            contents[digest] = Kept(start, size, base, known.depth + 1)

    def _take(self, payload: bytes, start: int) -> None:
        try:
            self._note(decode(payload[MARK_SIZE:]), start, payload[:MARK_SIZE])
        except BadRecord:
            return  # of a later version: what cannot be understood is left alone

    def _note(self, entry: Entry, at: int, mark: bytes) -> None:
        self._entries[entry.id] = entry
        self._marks[entry.id] = at
        self.ended(entry.id, ENDS.get(mark))
        if self.begun is None:
            self.begun = entry.at


def _is_room(fd: int, at: int, end: int) -> bool:
    """Whether there are only zeros between two offsets."""
    while at < end:
        piece = os.pread(fd, min(READ_AT_ONCE, end - at), at)
        if piece.strip(b"\0"):
            return False
        if not piece:
            break
        at += len(piece)
    return True


def whole(data: bytes) -> Piece:
    """A content that stands by itself."""
    return Piece("blob", zlib.compress(data, FASTEST))


SEGMENT_BYTES = 16 << 20
ROOM_BYTES = 1 << 16
LEAST_ROOM = 1 << 12
SEGMENT_SECONDS = 86_400.0


class Unsettled(WieldyError):
    """There are entries whose writers may have died."""


class Added:
    """An entry that is in the file, and on the medium once `sync` has returned. To be closed by whoever began it."""

    def __init__(self, store: Store, segment: Segment, name: str, fd: int) -> None:
        self._store = store
        self._segment = segment
        self._name = name
        self._fd = fd

    def sync(self) -> None:
        """Wait for the medium."""
        self._store.disk.sync_content(self._fd)

    def settle(self, how: Settlement) -> None:
        """Write down how it ended. No medium is waited for."""
        self._store.settle(self._name, how, self._segment, self._fd)

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._fd)


class Store:
    """Append and look up. Safe for many threads and processes at once."""

    def __init__(
        self,
        folder: Path,
        *,
        disk: Disk = LOCAL_DISK,
        segment_bytes: int = SEGMENT_BYTES,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.folder = folder
        self._place = str(folder)
        self._lock = f"{folder}/lock"
        self.disk = disk
        self._segment_bytes = segment_bytes
        self._clock = clock
        self._mutex = threading.RLock()
        self._segments: dict[int, Segment] = {}

    def append(
        self, entry: Entry, contents: Mapping[bytes, bytes], deltas: Mapping[bytes, Delta] = MappingProxyType({})
    ) -> None:
        """Add an entry of what is already done, after the contents it names, and wait for the medium; `deltas` tell some
        contents as changes of others. On failure nothing is added."""
        self._add(entry, contents, deltas, MARKS["done"], durable=True).close()

    def begin(
        self,
        entry: Entry,
        contents: Mapping[bytes, bytes],
        deltas: Mapping[bytes, Delta] = MappingProxyType({}),
        beside: Container[str] | None = None,
    ) -> Added:
        """Add an entry of what is about to be done in the same way, without waiting for the medium. With `beside`, raises
        `Unsettled` where others than these are under way."""
        return self._add(entry, contents, deltas, UNDER_WAY, beside=beside)

    def settle(self, name: str, how: Settlement, segment: Segment, fd: int) -> None:
        """Write down how an entry ended that was added to a file, which is open."""
        with self._mutex:
            self._mark(segment, fd, name, how)
        if os.access(segment.following, os.F_OK):
            self.settle_last(name, how)  # whoever made that file may have taken the entry along before
        else:
            self._make_room(segment, fd)

    def settle_last(self, name: str, how: Settlement) -> None:
        """Write down how an entry ended that is under way, to judge by the last file."""
        with self._mutex, Held((self._lock,)):
            if (last := self._last(os.O_RDWR)) is None:
                return
            segment, fd = last
            try:
                self._mark(segment, fd, name, how)
            finally:
                os.close(fd)

    def refresh(self) -> dict[str, Entry]:
        """Take in what other processes have written to the last file; the entries in it that have not ended."""
        with self._mutex:
            try:
                last = self._last(os.O_RDONLY)
            except PermissionError:
                return {}  # whoever wants to write is told when it fails
            if last is None:
                return {}
            os.close(last[1])
            return last[0].pending

    def entries(self) -> Iterator[tuple[Entry, Settlement | None]]:
        """Everything that is kept, oldest first, and how each ended."""
        with self._mutex:
            segments = map(self._read, self._numbers())
            return chain.from_iterable([list(segment.entries) for segment in segments])

    def content(self, name: str) -> bytes:
        """The content of this name (a digest in hexadecimal)."""
        digest = bytes.fromhex(name)
        with self._mutex:
            for _, segment in sorted(self._segments.items(), reverse=True):
                if digest in segment.blobs:
                    return segment.content(digest)
        raise Unreadable("the journal no longer keeps this content: it was too old or too large")

    def sizes(self) -> list[tuple[Path, int, float]]:
        """The files that are complete, oldest first, with size and time of the last change."""
        paths = [Path(segment_path(self._place, number)) for number in self._numbers()][:-1]
        return [(path, stat.st_size, stat.st_mtime) for path in paths for stat in (path.stat(),)]

    def drop(self, paths: list[Path]) -> None:
        """Forget whole files of the past."""
        with self._mutex, Held((self._lock,)):
            for path in paths:
                with suppress(FileNotFoundError):
                    self.disk.unlink(str(path))
            gone = set(map(str, paths))
            self._segments = {n: segment for n, segment in self._segments.items() if segment.path not in gone}

    def _add(
        self,
        entry: Entry,
        contents: Mapping[bytes, bytes],
        deltas: Mapping[bytes, Delta],
        mark: bytes,
        *,
        durable: bool = False,
        beside: Container[str] | None = None,
    ) -> Added:
        foreseen, pieces = self._made_ready(contents, deltas)
        with self._mutex, Held((self._lock,)):
            segment, fd = self._current()
            try:
                if beside is not None and any(name not in beside for name in segment.under_way):
                    raise Unsettled
                if segment is not foreseen:
                    pieces = segment.pieces(contents, deltas)
                self._extend(segment, fd, pieces, entry, mark, durable=durable)
            except BaseException:
                os.close(fd)
                raise
            return Added(self, segment, entry.id, fd)

    def _current(self) -> tuple[Segment, int]:
        """The file to append to, open, its torn end cut off; a new one when it is full or old."""
        last = self._last(os.O_RDWR)
        if last is None:
            return self._begin(1)
        segment, fd = last
        try:
            if segment.torn:
                self._cut(segment, fd)
            old = segment.begun is not None and self._clock() - segment.begun >= SEGMENT_SECONDS
            return self._followed(segment, fd) if old or segment.end >= self._segment_bytes else last
        except BaseException:
            os.close(fd)
            raise

    def _followed(self, segment: Segment, fd: int) -> tuple[Segment, int]:
        """The file that comes after one, which is closed; what is still under way moves on with its contents."""
        following, new = self._begin(segment.number + 1)
        try:
            segment.read_from(fd)  # from now on, who ends an entry sees that there is another file
            for entry in segment.pending.values():
                self._carry(entry, segment, following, new)
            with suppress(OSError):
                self._cut(segment, fd)  # nobody will need the room in it
        except BaseException:
            os.close(new)
            raise
        os.close(fd)
        return following, new

    def _cut(self, segment: Segment, fd: int) -> None:
        """Have a file end with its last frame."""
        self.disk.truncate(fd, segment.end)
        segment.torn = False

    def _carry(self, entry: Entry, old: Segment, new: Segment, fd: int) -> None:
        """Recovery looks at the last file alone: it must have all that it takes."""
        names = {name for path in entry.paths for name in (path.before, path.after) if name is not None}
        pieces: dict[bytes, Piece] = {}
        for digest in map(bytes.fromhex, sorted(names)):
            with suppress(Unreadable):  # recovery will say so
                pieces[digest] = whole(old.content(digest))
        self._extend(new, fd, pieces, entry, UNDER_WAY, durable=True)

    def _begin(self, number: int) -> tuple[Segment, int]:
        segment = self._segments[number] = Segment(self._place, number)
        new = self.disk.open(segment.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        try:
            folder = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                sync_folder(self.disk, folder)
            finally:
                os.close(folder)
        except BaseException:
            os.close(new)
            raise
        return segment, new

    def _extend(
        self, segment: Segment, fd: int, pieces: Mapping[bytes, Piece], entry: Entry, mark: bytes, *, durable: bool
    ) -> None:
        addition = segment.extended(pieces, entry, mark)
        try:
            pwrite_all(self.disk, fd, addition.data, segment.end)
            if durable:
                self.disk.sync_content(fd)
        except BaseException:
            with suppress(OSError):
                self.disk.truncate(fd, segment.end)
            raise
        segment.grew(addition, entry, mark)

    def _mark(self, segment: Segment, fd: int, name: str, how: Settlement) -> None:
        at = segment.mark_of(name)
        if at is not None:
            pwrite_all(self.disk, fd, MARKS[how], at)
            segment.ended(name, how)

    def _make_room(self, segment: Segment, fd: int) -> None:
        """Have room for some entries more, so that it takes less to sync them. Made when one has ended, for nobody waits
        for the medium then, and nothing that is under way can lack the space."""
        if segment.size >= segment.end + LEAST_ROOM:
            return
        with self._mutex, Held((self._lock,)):
            if segment.read_from(fd) and not segment.torn and segment.size < segment.end + LEAST_ROOM:
                self.disk.lengthen(fd, segment.size, segment.end + ROOM_BYTES - segment.size)

    def _made_ready(
        self, contents: Mapping[bytes, bytes], deltas: Mapping[bytes, Delta]
    ) -> tuple[Segment | None, Mapping[bytes, Piece]]:
        """The contents as they would be added to the file that is the last one now, so that nobody has to wait while
        they are compressed."""
        with self._mutex:
            segment = self._segments[max(self._segments)] if self._segments else None
        return segment, {} if segment is None else segment.pieces(contents, deltas)

    def _last(self, flags: int) -> tuple[Segment, int] | None:
        """The last file, read to its end, and a descriptor of it, which is the caller's to close."""
        last = self._segments[max(self._segments)] if self._segments else None
        fd = None if last is None else self._reached(last, flags)
        if last is None or fd is None:
            self._segments.clear()  # where there was one, someone removed the journal: begin anew
            numbers = self._numbers()
            if not numbers:
                return None
            last = self._segments[numbers[-1]] = Segment(self._place, numbers[-1])
            fd = self._reached(last, flags)
        while fd is not None and os.access(last.following, os.F_OK):
            os.close(fd)
            last = self._segments[last.number + 1] = Segment(self._place, last.number + 1)
            fd = self._reached(last, flags)
        return None if fd is None else (last, fd)

    def _reached(self, segment: Segment, flags: int) -> int | None:
        """A descriptor of a file, which was read to its end; None where it is gone, or another one than was known."""
        opened = os.open if flags == os.O_RDONLY else self.disk.open
        try:
            fd = opened(segment.path, flags | os.O_NOFOLLOW | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            return None
        try:
            if segment.read_from(fd):
                return fd
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)
        return None

    def _read(self, number: int) -> Segment:
        """The file of a number, read to its end; another one than was known by that number is read anew."""
        known = self._segments.get(number)
        if known is None or not known.read_on():
            known = self._segments[number] = Segment(self._place, number)
            known.read_on()
        return known

    def _numbers(self) -> list[int]:
        try:
            names = os.listdir(self.folder)
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            return []  # whoever wants to write is told when it fails
        return sorted(int(name[: -len(SUFFIX)]) for name in names if name.endswith(SUFFIX))


REMEMBERED = 32
LARGEST_NAMES = 1 << 20
STRIDE = 1 << 14


class Named(Struct, frozen=True):
    """A content's name, and the states that its hash went through: after each stride, unless the content is large."""

    name: bytes
    states: tuple[Hash, ...]


class Names:
    """Hashes contents, and remembers the last one at each of some paths."""

    def __init__(self) -> None:
        self._last: OrderedDict[str, tuple[bytes, Named]] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, path: str, data: bytes) -> Named:
        """The name of what is, or will be, at a path."""
        known = self._last.get(path)
        return known[1] if known is not None and known[0] == data else self._hashed(path, data, ())

    def of_next(self, path: str, data: bytes, last: Named, alike: int) -> Named:
        """The name of what will be there instead of `last`, where the first `alike` bytes stay the same."""
        return self._hashed(path, data, last.states[: alike // STRIDE])

    def _hashed(self, path: str, data: bytes, states: tuple[Hash, ...]) -> Named:
        """Go on from the last of some states, and remember what comes of it."""
        if len(data) > LARGEST_NAMES:
            return Named(digest_of(data), ())
        going = states[-1].copy() if states else HASH()
        passed, rest = list(states), memoryview(data)[len(states) * STRIDE :]
        for start in range(0, len(rest) - STRIDE + 1, STRIDE):
            going.update(rest[start : start + STRIDE])
            passed.append(going.copy())
        going.update(rest[len(rest) // STRIDE * STRIDE :])
        named = Named(going.digest()[:NAME_SIZE], tuple(passed))
        with self._lock:
            self._last[path] = data, named
            self._last.move_to_end(path)
            if len(self._last) > REMEMBERED:
                self._last.popitem(last=False)
        return named


def journal_folder(workspace: Workspace) -> Path:
    """The folder of a workspace's journal; it exists once something was changed."""
    return state_home(workspace.env) / "journal" / project_key(workspace.root)


def project_key(root: str) -> str:
    """The name of a project's folder in the journal: readable, and its own."""
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", os.path.basename(root)).strip("-.")[:40] or "root"
    return f"{readable}-{blake2b(os.fsencode(Path(root)), digest_size=6).hexdigest()}"


class Account(Struct, frozen=True):
    """What is recorded of some files; every content that the records name, by digest; and those told as changes of others."""

    paths: tuple[PathRecord, ...]
    contents: Mapping[bytes, bytes]
    deltas: Mapping[bytes, Delta]

    @property
    def size(self) -> int:
        """The bytes of all contents together."""
        return sum(map(len, self.contents.values()))


def planned(steps: Iterable[FileWrite], names: Names) -> Account:
    """The account of what is about to be written."""
    ledger = _Ledger(names)
    paths: list[PathRecord] = []
    for step in steps:
        before, after = ledger.entered(step.real_path, step.before, step.after, step.splice)
        paths.append(
            PathRecord(
                path=step.path,
                real_path=step.real_path,
                before=before,
                after=after,
                mode=step.mode,
                method=step.method,
                temp=step.temp,
                backup=step.backup,
                folders=step.folders,
            )
        )
    return Account(tuple(paths), ledger.contents, ledger.deltas)


def happened(changes: Iterable[Change], names: Names) -> Account:
    """The account of what someone else has already done."""
    ledger = _Ledger(names)
    paths = tuple(
        PathRecord(path=change.path, real_path=real, before=before, after=after, mode=change.mode)
        for change in changes
        if change.before != change.after
        for real in (change.real_path or os.path.realpath(change.path),)
        for before, after in (ledger.entered(real, change.before, change.after, change.splice),)
    )
    return Account(paths, ledger.contents, ledger.deltas)


class _Ledger:
    """Gathers contents under their names."""

    def __init__(self, names: Names) -> None:
        self.contents: dict[bytes, bytes] = {}
        self.deltas: dict[bytes, Delta] = {}
        self._names = names

    def entered(
        self, path: str, before: bytes | None, after: bytes | None, change: Splice | None
    ) -> tuple[str | None, str | None]:
        """The names of a file's content before and after; `change` leads from one to the other, if it keeps its word."""
        if before is None or after is None:
            return self._named(path, before), self._named(path, after)
        if change is None or not _leads(change, before, after):
            change = diff_bytes(before, after)
        old = self._names.of(path, before)
        new = self._names.of_next(path, after, old, change.start)
        self.contents[old.name], self.contents[new.name] = before, after
        delta = delta_of(old.name, change, len(after))
        if delta is not None:
            self.deltas.setdefault(new.name, delta)
        return old.name.hex(), new.name.hex()

    def _named(self, path: str, data: bytes | None) -> str | None:
        if data is None:
            return None
        name = self._names.of(path, data).name
        self.contents[name] = data
        return name.hex()


def _leads(change: Splice, before: bytes, after: bytes) -> bool:
    """Whether a splice turns one content into the other, and lies within it."""
    start, end, view = change.start, change.end, memoryview(after)
    if not 0 <= start <= end <= len(before) or len(after) != len(before) + change.growth:
        return False
    rest = start + len(change.new)
    return (
        before.startswith(view[:start]) and after.startswith(change.new, start) and before.startswith(view[rest:], end)
    )


def step_of(record: PathRecord, store: Store) -> FileWrite:
    """The step that a record tells of."""
    folder, name = split_path(record.real_path)
    return FileWrite(
        path=record.path,
        real_path=record.real_path,
        folder=folder,
        name=name,
        method=record.method,
        before=None if record.before is None else store.content(record.before),
        after=None if record.after is None else store.content(record.after),
        temp=record.temp,
        backup=record.backup,
        folders=record.folders,
        mode=record.mode,
    )
