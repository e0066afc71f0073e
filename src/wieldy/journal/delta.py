"""A content told as a change of another one: what an edit of a large file adds to the journal is as small as the edit."""

from __future__ import annotations

import struct
import zlib

from wieldy.core.record import record
from wieldy.edit.splice import Splice

HEAD = struct.Struct("<20sQQ?")
FASTEST = 1
# More than this is better kept whole.
LARGEST = 1 << 14
WORTH_COMPRESSING = 1 << 9


@record
class Delta:
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
        head = HEAD.pack(self.base, self.start, self.end, not small)
        return head + (self.new if small else zlib.compress(self.new, FASTEST))


def delta_of(base: bytes, change: Splice, size: int) -> Delta | None:
    """How a content of so many bytes is told as a change of the one named `base`; None where that is no shorter than
    telling all of it."""
    if len(change.new) > min(LARGEST, size // 2):
        return None
    return Delta(base, change.start, change.end, change.new)


def read_delta(payload: bytes) -> Delta:
    """A delta as it lies in a file. Raises `zlib.error` where it is damaged."""
    base, start, end, compressed = HEAD.unpack_from(payload)
    new = payload[HEAD.size :]
    return Delta(base, start, end, zlib.decompress(new) if compressed else new)
