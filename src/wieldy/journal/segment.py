"""One file of the journal, read on as it grows. It holds all contents its entries name, so it can be dropped whole.

Behind its last frame there may be room for more: zeros. What is written there changes neither the size of the file nor where it
lies, so that a medium has nothing to keep but the frame itself.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Collection, Iterator, Mapping

from wieldy.core.failure import WieldyError
from wieldy.core.record import record
from wieldy.journal.delta import FASTEST, Delta, read_delta
from wieldy.journal.frame import HEAD_SIZE, MARK_SIZE, Kind, digest_of, frames, packed
from wieldy.journal.record import BadRecord, Entry, Settlement, decode, encode

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


@record
class Kept:
    """Where a content lies: whole, or as a change of another one, and then how many changes away from a whole one."""

    start: int
    size: int
    base: bytes | None = None
    depth: int = 0


@record
class Piece:
    """A content about to be added, as it will lie in the file."""

    kind: Kind
    payload: bytes
    base: bytes | None = None
    depth: int = 0


@record
class Extension:
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
