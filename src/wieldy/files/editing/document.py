"""A file's bytes seen as text with `\\n` line ends, and the way back from places in the text to places in the bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, lru_cache

from msgspec import Struct

from wieldy.core.errors import ToolFailure
from wieldy.files.encodings import Encoding, detect_encoding

# Every byte (or, in UTF-8, every character's bytes) stands for itself wherever it occurs, so needles can be looked for
# in the bytes. In the others a needle's bytes may turn up across two characters.
MULTIBYTE = frozenset({"gb18030", "gbk", "gb2312", "cp932", "shift_jis", "euc_jp", "euc_jis_2004"}) | frozenset(
    {"big5", "big5hkscs", "cp949", "cp950", "euc_kr", "johab", "euc_jisx0213", "shift_jis_2004", "shift_jisx0213"}
)
NAMED_AT_MOST = 5
LONGEST_CHARACTER = 4


class SplitsCharacter(Exception):
    """A place between two code points that one indivisible byte sequence stands for."""


class Codec(Struct, frozen=True, dict=True):
    """A file's encoding at work."""

    encoding: Encoding

    @property
    def name(self) -> str:
        """The Python codec."""
        return self.encoding.name

    @cached_property
    def unit(self) -> int:
        """How many bytes a line feed takes."""
        return self.encoding.unit

    @cached_property
    def errors(self) -> str:
        """The error handler that keeps undecodable units apart, one code point each."""
        return "surrogateescape" if self.unit == 1 else "surrogatepass"

    @cached_property
    def bytewise(self) -> bool:
        """Whether a text can be looked for by its bytes."""
        return self.unit == 1 and self.name.lower().replace("-", "_") not in MULTIBYTE

    @cached_property
    def newline(self) -> bytes:
        """A line feed."""
        return "\n".encode(self.name)

    @cached_property
    def carriage_return(self) -> bytes:
        """A carriage return."""
        return "\r".encode(self.name)

    def decode(self, data: bytes) -> str:
        """The text of some bytes; a last unit that is cut off is left out."""
        try:
            return data[: len(data) - len(data) % self.unit].decode(self.name, self.errors)
        except UnicodeDecodeError as error:
            raise ToolFailure(
                f"The file is marked as {self.name} but holds bytes at offset {error.start} that are not; "
                "it cannot be edited as text. Convert it with a shell command first."
            ) from error

    def encode(self, text: str) -> bytes:
        """The bytes of a text that came from `decode` or passed `require`."""
        return text.encode(self.name, self.errors)

    def needle(self, text: str) -> bytes | None:
        """The bytes of a text to look for, or None where the encoding cannot hold it."""
        try:
            return text.encode(self.name)
        except UnicodeEncodeError:
            return None

    def require(self, text: str, what: str = "new_string") -> None:
        """Refuse a text this encoding cannot hold, naming the characters it lacks."""
        if text.isascii() or self.needle(text) is not None:
            return
        lacking = dict.fromkeys(char for char in text if not char.isascii() and self.needle(char) is None)
        named = ", ".join(_named(char, text) for char in list(lacking)[:NAMED_AT_MOST])
        more = f" and {len(lacking) - NAMED_AT_MOST} more" if len(lacking) > NAMED_AT_MOST else ""
        if self.name.startswith("utf"):
            reason, way = "half of a surrogate pair is no character", "Send the whole character"
        else:
            reason, way = f"the file is kept in {self.name}, which has no such character", "Use characters it has"
        raise ToolFailure(
            f"{what} holds {named}{more}, but {reason}. Nothing was written. {way}"
            + ("." if self.name.startswith("utf") else ", or convert the file to UTF-8 first.")
        )

    def width(self, line: bytes, count: int) -> int:
        """How many bytes the first `count` characters of a line take."""
        if count <= 0:
            return 0
        if self.bytewise and (self.name != "utf-8" or line.isascii()):
            return count
        if self.bytewise or self.unit > 1:
            return len(self.encode(self.decode(line)[:count]))
        return self._walked(line, count)

    def _walked(self, line: bytes, count: int) -> int:
        """Stretch by stretch, good ones and those that do not decode, in which every escaped byte is a character."""
        view, at, seen = memoryview(line), 0, 0
        while at < len(line):
            try:
                good, stop, beyond = str(view[at:], self.name), len(line), len(line)
            except UnicodeDecodeError as error:
                stop, beyond = at + error.start, at + error.end
                good = str(view[at:stop], self.name)
            if seen + len(good) >= count:
                return at + self._good_width(line[at:stop], good, count - seen)
            bad = _escaped(line[stop:beyond])
            seen += len(good)
            if seen + bad >= count:
                return stop + count - seen
            seen, at = seen + bad, stop + bad
        return len(line)

    def _good_width(self, good: bytes, text: str, count: int) -> int:
        """By encoding again; character by character where the bytes are another way to write the same."""
        width = len(text[:count].encode(self.name))
        if self.needle(text[:count]) == good[:width]:
            return width
        at = seen = 0
        while seen < count:
            width = next(n for n in range(1, LONGEST_CHARACTER + 1) if self._is_character(good[at : at + n]))
            seen, at = seen + len(good[at : at + width].decode(self.name)), at + width
        if seen > count:
            raise SplitsCharacter
        return at

    def _is_character(self, piece: bytes) -> bool:
        try:
            return bool(piece.decode(self.name))
        except UnicodeDecodeError:
            return False


