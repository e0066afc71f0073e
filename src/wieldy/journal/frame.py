"""How the journal lies in a file: frames one after another, each with a checked head, so that a torn end is seen."""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Iterator
from io import BufferedReader
from typing import Literal, TypeAlias

from wieldy.core.record import record

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


@record
class Frame:
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
