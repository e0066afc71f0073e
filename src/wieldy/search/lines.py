"""Reading the lines a search program prints, piece by piece, in bounded memory however long a line is."""

from __future__ import annotations

from collections.abc import Callable

from wieldy.core.record import record
from wieldy.schema.pattern import pattern
from wieldy.search.shown import LEAD_CHARS, LINE_CHARS, cut_line

# Number, then the column of a match (absent where the program does not know it), or the mark of a line that is context.
_PLACE = pattern(rb"(\d+)(?:\0(?:(\d+)\0)?|(\x01))")
_HEAD_ROOM = 8_192
_WINDOW = 4 * LINE_CHARS


@record
class Line:
    """One printed line. `matched` is false for context."""

    path: bytes
    number: int
    matched: bool
    text: str


class LineReader:
    """Takes pieces of output and hands on whole lines. The receiver says true when it has enough."""

    def __init__(self, receive: Callable[[Line], bool]) -> None:
        self._receive = receive
        self._rest = b""
        self._long: _LongLine | None = None

    def feed(self, piece: bytes) -> bool:
        """Take a piece; true means that nothing more is wanted."""
        data = self._rest + piece
        start = 0
        while (end := self._line_end(data, start)) >= 0:
            if self._long:
                self._long.add(data[start:end])
                line, self._long = self._long.line(), None
            else:
                line = _parse(data[start:end])
            start = end + 1
            if self._receive(line):
                return True
        self._rest = data[start:]
        if self._long or len(self._rest) > _HEAD_ROOM + 2 * _WINDOW:
            self._keep_window()
        return False

    def _line_end(self, data: bytes, start: int) -> int:
        """A line ends at a line break, but one in the file's name is part of the name."""
        if self._long:
            return data.find(b"\n", start)
        name_end = data.find(b"\0", start)
        return data.find(b"\n", name_end) if name_end >= 0 else -1

    def _keep_window(self) -> None:
        if self._long is None:
            self._long = _LongLine(self._rest)
        else:
            self._long.add(self._rest)
        self._rest = b""


class _LongLine:
    """A line too long to keep: only the part around its first match is."""

    def __init__(self, beginning: bytes) -> None:
        self.path, self.number, self.column, self.matched, text = _fields(beginning)
        self.first = max(0, self.column - 1 - 4 * LEAD_CHARS) if self.column > LINE_CHARS else 0
        self.seen = 0
        self.kept = b""
        self.add(text)

    def add(self, piece: bytes) -> None:
        skip = max(0, self.first - self.seen)
        self.kept += piece[skip : skip + _WINDOW - len(self.kept)]
        self.seen += len(piece)

    def line(self) -> Line:
        window = self.kept
        lead = 0
        while lead < 4 and self.first and window[lead : lead + 1] and window[lead] & 0xC0 == 0x80:
            lead += 1
        window = _whole_characters(window[lead:])
        first = self.first + lead
        text = cut_line(window, self.column - first, first, self.seen - first - len(window))
        return Line(self.path, self.number, self.matched, text)


def _parse(line: bytes) -> Line:
    path, number, column, matched, text = _fields(line)
    return Line(path, number, matched, cut_line(text.removesuffix(b"\r"), column))


def _fields(line: bytes) -> tuple[bytes, int, int, bool, bytes]:
    path, _, rest = line.partition(b"\0")
    place = _PLACE.match(rest)
    if not place:
        raise ValueError(f"not a line of search output: {line[:200]!r}")
    number, column, context = place.groups()
    return path, int(number), int(column or 0), context is None, rest[place.end() :]


def _whole_characters(window: bytes) -> bytes:
    """The bytes without a character cut off at the end."""
    for back in range(1, min(4, len(window)) + 1):
        byte = window[-back]
        if byte & 0xC0 != 0x80:
            needed = 1 + (byte >= 0xC0) + (byte >= 0xE0) + (byte >= 0xF0)
            return window[:-back] if needed > back else window
    return window