@lru_cache(maxsize=64)
def codec_of(name: str) -> Codec:
    """The codec of an encoding's name, which finds out once what it is like."""
    return Codec(Encoding(name))


def _escaped(bad: bytes) -> int:
    """How many bytes at the start of an undecodable stretch become characters of their own: ASCII is tried again."""
    return next((n for n, byte in enumerate(bad) if byte < 0x80), len(bad))


def _named(char: str, text: str) -> str:
    at = text.index(char)
    line = text.count("\n", 0, at) + 1
    column = at - (text.rfind("\n", 0, at) + 1) + 1
    shown = f"{char!r} " if not "\ud800" <= char <= "\udfff" else ""
    return f"{shown}(U+{ord(char):04X}, line {line}, column {column})"


BLOCK = 1 << 16


class Span(Struct, frozen=True):
    """A stretch of bytes."""

    start: int
    end: int


class Mark(Struct, frozen=True):
    """Where a line begins, and its number."""

    start: int
    line: int


def unix(text: str) -> str:
    """A text with every line end as `\\n`."""
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


class Document(Struct, frozen=True, dict=True):
    """The content of one file. Searching happens in its text, changing in its bytes. `known` is a line whose number was
    found out before: others are counted from there. `plain` says that there are known to be no carriage returns."""

    data: bytes
    encoding: Encoding
    known: Mark | None = None
    plain: bool = False

    @staticmethod
    def of(data: bytes) -> Document:
        """The document some bytes are, by their own look."""
        return Document(data, detect_encoding(data))

    @property
    def codec(self) -> Codec:
        """The encoding at work."""
        return codec_of(self.encoding.name)

    @cached_property
    def text(self) -> str:
        """The whole text."""
        return unix(self.codec.decode(self.data[self.body :]))

    @property
    def body(self) -> int:
        """Where the text begins, behind a byte order mark."""
        return len(self.encoding.bom)

    @property
    def empty(self) -> bool:
        """Whether there is no text."""
        return len(self.data) <= self.body

    def find(self, needle: str, *, overlapping: bool = False) -> Iterator[Span]:
        """Where a text occurs, whatever its line ends are in the file."""
        needle = unix(needle)
        if not self.codec.bytewise:
            return self._spans(list(_occurrences(self.text, needle, overlapping, 0)), len(needle), self._in_text)
        wanted = self.codec.needle(needle)
        if not wanted:
            return iter(())
        if not self.returns:
            return (Span(at, at + len(wanted)) for at in _occurrences(self.data, wanted, overlapping, self.body))
        starts = _occurrences(self._bytes_with_unix_ends, wanted, overlapping, self.body)
        return self._spans(list(starts), len(wanted), _IN_BYTES)

    def span(self, start: int, end: int) -> Span:
        """The bytes of a stretch of the text."""
        return Span(*self.offsets((start, end)))

    def offsets(self, places: Sequence[int]) -> list[int]:
        """Byte offsets of ascending places in the text. Raises `SplitsCharacter` for a place that has none."""
        if not self.returns and self.codec.bytewise and self.data.isascii():
            return [self.body + place for place in places]
        return self._measured(places, self._in_text)

    def slice(self, span: Span) -> Document:
        """A stretch of this document as one of its own, without byte order mark."""
        return Document(self.data[span.start : span.end], Encoding(self.encoding.name, sure=self.encoding.sure))

    def line_number(self, offset: int, near: Mark | None = None) -> int:
        """The number of the line a byte is in, from 1; it is counted from a mark `near` it, where one is given."""
        mark = near or self.known or Mark(self.body, 1)
        if offset < mark.start:
            return mark.line - self.lines_between(offset, mark.start)
        return mark.line + self.lines_between(mark.start, offset)

    def afresh(self) -> Document:
        """The same document, without what was made of it meanwhile."""
        return Document(self.data, self.encoding, self.known, self.plain)

    def lines_between(self, start: int, end: int) -> int:
        """How many lines end between two bytes."""
        if self.codec.unit > 1:
            return unix(self.codec.decode(self.data[start:end])).count("\n")
        ends = self.data.count(b"\n", start, end)
        if self.returns:
            ends += self.data.count(b"\r", start, end) - self.data.count(b"\r\n", start, end)
        return ends

    def lines(self) -> int:
        """How many lines there are; what follows the last line end counts if it is not empty."""
        ends = self.lines_between(self.body, len(self.data))
        return ends if self.line_start(len(self.data)) >= len(self.data) else ends + 1

    def line_start(self, offset: int, before: int = 0) -> int:
        """Where the line of a byte begins, or one so many lines `before` it."""
        body, unit = self.body, self.codec.unit
        plain, start = unit == 1 and not self.returns, offset + unit
        for _ in range(1 + before):
            if start <= body:
                break
            at = start - unit
            start = (self.data.rfind(b"\n", body, at) + 1 or body) if plain else self._line_start(at)
        return start

    def _line_start(self, offset: int) -> int:
        unit, newline, body = self.codec.unit, self.codec.newline, self.body
        at = self._last(newline, body, offset)
        start = body if at < 0 else at + unit
        if self.returns:
            end = offset - unit if self.data.startswith(newline, offset) else offset
            at = self._last(self.codec.carriage_return, start, max(start, end))
            start = start if at < 0 else at + unit
        return start

    def line_end(self, offset: int, beyond: int = 0) -> int:
        """Where the line of a byte ends, behind its line end, or one so many lines `beyond` it."""
        size, plain = len(self.data), self.codec.unit == 1 and not self.returns
        for _ in range(1 + beyond):
            if offset >= size:
                break
            offset = (self.data.find(b"\n", offset) + 1 or size) if plain else self._line_end(offset)
        return offset

    def _line_end(self, offset: int) -> int:
        unit = self.codec.unit
        at = self._next(self.codec.newline, offset)
        end = len(self.data) if at < 0 else at + unit
        if self.returns:
            lone = self._next(self.codec.carriage_return, offset, end)
            if lone >= 0 and lone + 2 * unit != end:
                return lone + unit
        return end

    def newline_by(self, span: Span) -> str:
        """The line end that belongs near a stretch: the first inside or behind it, else the last before it. A lone
        carriage return is one only in a file that has no other."""
        if not self.returns:
            return "\n"
        newline, unit = self.codec.newline, self.codec.unit
        at = self._next(newline, span.start)
        if at < 0:
            at = self._last(newline, self.body, span.start)
        if at < 0:
            return "\r" if self._next(self.codec.carriage_return, self.body) >= 0 else "\n"
        return "\r\n" if self.data[max(at - unit, self.body) : at] == self.codec.carriage_return else "\n"

    def starts_line_with_return(self, offset: int) -> bool:
        """Whether the line that begins at a byte does so because of a lone carriage return before it."""
        sign = self.codec.carriage_return
        return offset - len(sign) >= self.body and self.data.startswith(sign, offset - len(sign))

    @cached_property
    def _in_text(self) -> Ruler:
        return Ruler(self.body, lambda part: len(unix(self.codec.decode(part))), self.codec.width)

    @property
    def returns(self) -> bool:
        """Whether there may be carriage returns."""
        return not self.plain and self._returns

    @cached_property
    def _returns(self) -> bool:
        return b"\r" in self.data

    def _next(self, wanted: bytes, start: int, end: int | None = None) -> int:
        at = self.data.find(wanted, start, end)
        while at >= 0 and (at - self.body) % self.codec.unit:
            at = self.data.find(wanted, at + 1, end)
        return at

    def _last(self, wanted: bytes, start: int, end: int) -> int:
        at = self.data.rfind(wanted, start, end)
        while at >= 0 and (at - self.body) % self.codec.unit:
            at = self.data.rfind(wanted, start, at + len(wanted) - 1)
        return at

    @cached_property
    def _bytes_with_unix_ends(self) -> bytes:
        return self.data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _spans(self, starts: list[int], length: int, ruler: Ruler) -> Iterator[Span]:
        places = sorted({*starts, *(start + length for start in starts)})
        offsets = dict(zip(places, self._measured(places, ruler), strict=True))
        return (Span(offsets[start], offsets[start + length]) for start in starts)

    def _measured(self, places: Sequence[int], ruler: Ruler) -> list[int]:
        """Byte offsets of ascending places: whole blocks are passed over, then lines, then characters."""
        offsets: list[int] = []
        passed = beyond = 0
        line_start = block_end = ruler.begin
        for place in places:
            while place >= beyond and block_end < len(self.data):
                passed, line_start, block_end = beyond, block_end, self._block_end(block_end)
                beyond += ruler.length(self.data[line_start:block_end])
            while True:
                found = self._next(self.codec.newline, line_start, block_end)
                line_end = block_end if found < 0 else found + self.codec.unit
                line = self.data[line_start:line_end]
                length = ruler.length(line)
                if place < passed + length or found < 0:
                    break
                passed, line_start = passed + length, line_end
            offsets.append(line_start + ruler.width(line, place - passed))
        return offsets

    def _block_end(self, start: int) -> int:
        if len(self.data) - start <= BLOCK:
            return len(self.data)
        at = self._last(self.codec.newline, start, start + BLOCK)
        at = self._next(self.codec.newline, start + BLOCK) if at < 0 else at
        return len(self.data) if at < 0 else at + self.codec.unit


class Ruler(Struct, frozen=True):
    """Measures stretches of bytes in the units of a view: how long a stretch is there, and how many bytes a part takes."""

    begin: int
    length: Callable[[bytes], int]
    width: Callable[[bytes, int], int]


_IN_BYTES = Ruler(0, lambda part: len(part) - part.count(b"\r\n"), lambda line, count: count)


def _occurrences(haystack: str | bytes, needle: str | bytes, overlapping: bool, start: int) -> Iterator[int]:
    if not needle:
        return
    step = 1 if overlapping else len(needle)
    at = haystack.find(needle, start)  # type: ignore[arg-type]
    while at >= 0:
        yield at
        at = haystack.find(needle, at + step)  # type: ignore[arg-type]
