"""One file of the journal, read on as it grows. It holds all contents its entries name, so it can be dropped whole."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Mapping

from wieldy.core.failure import WieldyError
from wieldy.core.record import record
from wieldy.journal.delta import FASTEST, Delta, read_delta
from wieldy.journal.frame import HEAD_SIZE, Kind, digest_of, frames, packed
from wieldy.journal.record import BadRecord, Entry, Settled, decode_entry, decode_settled, encode

SUFFIX = ".journal"
# A content is at most so many changes away from one that is kept whole.
DEEPEST = 32


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


class Segment:
    """The frames of one file up to `end`: where each content lies, and the records in order. `following` is the path of
    the next one, if there is any.

    `pending` are the entries whose end is not recorded: under way, or cut off by a crash. `begun` is the time of the
    first entry. `torn` says that the file goes on behind `end` with something that is no frame.
    """

    def __init__(self, folder: str, number: int) -> None:
        self.number = number
        self.path = segment_path(folder, number)
        self.following = segment_path(folder, number + 1)
        self.end = 0
        self.torn = False
        self.begun: float | None = None
        self.blobs: dict[bytes, Kept] = {}
        self.records: list[Entry | Settled] = []
        self.pending: dict[str, Entry] = {}

    def read_on(self) -> bool:
        """Take in what was appended since; whether the file is still there."""
        try:
            size = os.stat(self.path).st_size
        except OSError:
            return False  # or out of reach, which whoever wants to write will be told
        self.torn = size > self.end
        if not self.torn:
            return True
        try:
            with open(self.path, "rb") as file:
                for frame in frames(file, self.end, size):
                    self.end = frame.start + frame.size
                    if frame.kind == "blob" or frame.payload is None:
                        self.blobs[frame.digest] = Kept(frame.start, frame.size)
                    elif frame.kind == "delta":
                        self._take_delta(frame.digest, frame.start, frame.size, frame.payload)
                    else:
                        self._take(frame.kind == "entry", frame.payload)
            self.torn = size > self.end
        except FileNotFoundError:
            return False
        return True

    def pieces(self, contents: Mapping[bytes, bytes], deltas: Mapping[bytes, Delta]) -> dict[bytes, Piece]:
        """The contents that are not kept here, made ready; `deltas` tell some of them as changes of others."""
        made: dict[bytes, Piece] = {}
        for digest, data in contents.items():
            if digest not in self.blobs:
                made[digest] = self._told(deltas.get(digest), made) or whole(data)
        return made

    def extended(self, pieces: Mapping[bytes, Piece], record: Entry | Settled) -> tuple[bytes, dict[bytes, Kept]]:
        """What an append adds to the file, and where its contents will lie."""
        data: list[bytes] = []
        places: dict[bytes, Kept] = {}
        at = self.end
        for digest, piece in pieces.items():
            if digest not in self.blobs:
                size = len(piece.payload)
                data.append(packed(piece.kind, piece.payload, digest))
                places[digest] = Kept(at + HEAD_SIZE, size, piece.base, piece.depth)
                at += HEAD_SIZE + size
        data.append(packed("entry" if isinstance(record, Entry) else "settled", encode(record)))
        return b"".join(data), places

    def grew(self, by: int, places: Mapping[bytes, Kept], record: Entry | Settled) -> None:
        """Take in what this process has just appended."""
        self.end += by
        self.blobs.update(places)
        self._note(record)

    def content(self, digest: bytes) -> bytes:
        """A content, checked against its name."""
        try:
            data = self._assembled(digest)
        except FileNotFoundError:
            raise Unreadable("the journal no longer keeps this content: it was too old or too large") from None
        except (zlib.error, struct.error, KeyError):
            data = None
        if data is None or digest_of(data) != digest:
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

    def _take_delta(self, digest: bytes, start: int, size: int, base: bytes) -> None:
        known = self.blobs.get(base)
        if known is not None:  # a change of what is lost is lost too, unless it is added again
            self.blobs[digest] = Kept(start, size, base, known.depth + 1)

    def _take(self, is_entry: bool, payload: bytes) -> None:
        try:
            self._note(decode_entry(payload) if is_entry else decode_settled(payload))
        except BadRecord:
            return  # of a later version: what cannot be understood is left alone

    def _note(self, record: Entry | Settled) -> None:
        self.records.append(record)
        if isinstance(record, Settled):
            self.pending.pop(record.entry, None)
            return
        if self.begun is None:
            self.begun = record.at
        if record.kind != "snapshot":
            self.pending[record.id] = record


def whole(data: bytes) -> Piece:
    """A content that stands by itself."""
    return Piece("blob", zlib.compress(data, FASTEST))
