"""The body of an answer, unpacked as it arrives and never beyond a limit, however small it was made to look."""

from __future__ import annotations

import zlib
from typing import Protocol

from wieldy.core.failure import ToolFailure


class Unpacker(Protocol):
    """Takes bytes as they arrive."""

    def feed(self, data: bytes, most: int) -> bytes:
        """What they unpack to, at most `most` bytes; nothing may be fed after less came out than there was."""
        ...


class Plain:
    """A body that is not packed."""

    def feed(self, data: bytes, most: int) -> bytes:
        """The bytes themselves."""
        return data[:most]


class Packed:
    """gzip, or deflate with or without the header that some servers leave out."""

    def __init__(self, encoding: str) -> None:
        self._inflate = zlib.decompressobj(zlib.MAX_WBITS | 32)
        self._may_be_raw = encoding == "deflate"
        self._head = b""

    def feed(self, data: bytes, most: int) -> bytes:
        """Unpack some more."""
        if most <= 0 or self._inflate.eof:
            return b""
        if self._may_be_raw:
            # Two bytes tell whether there is a header; before that nothing may be given away.
            data, self._head = self._head + data, self._head + data
            if len(data) < 2:
                return b""
        try:
            unpacked = self._inflate.decompress(data, most)
        except zlib.error as error:
            if not self._may_be_raw:
                raise ToolFailure(f"The server sent a damaged answer: {error}.") from None
            self._may_be_raw, self._inflate = False, zlib.decompressobj(-zlib.MAX_WBITS)
            return self.feed(data, most)
        self._may_be_raw = False
        return unpacked


def unpacker(encoding: str) -> Unpacker:
    """What unpacks a body of this `Content-Encoding`."""
    match encoding.strip().lower():
        case "" | "identity":
            return Plain()
        case "gzip" | "x-gzip" | "deflate" as packed:
            return Packed(packed)
        case unknown:
            raise ToolFailure(f"The server packed its answer as `{unknown[:40]}`, which was not asked for.")
