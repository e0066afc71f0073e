"""A window of lines cut out of a stream of any length, at the speed of counting line breaks and in flat memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import AnyStr, Generic

from wieldy.schema.pattern import pattern

# Shown with its number, even an empty line takes a digit, a tab and a line break.
SHORTEST_LINE = 3

_ALONE = pattern(rb"\r(?!\n)")
_ALONE_IN_TEXT = pattern("\r(?!\n)")


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
