"""The text of a file in pieces, and a window cut out of it: for files that are large, odd, or read from the middle."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator
from functools import cached_property

from wieldy.core.failure import ToolFailure
from wieldy.reading.opened import Opened
from wieldy.reading.window import SHORTEST_LINE, Breaks, Window, counted
from wieldy.text.encoding import UTF8, detect

COUNTED_ON = 64 << 20


class Source:
    """The text of a file in pieces: bytes where a line feed is one byte, decoded already where it is more."""

    def __init__(self, file: Opened, data: bytes | None, block: int, stopped: Callable[[], bool]) -> None:
        self.breaks = Breaks()
        self._size = file.stat.st_size
        self._passed = 0
        self._stopped = stopped
        if data is None:
            self.encoding = detect(file.head, whole=False)
            # A head of plain ASCII leaves the encoding open until the lines shown say more.
            self._settled = not file.head.isascii()
            self._pieces = self._watched(file.blocks(block))
        else:
            self.encoding = detect(data)
            self._settled = True
            self._pieces = iter((data,))

    def window(self, first: int, limit: int, chars: int, widest: int) -> Window[bytes] | Window[str]:
        """At most `limit` lines from the `first` on, fewer if they take more than `chars`; of each no more than the `widest`."""
        limit = max(min(limit, chars // SHORTEST_LINE), 1)
        if self.encoding.unit > 1:
            wide = Window(first, limit, "\n", "\r", lambda text, final: text, chars, widest)
            wide.fill(counted(self._decoded(), "\n", "\r", self.breaks), self._worth_counting)
            return wide
        narrow = Window(first, limit, b"\n", b"\r", self._decode, chars, widest)
        narrow.fill(counted(self._unmarked(), b"\n", b"\r", self.breaks), self._worth_counting)
        return narrow

    def _worth_counting(self) -> bool:
        # A file that grows as it is read is not followed beyond the size it had.
        return self._passed <= self._size <= self._passed + COUNTED_ON

    def _watched(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        for block in blocks:
            if self._stopped():
                raise ToolFailure("The read was stopped.")
            self._passed += len(block)
            yield block

    def _unmarked(self) -> Iterator[bytes]:
        bom = self.encoding.bom
        for piece in self._pieces:
            yield piece[len(bom) :] if bom else piece
            bom = b""

    def _decoded(self) -> Iterator[str]:
        decoder = codecs.getincrementaldecoder(self.encoding.name)("replace")
        for piece in self._unmarked():
            yield decoder.decode(piece)
        yield decoder.decode(b"", True)

    def _decode(self, piece: bytes, final: bool) -> str:
        if not self._settled:
            if piece.isascii():
                return piece.decode("ascii")
            self._settled = True
            found = detect(piece, whole=False)
            self.encoding = found if found.unit == 1 and not found.bom else UTF8
        return self._decoder.decode(piece, final)

    @cached_property
    def _decoder(self) -> codecs.IncrementalDecoder:
        return codecs.getincrementaldecoder(self.encoding.name)("replace")
