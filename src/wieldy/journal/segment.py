"""One file of the journal, read on as it grows. It holds all contents its entries name, so it can be dropped whole."""

from __future__ import annotations

import os
import zlib

from wieldy.core.failure import WieldyError
from wieldy.journal.frame import digest_of, frames
from wieldy.journal.record import BadRecord, Entry, Settled, decode_entry, decode_settled

SUFFIX = ".journal"


def segment_path(folder: str, number: int) -> str:
    """Where the file of a number lies."""
    return f"{folder}/{number:06d}{SUFFIX}"


class Unreadable(WieldyError):
    """A content that the journal no longer has, or has only damaged."""


class Segment:
    """The frames of one file up to `end`: where each content lies, and the records in order.

    `pending` are the entries whose end is not recorded: under way, or cut off by a crash.
    """

    def __init__(self, folder: str, number: int) -> None:
        self.number = number
        self.path = segment_path(folder, number)
        self.end = 0
        self.blobs: dict[bytes, tuple[int, int]] = {}
        self.records: list[Entry | Settled] = []
        self.pending: dict[str, Entry] = {}

    def read_on(self) -> int:
        """Take in what was appended since; the size of the file, torn end included. A file that is gone has none."""
        try:
            size = os.stat(self.path).st_size
            if size == self.end:
                return size
            with open(self.path, "rb") as file:
                for frame in frames(file, self.end, size):
                    self.end = frame.start + frame.size
                    if frame.payload is None:
                        self.blobs[frame.digest] = frame.start, frame.size
                    else:
                        self._take(frame.kind == "entry", frame.payload)
        except FileNotFoundError:
            return 0
        return size

    def packed(self, digest: bytes) -> bytes:
        """A content as it lies in the file."""
        start, size = self.blobs[digest]
        try:
            with open(self.path, "rb") as file:
                file.seek(start)
                return file.read(size)
        except FileNotFoundError:
            raise Unreadable("the journal no longer keeps this content: it was too old or too large") from None

    def content(self, digest: bytes) -> bytes:
        """A content, checked against its name."""
        try:
            data = zlib.decompress(self.packed(digest))
        except zlib.error:
            data = None
        if data is None or digest_of(data) != digest:
            raise Unreadable(f"the journal's copy {digest.hex()[:12]} in {self.path} is damaged")
        return data

    def _take(self, is_entry: bool, payload: bytes) -> None:
        try:
            record = decode_entry(payload) if is_entry else decode_settled(payload)
        except BadRecord:
            return  # of a later version: what cannot be understood is left alone
        self.records.append(record)
        if isinstance(record, Settled):
            self.pending.pop(record.entry, None)
        elif record.kind != "snapshot":
            self.pending[record.id] = record
