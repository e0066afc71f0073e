"""Read one page of a text file of any size, encoding and line ending."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, islice
from typing import AnyStr, Generic, TypeAlias

from msgspec import Struct

from wieldy.core.errors import ToolFailure
from wieldy.files.detection import UTF8, Encoding, detect_encoding
from wieldy.files.reading import MAX_CHARS, MAX_LINES
from wieldy.files.reading.opening import OpenFile
from wieldy.files.search.format import SHOWN_RETURN, display_path

MAX_LINE_CHARS = 2000
LOADED = 16 << 20
BLOCK = 256 * 1024
# How many bytes beyond the page are read only to count lines.
COUNTED_AHEAD = 64 << 20
# Shown with its number, even an empty line takes a digit, a tab and a line break.
SHORTEST_LINE = 3


# The encoding of some bytes: all of a file, or (False) only its head.
EncodingOf: TypeAlias = Callable[[bytes, bool], Encoding]


def _detect(data: bytes, whole: bool) -> Encoding:
    return detect_encoding(data, whole=whole)


class Page(Struct, frozen=True):
    """Some lines of a file, plain and `numbered` as a model reads them.

    `last` is the number of its last line, before `first` when the page is empty. `total` is the number of lines in the
    file, or at least that many where not all were `counted`; a `complete` page holds all of them.
    `shows_returns` says that lone carriage returns are shown in it. `data` is the whole file where it was small enough to
    be loaded.
    """

    lines: list[str]
    numbered: str
    first: int
    last: int
    total: int
    counted: bool
    complete: bool
    size: int
    encoding: Encoding
    line_endings: str
    data: bytes | None
    shows_returns: bool = False


def read_page(
    file: OpenFile,
    *,
    first: int = 1,
    limit: int = MAX_LINES,
    chars: int = MAX_CHARS,
    loaded: int = LOADED,
    block: int = BLOCK,
    stopped: Callable[[], bool] = lambda: False,
    encoding_of: EncodingOf = _detect,
) -> Page:
    """Lines `first` to `first + limit - 1`, fewer if they would take more than `chars` characters.

    Files up to `loaded` bytes are held whole, larger ones pass in blocks. `stopped` is asked between blocks.
    """
    data = file.read_all(loaded)
    encoding = encoding_of(file.head, False) if data is None else encoding_of(data, True)
    if data is not None and first == 1 and encoding == UTF8 and (page := _whole_page(data, limit, chars)) is not None:
        return page
    if data is None and not file.sized:
        name = display_path(file.path)
        raise ToolFailure(f"{name} gives data without end.", "Use Bash with `head -c` to see its beginning.")

    source = _TextSource(file, data, encoding, block, stopped)
    window = source.window(max(first, 1), limit, chars)
    lines, numbered = _number_lines(window.lines, window.first, chars)
    return Page(
        lines=lines,
        numbered=numbered,
        first=window.first,
        last=window.first + len(lines) - 1,
        total=window.total,
        counted=window.ended,
        complete=window.first == 1 and window.ended and len(lines) == window.total,
        size=file.stat.st_size if data is None else len(data),
        encoding=source.encoding,
        line_endings=source.line_endings.name,
        data=data,
        shows_returns=window.shows_returns,
    )


def _whole_page(data: bytes, limit: int, chars: int) -> Page | None:
    """The page of a small UTF-8 file with plain line feeds, which most files are; None for any other."""
    if len(data) >= chars or b"\r" in data:
        return None
    lines = data.decode().split("\n")
    if not lines[-1]:
        lines.pop()
    if not lines or len(lines) > limit or max(map(len, lines)) > MAX_LINE_CHARS:
        return None
    numbered = "\n".join([f"{number}\t{line}" for number, line in enumerate(lines, 1)])
    if len(numbered) >= chars:
        return None
    return Page(
        lines, numbered, 1, len(lines), len(lines), True, True, len(data), UTF8, "LF" if b"\n" in data else "", data
    )


def _number_lines(lines: list[str], first: int, chars: int) -> tuple[list[str], str]:
    """As many of the lines as fit in so many characters when numbered, but at least one; and their numbered text."""
    numbered = [f"{number}\t{line}" for number, line in enumerate(lines, first)]
    text = "\n".join(numbered)
    if len(text) <= chars:
        return lines, text
    ends = accumulate(len(line) + 1 for line in numbered)
    fitting = max(sum(end <= chars + 1 for end in ends), 1)
    return lines[:fitting], "\n".join(numbered[:fitting])


@dataclass(slots=True)
class LineEndings:
    """The kinds of line ending met so far."""

    lf: bool = False
    crlf: bool = False
    cr: bool = False

    @property
    def name(self) -> str:
        """`LF`, `CRLF`, `CR`, `mixed`, or empty where there was none."""
        kinds = [name for name, seen in (("LF", self.lf), ("CRLF", self.crlf), ("CR", self.cr)) if seen]
        return "mixed" if len(kinds) > 1 else "".join(kinds)


def count_breaks(
    pieces: Iterable[AnyStr], lf: AnyStr, cr: AnyStr, endings: LineEndings, lone_ends: bool = True
) -> Iterator[tuple[AnyStr, int]]:
    """The pieces of a text, each with its number of line breaks, cut so that no pair of CR and LF is torn. A lone CR is a
    line break if `lone_ends`."""
    carriage_return = lf[:0]
    for chunk in pieces:
        piece = carriage_return + chunk if carriage_return else chunk
        carriage_return = piece[-1:] if piece.endswith(cr) else lf[:0]
        if carriage_return:
            piece = piece[:-1]
        feeds, returns, pairs = piece.count(lf), 0, 0
        if cr in piece:
            returns, pairs = piece.count(cr), piece.count(cr + lf)
        endings.crlf |= pairs > 0
        endings.lf |= feeds > pairs
        endings.cr |= lone_ends and returns > pairs
        if piece:
            yield piece, feeds + (returns - pairs if lone_ends else 0)
    if carriage_return:
        endings.cr |= lone_ends
        yield (lf, 1) if lone_ends else (cr, 0)


def normalize_breaks(piece: AnyStr, lf: AnyStr, cr: AnyStr, lone_ends: bool = True) -> AnyStr:
    """The piece with every line break as a line feed."""
    if cr not in piece:
        return piece
    piece = piece.replace(cr + lf, lf)
    return piece.replace(cr, lf) if lone_ends else piece


class _TextSource:
    """The text of a file in pieces: bytes where a line feed is one byte, decoded already where it is more."""

    def __init__(
        self, file: OpenFile, data: bytes | None, encoding: Encoding, block: int, stopped: Callable[[], bool]
    ) -> None:
        self.encoding = encoding
        self.line_endings = LineEndings()
        self._size = file.stat.st_size
        self._passed = 0
        self._stopped = stopped
        if data is None:
            # A head of plain ASCII leaves the encoding open until the lines shown say more.
            self._encoding_known = not file.head.isascii() or encoding != UTF8
            self._pieces = self._watch(file.read_blocks(block))
            self._lone_ends = not self._has_line_feed((file.head,)) and not self._has_line_feed(_blocks(file, block))
        else:
            self._encoding_known = True
            self._pieces = iter((data,))
            self._lone_ends = b"\r" not in data or not self._has_line_feed((data,))

    def window(self, first: int, limit: int, chars: int) -> _LineWindow[bytes] | _LineWindow[str]:
        """At most `limit` lines from the `first` on, fewer if they take more than `chars`."""
        limit = max(min(limit, chars // SHORTEST_LINE), 1)
        if self.encoding.unit > 1:
            wide = _LineWindow(first, limit, "\n", "\r", lambda text, final: text, chars, self._lone_ends)
            pieces = count_breaks(self._decoded_pieces(), "\n", "\r", self.line_endings, self._lone_ends)
            wide.fill(pieces, self._worth_counting)
            return wide
        narrow = _LineWindow(first, limit, b"\n", b"\r", self._decode, chars, self._lone_ends)
        blocks = count_breaks(self._pieces_without_bom(), b"\n", b"\r", self.line_endings, self._lone_ends)
        narrow.fill(blocks, self._worth_counting)
        return narrow

    def _has_line_feed(self, blocks: Iterable[bytes]) -> bool:
        """Whether there is one in the blocks, which are searched up to it."""
        if self.encoding.unit == 1:
            return any(b"\n" in block for block in blocks)
        decode = codecs.getincrementaldecoder(self.encoding.name)("replace").decode
        return any("\n" in decode(block) for block in blocks)

    def _worth_counting(self) -> bool:
        # A file that grows as it is read is not followed beyond the size it had.
        return self._passed <= self._size <= self._passed + COUNTED_AHEAD

    def _watch(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        for block in blocks:
            if self._stopped():
                raise ToolFailure("The read was stopped.")
            self._passed += len(block)
            yield block

    def _pieces_without_bom(self) -> Iterator[bytes]:
        bom = self.encoding.bom
        for piece in self._pieces:
            yield piece[len(bom) :] if bom else piece
            bom = b""

    def _decoded_pieces(self) -> Iterator[str]:
        for piece in self._pieces_without_bom():
            yield self._decoder.decode(piece)
        yield self._decoder.decode(b"", True)

    def _decode(self, piece: bytes, final: bool) -> str:
        if not self._encoding_known:
            if piece.isascii():
                return piece.decode("ascii")
            self._encoding_known = True
            encoding = detect_encoding(piece, whole=False)
            self.encoding = encoding if encoding.unit == 1 and not encoding.bom else UTF8
        return self._decoder.decode(piece, final)

    @cached_property
    def _decoder(self) -> codecs.IncrementalDecoder:
        return codecs.getincrementaldecoder(self.encoding.name)("replace")


@dataclass(slots=True)
class _LineWindow(Generic[AnyStr]):
    """The lines `first` to `first + limit - 1`, long ones cut; collection ends early above `chars`.

    `decode(piece, final)` turns a piece into text. `total` counts the lines passed, and is all of them when `ended`.
    """

    first: int
    limit: int
    lf: AnyStr
    cr: AnyStr
    decode: Callable[[AnyStr, bool], str]
    chars: int
    lone_ends: bool = True
    lines: list[str] = field(default_factory=list)
    total: int = 0
    ended: bool = False
    _breaks: int = 0
    _open_line: str = ""
    shows_returns: bool = False
    _cut_chars: int = 0
    _used_chars: int = 0
    _full: bool = False

    def fill(self, pieces: Iterable[tuple[AnyStr, int]], go_on: Callable[[], bool]) -> None:
        """Read pieces with their number of breaks until the window is full, then count on while `go_on` says so."""
        open_end = False
        for piece, breaks in pieces:
            if not self._full and self._breaks + breaks >= self.first - 1:
                self._take(normalize_breaks(piece, self.lf, self.cr, self.lone_ends), breaks)
            self._breaks += breaks
            open_end = not piece.endswith((self.lf, self.cr) if self.lone_ends else self.lf)
            if self._full and not go_on():
                break
        else:
            self.ended = True
            if not self._full:
                self._add(self.decode(self.lf[:0], True))
                if self._open_line:
                    self.lines.append(self._close_line())
        self.total = self._breaks + open_end

    def _take(self, piece: AnyStr, breaks: int) -> None:
        before = max(self.first - 1 - self._breaks, 0)
        missing = self.limit - len(self.lines)
        start = _skip_breaks(piece, self.lf, before, 0)
        if breaks - before >= missing:
            piece = piece[start : _skip_breaks(piece, self.lf, missing, start)]
            self._full = True
        elif start:
            piece = piece[start:]
        self._add(self.decode(piece, self._full))
        self._full = self._full or self._used_chars > self.chars

    def _add(self, text: str) -> None:
        if "\r" in text:
            self.shows_returns = True
            text = text.replace("\r", SHOWN_RETURN)
        *closed, rest = text.split("\n")
        if closed:
            self._extend_line(closed[0])
            closed[0] = self._close_line()
            closed[1:] = [_cut(line[:MAX_LINE_CHARS], len(line) - MAX_LINE_CHARS) for line in closed[1:]]
            self.lines += closed
            self._used_chars += sum(map(len, closed)) + SHORTEST_LINE * len(closed)
        self._extend_line(rest)

    def _extend_line(self, text: str) -> None:
        room = MAX_LINE_CHARS - len(self._open_line)
        self._open_line += text[:room]
        self._cut_chars += max(len(text) - room, 0)

    def _close_line(self) -> str:
        line = _cut(self._open_line, self._cut_chars)
        self._open_line, self._cut_chars = "", 0
        return line


def _blocks(file: OpenFile, block: int) -> Iterator[bytes]:
    with file.reopened() as again:
        yield from islice(again.read_blocks(block), COUNTED_AHEAD // block + 1)


def _cut(line: str, beyond: int) -> str:
    return f"{line}… [{beyond} more characters in this line]" if beyond > 0 else line


def _skip_breaks(piece: AnyStr, lf: AnyStr, breaks: int, start: int) -> int:
    """The position just behind so many line breaks counted from `start`; there must be as many."""
    if breaks == 0:
        return start
    low, high = start, len(piece)
    while high - low > 4096:
        middle = (low + high) // 2
        count = piece.count(lf, low, middle)
        if count < breaks:
            breaks -= count
            low = middle
        else:
            high = middle
    for _ in range(breaks):
        low = piece.find(lf, low) + 1
    return low
