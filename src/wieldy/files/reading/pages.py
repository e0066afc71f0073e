"""One page of a text file of any size, encoding and line ending."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import AnyStr, Generic

from msgspec import Struct

from wieldy.core.errors import ToolFailure
from wieldy.files.encodings import UTF8, Encoding, detect_encoding
from wieldy.files.reading.opening import OpenFile, shown

# Shown with its number, even an empty line takes a digit, a tab and a line break.
SHORTEST_LINE = 3

_ALONE = re.compile(rb"\r(?!\n)")
_ALONE_IN_TEXT = re.compile("\r(?!\n)")


@dataclass(slots=True)
class Breaks:
    """The kinds of line break met so far."""

    lf: bool = False
    crlf: bool = False
    cr: bool = False

    @property
    def name(self) -> str:
        """`LF`, `CRLF`, `CR`, `mixed`, or nothing where there was no break."""
        met = [name for name, seen in (("LF", self.lf), ("CRLF", self.crlf), ("CR", self.cr)) if seen]
        return "mixed" if len(met) > 1 else "".join(met)


def counted(pieces: Iterable[AnyStr], lf: AnyStr, cr: AnyStr, met: Breaks) -> Iterator[tuple[AnyStr, int]]:
    """The pieces of a text, each with its number of line breaks, cut so that no pair of CR and LF is torn."""
    held = lf[:0]
    for read in pieces:
        piece = held + read if held else read
        held = piece[-1:] if piece.endswith(cr) else lf[:0]
        if held:
            piece = piece[:-1]
        feeds, returns, pairs = piece.count(lf), 0, 0
        if cr in piece:  # far cheaper than to count what is not there
            returns = piece.count(cr)
            pairs = _pairs(piece, cr + lf, feeds, returns)
        met.crlf |= pairs > 0
        met.lf |= feeds > pairs
        met.cr |= returns > pairs
        if piece:
            yield piece, feeds + returns - pairs
    if held:
        met.cr = True
        yield lf, 1


def _pairs(piece: AnyStr, crlf: AnyStr, feeds: int, returns: int) -> int:
    # To find no CR that stands alone takes a third of the time of counting pairs.
    alone = _ALONE.search(piece) if isinstance(piece, bytes) else _ALONE_IN_TEXT.search(piece)
    return returns if not alone else piece.count(crlf) if feeds else 0


def plain(piece: AnyStr, lf: AnyStr, cr: AnyStr) -> AnyStr:
    """The piece with every line break as a line feed."""
    return piece.replace(cr + lf, lf).replace(cr, lf) if cr in piece else piece


@dataclass(slots=True)
class Window(Generic[AnyStr]):
    """The lines `first` to `first + limit - 1`, each no longer than `widest`; collection ends early above `chars`.

    `decode(piece, final)` turns a piece into text. `total` counts the lines passed, and is all of them when `ended`.
    """

    first: int
    limit: int
    lf: AnyStr
    cr: AnyStr
    decode: Callable[[AnyStr, bool], str]
    chars: int
    widest: int
    lines: list[str] = field(default_factory=list)
    total: int = 0
    ended: bool = False
    _breaks: int = 0
    _open: str = ""
    _beyond: int = 0
    _held: int = 0
    _full: bool = False

    def fill(self, pieces: Iterable[tuple[AnyStr, int]], go_on: Callable[[], bool]) -> None:
        """Read `counted` pieces until the window is full, then count on while `go_on` says so."""
        open_end = False
        for piece, found in pieces:
            if not self._full and self._breaks + found >= self.first - 1:
                self._take(plain(piece, self.lf, self.cr), found)
            self._breaks += found
            open_end = not piece.endswith((self.lf, self.cr))
            if self._full and not go_on():
                break
        else:
            self.ended = True
            if not self._full:
                self._add(self.decode(self.lf[:0], True))
                self._close_last()
        self.total = self._breaks + open_end

    def _take(self, piece: AnyStr, found: int) -> None:
        before = max(self.first - 1 - self._breaks, 0)
        wanted = self.limit - len(self.lines)
        start = after_breaks(piece, self.lf, before, 0)
        if found - before >= wanted:
            piece = piece[start : after_breaks(piece, self.lf, wanted, start)]
            self._full = True
        elif start:
            piece = piece[start:]
        self._add(self.decode(piece, self._full))
        self._full = self._full or self._held > self.chars

    def _add(self, text: str) -> None:
        *closed, rest = text.split("\n")
        if closed:
            self._extend(closed[0])
            closed[0] = self._close()
            length = len(text) - len(rest) - len(closed)
            if length > self.widest and max(map(len, closed)) > self.widest:
                closed[1:] = [_fit(line, self.widest) for line in closed[1:]]
                length = sum(map(len, closed))
            self.lines += closed
            self._held += length + SHORTEST_LINE * len(closed)
        self._extend(rest)

    def _extend(self, text: str) -> None:
        room = self.widest - len(self._open)
        self._open += text[:room]
        self._beyond += max(len(text) - room, 0)

    def _close(self) -> str:
        line = _marked(self._open, self._beyond)
        self._open, self._beyond = "", 0
        return line

    def _close_last(self) -> None:
        if self._open:
            self.lines.append(self._close())


def _fit(line: str, widest: int) -> str:
    return line if len(line) <= widest else _marked(line[:widest], len(line) - widest)


def _marked(line: str, beyond: int) -> str:
    return f"{line}… [{beyond} more characters in this line]" if beyond else line


def after_breaks(piece: AnyStr, lf: AnyStr, breaks: int, start: int) -> int:
    """The position just behind so many line breaks counted from `start`; there must be as many."""
    if breaks == 0:
        return start
    low, high = start, len(piece)
    while high - low > 4096:
        middle = (low + high) // 2
        found = piece.count(lf, low, middle)
        if found < breaks:
            breaks -= found
            low = middle
        else:
            high = middle
    for _ in range(breaks):
        low = piece.find(lf, low) + 1
    return low


COUNTED_ON = 64 << 20


class Source:
    """The text of a file in pieces: bytes where a line feed is one byte, decoded already where it is more."""

    def __init__(self, file: OpenFile, data: bytes | None, block: int, stopped: Callable[[], bool]) -> None:
        self.breaks = Breaks()
        self._size = file.stat.st_size
        self._passed = 0
        self._stopped = stopped
        if data is None:
            self.encoding = detect_encoding(file.head, whole=False)
            # A head of plain ASCII leaves the encoding open until the lines shown say more.
            self._settled = not file.head.isascii()
            self._pieces = self._watched(file.blocks(block))
        else:
            self.encoding = detect_encoding(data)
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
            found = detect_encoding(piece, whole=False)
            self.encoding = found if found.unit == 1 and not found.bom else UTF8
        return self._decoder.decode(piece, final)

    @cached_property
    def _decoder(self) -> codecs.IncrementalDecoder:
        return codecs.getincrementaldecoder(self.encoding.name)("replace")


LIMIT = 2000  # lines
CHARS = 200_000


WIDEST = 2000
LOADED = 16 << 20
BLOCK = 256 * 1024


class Page(Struct, frozen=True):
    """Some lines of a file, plain and as a model reads them (`numbered`).

    `total` is the number of lines in the file, or at least that many where not all were `counted`; `data` is the whole
    file where it was small enough to be loaded.
    """

    lines: list[str]
    numbered: str
    first: int
    total: int
    counted: bool
    size: int
    encoding: Encoding
    breaks: str
    data: bytes | None

    @property
    def last(self) -> int:
        """The number of the last line on the page; before `first` when the page is empty."""
        return self.first + len(self.lines) - 1

    @property
    def complete(self) -> bool:
        """Whether the page holds every line of the file."""
        return self.first == 1 and self.counted and self.last == self.total


def read_page(
    file: OpenFile,
    *,
    first: int = 1,
    limit: int = LIMIT,
    chars: int = CHARS,
    loaded: int = LOADED,
    block: int = BLOCK,
    stopped: Callable[[], bool] = lambda: False,
) -> Page:
    """Lines `first` to `first + limit - 1`, fewer if they would take more than `chars` characters.

    Files up to `loaded` bytes are held whole, larger ones pass in blocks. `stopped` is asked between blocks.
    """
    data = file.whole(loaded)
    if data is not None and first == 1 and (page := _whole_page(data, limit, chars)) is not None:
        return page
    if data is None and not file.sized:
        raise ToolFailure(f"{shown(file.path)} gives data without end. Use Bash with `head -c` to see its beginning.")

    source = Source(file, data, block, stopped)
    window = source.window(max(first, 1), limit, chars, WIDEST)
    lines, numbered = _within(window.lines, window.first, chars)
    return Page(
        lines=lines,
        numbered=numbered,
        first=window.first,
        total=window.total,
        counted=window.ended,
        size=file.stat.st_size if data is None else len(data),
        encoding=source.encoding,
        breaks=source.breaks.name,
        data=data,
    )


def _whole_page(data: bytes, limit: int, chars: int) -> Page | None:
    """All of a file that needs no more than to be cut into lines, as most do; None for any other."""
    if len(data) >= chars or b"\r" in data or detect_encoding(data) is not UTF8:
        return None
    lines = data.decode().split("\n")
    if not lines[-1]:
        lines.pop()
    if not lines or len(lines) > limit or max(map(len, lines)) > WIDEST:
        return None
    numbered = "\n".join([f"{number}\t{line}" for number, line in enumerate(lines, 1)])
    if len(numbered) >= chars:
        return None
    breaks = "LF" if b"\n" in data else ""
    return Page(lines, numbered, 1, len(lines), True, len(data), UTF8, breaks, data)


def _within(lines: list[str], first: int, chars: int) -> tuple[list[str], str]:
    """As many of the lines as fit in so many characters when numbered, but at least one; and how they look then."""
    numbered = [f"{number}\t{line}" for number, line in enumerate(lines, first)]
    text = "\n".join(numbered)
    if len(text) <= chars:
        return lines, text
    ends = accumulate(len(line) + 1 for line in numbered)
    fitting = max(sum(end <= chars + 1 for end in ends), 1)
    return lines[:fitting], "\n".join(numbered[:fitting])
