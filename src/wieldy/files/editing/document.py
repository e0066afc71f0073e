"""A file's bytes seen as text with `\\n` line ends, the offsets in the bytes of positions in the text, and splices:
replaced ranges of bytes, which leave everything else bit for bit as it was.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from functools import cached_property
from typing import Any

from msgspec import Struct

from wieldy.core.errors import ToolFailure
from wieldy.files.detection import Encoding, detect_encoding
from wieldy.files.search.format import SHOWN_RETURN

# In these encodings the bytes of a text may turn up across two characters, so texts are not searched by their bytes.
MULTIBYTE = frozenset({"gb18030", "gbk", "gb2312", "cp932", "shift_jis", "euc_jp", "euc_jis_2004"}) | frozenset(
    {"big5", "big5hkscs", "cp949", "cp950", "euc_kr", "johab", "euc_jisx0213", "shift_jis_2004", "shift_jisx0213"}
)
LISTED_CHARACTERS = 5
_SURROGATES = frozenset(map(chr, range(0xD800, 0xE000)))
LONGEST_CHARACTER = 4
BLOCK = 1 << 16


def normalize_newlines(text: str) -> str:
    """The text with every line end as `\\n`."""
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


class SplitsCharacter(Exception):
    """A position between two code points that one indivisible byte sequence stands for."""


class Codec(Struct, frozen=True, dict=True):
    """Decodes and encodes the text of a file without losing undecodable bytes."""

    encoding: Encoding

    @property
    def name(self) -> str:
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
        """Whether a text can be searched by its bytes."""
        return self.unit == 1 and self.name.lower().replace("-", "_") not in MULTIBYTE

    @cached_property
    def newline(self) -> bytes:
        return "\n".encode(self.name)

    @cached_property
    def carriage_return(self) -> bytes:
        return "\r".encode(self.name)

    def decode(self, data: bytes) -> str:
        """Decode; an incomplete last unit is left out."""
        try:
            return data[: len(data) - len(data) % self.unit].decode(self.name, self.errors)
        except UnicodeDecodeError as error:
            raise ToolFailure(
                f"The file is marked as {self.name} but holds bytes at offset {error.start} that are not; "
                "it cannot be edited as text.",
                "Convert it with a shell command first.",
            ) from error

    def encode(self, text: str) -> bytes:
        """Encode a text that came from `decode` or passed `require`."""
        return text.encode(self.name, self.errors)

    def try_encode(self, text: str) -> bytes | None:
        """The bytes of a text, or None where the encoding cannot represent it."""
        try:
            return text.encode(self.name)
        except UnicodeEncodeError:
            return None

    def require(self, text: str, what: str = "new_string") -> None:
        """Refuse a text this encoding cannot represent, naming the characters it lacks."""
        if text.isascii() or self.try_encode(text) is not None:
            return
        lacking = list(dict.fromkeys(char for char in text if not char.isascii() and self.try_encode(char) is None))
        listed = ", ".join(_describe_character(char, text) for char in lacking[:LISTED_CHARACTERS])
        more = f" and {len(lacking) - LISTED_CHARACTERS} more" if len(lacking) > LISTED_CHARACTERS else ""
        if self.name.startswith("utf"):
            reason, advice = "half of a surrogate pair is no character", "Send the whole character."
        else:
            reason = f"the file is kept in {self.name}, which has no such character"
            advice = "Use characters it has, or convert the file to UTF-8 first."
        raise ToolFailure(f"{what} holds {listed}{more}, but {reason}. Nothing was written.", advice)

    def require_certain(self, text: str, known: str, what: str = "new_string", advice: str = "") -> None:
        """Refuse characters that the `known` text of the file does not hold yet where it is uncertain how it encodes them."""
        if self.encoding.certain:
            return
        new = sorted({char for char in text if not char.isascii()}.difference(known) - _SURROGATES)
        rivals = [Codec(Encoding(name)) for name in self.encoding.rivals]
        if not self.encoding.doubtful:
            new = [char for char in new if any(rival.try_encode(char) != self.try_encode(char) for rival in rivals)]
        if not new:
            return
        listed = ", ".join(_describe_character(char, text) for char in new[:LISTED_CHARACTERS])
        others = f" (others that fit: {', '.join(self.encoding.rivals)})" if rivals else ""
        raise ToolFailure(
            f"{what} holds {listed}, which the file does not have yet, and its encoding is only a guess: {self.name}"
            f"{others}. Nothing was written.",
            advice or f"Send this again with `encoding`: the right one, or {self.name} if the file reads well in it.",
        )

    def width(self, line: bytes, count: int) -> int:
        """How many bytes the first `count` characters of a line take."""
        if count <= 0:
            return 0
        if self.bytewise and (self.name != "utf-8" or line.isascii()):
            return count
        if self.bytewise or self.unit > 1:
            return len(self.encode(self.decode(line)[:count]))
        return self._multibyte_width(line, count)

    def _multibyte_width(self, line: bytes, count: int) -> int:
        """Walk over valid stretches and undecodable ones, in which every escaped byte is a character."""
        view, at, passed = memoryview(line), 0, 0
        while at < len(line):
            try:
                text, stop, beyond = str(view[at:], self.name), len(line), len(line)
            except UnicodeDecodeError as error:
                stop, beyond = at + error.start, at + error.end
                text = str(view[at:stop], self.name)
            if passed + len(text) >= count:
                return at + self._valid_width(line[at:stop], text, count - passed)
            # ASCII in an undecodable stretch is decoded again.
            invalid = line[stop:beyond]
            escaped = next((n for n, byte in enumerate(invalid) if byte < 0x80), len(invalid))
            passed += len(text)
            if passed + escaped >= count:
                return stop + count - passed
            passed, at = passed + escaped, stop + escaped
        return len(line)

    def _valid_width(self, data: bytes, text: str, count: int) -> int:
        """Encode again; go character by character where the bytes are another way to write the same."""
        width = len(text[:count].encode(self.name))
        if self.try_encode(text[:count]) == data[:width]:
            return width
        at = passed = 0
        while passed < count:
            width = next(n for n in range(1, LONGEST_CHARACTER + 1) if self._is_character(data[at : at + n]))
            passed, at = passed + len(data[at : at + width].decode(self.name)), at + width
        if passed > count:
            raise SplitsCharacter
        return at

    def _is_character(self, data: bytes) -> bool:
        try:
            return bool(data.decode(self.name))
        except UnicodeDecodeError:
            return False


def _describe_character(char: str, text: str) -> str:
    at = text.index(char)
    line, column = text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
    printed = f"{char!r} " if not "\ud800" <= char <= "\udfff" else ""
    return f"{printed}(U+{ord(char):04X}, line {line}, column {column})"


class Span(Struct, frozen=True):
    """A range of bytes."""

    start: int
    end: int


class Document(Struct, frozen=True, dict=True):
    """The content of one file. Searching happens in its text, changing in its bytes. `whole` is what it may be a part of."""

    data: bytes
    encoding: Encoding
    whole: Document | None = None

    @staticmethod
    def of(data: bytes) -> Document:
        """The document of some bytes in the encoding detected."""
        return Document(data, detect_encoding(data))

    @cached_property
    def codec(self) -> Codec:
        return Codec(self.encoding)

    @cached_property
    def text(self) -> str:
        """The whole text, without byte order mark, with `\\n` line ends, as Read shows it."""
        return self.normalize(self.codec.decode(self.data[self.body :]))

    def normalize(self, text: str) -> str:
        """A text with line ends as `\\n`, and with carriage returns shown where they end no line."""
        if not self.has_lone_returns:
            return normalize_newlines(text)
        return text.replace("\r\n", "\n").replace("\r", SHOWN_RETURN)

    @property
    def body(self) -> int:
        """Where the text begins, after a byte order mark."""
        return len(self.encoding.bom)

    @property
    def empty(self) -> bool:
        return len(self.data) <= self.body

    @cached_property
    def has_carriage_returns(self) -> bool:
        """Whether there may be carriage returns."""
        return b"\r" in self.data

    @cached_property
    def has_lone_returns(self) -> bool:
        """Whether there are carriage returns that are no line end: lone ones in a file that has line feeds."""
        if self.whole is not None:
            return self.has_carriage_returns and self.whole.has_lone_returns
        if not self.has_carriage_returns:
            return False
        if self.codec.unit == 1:
            return b"\n" in self.data and self.data.count(b"\r") > self.data.count(b"\r\n")
        text = self.codec.decode(self.data)
        return "\n" in text and text.count("\r") > text.count("\r\n")

    @cached_property
    def _shows_itself(self) -> bool:
        """Whether the file also has the character by which a carriage return is shown."""
        return SHOWN_RETURN in self.codec.decode(self.data)

    def with_returns(self, text: str) -> str:
        """A text that may be written here; the character by which a carriage return is shown need not be in the encoding."""
        return text.replace(SHOWN_RETURN, "\r") if self.has_lone_returns else text

    def restore_returns(self, text: str, *places: Span) -> str:
        """A new text with carriage returns where it has the character by which they are shown.

        Where the file has that character itself, the first of the places to replace that has one of the two decides.
        """
        if SHOWN_RETURN not in text or not self.has_lone_returns:
            return text
        if self._shows_itself and not self._has_returns_only(places):
            return text
        # Before a line feed, a carriage return needs a second one, or the two would be a line end.
        return text.replace(f"{SHOWN_RETURN}\n", "\r\r\n").replace(SHOWN_RETURN, "\r")

    def _has_returns_only(self, places: Iterable[Span]) -> bool:
        for place in places:
            old = self.codec.decode(self.data[place.start : place.end])
            has_returns = "\r" in old.replace("\r\n", "")
            if has_returns and SHOWN_RETURN in old:
                raise ToolFailure(
                    f"The text to replace has both carriage returns and the character {SHOWN_RETURN} by which they are shown, "
                    f"so it is not clear what {SHOWN_RETURN} in the new text means. Nothing was written.",
                    "Replace a smaller part, which has only one of the two.",
                )
            if has_returns or SHOWN_RETURN in old:
                return has_returns
        return False

    def find(self, text: str, *, overlapping: bool = False) -> Iterator[Span]:
        """Where a text occurs, whatever its line ends are in the file."""
        text = self.normalize(text)
        if not self.codec.bytewise or self.has_lone_returns:
            starts = list(_occurrences(self.text, text, overlapping, 0))
            return self._spans(starts, len(text), self._text_measure)
        needle = self.codec.try_encode(text)
        if not needle:
            return iter(())
        if not self.has_carriage_returns:
            return (Span(at, at + len(needle)) for at in _occurrences(self.data, needle, overlapping, self.body))
        normalized = self.data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        return self._spans(list(_occurrences(normalized, needle, overlapping, self.body)), len(needle), _BYTE_MEASURE)

    def byte_span(self, start: int, end: int) -> Span:
        """The bytes of a range of the text."""
        return Span(*self.byte_offsets((start, end)))

    def byte_offsets(self, positions: Sequence[int]) -> list[int]:
        """Byte offsets of ascending positions in the text. Raises `SplitsCharacter` for a position that has none."""
        if not self.has_carriage_returns and self.codec.bytewise and self.data.isascii():
            return [self.body + position for position in positions]
        return self._offsets(positions, self._text_measure)

    def subdocument(self, span: Span) -> Document:
        """A range of this document as one of its own, without byte order mark."""
        return Document(self.data[span.start : span.end], Encoding(self.encoding.name), self.whole or self)

    def line_number(self, offset: int) -> int:
        """The number of the line a byte is in, from 1."""
        return 1 + self.count_line_ends(self.body, offset)

    def count_lines(self) -> int:
        """How many lines there are; what follows the last line end counts if it is not empty."""
        ends = self.count_line_ends(self.body, len(self.data))
        return ends if self.line_start(len(self.data)) >= len(self.data) else ends + 1

    def count_line_ends(self, start: int, end: int) -> int:
        """How many lines end between two byte offsets."""
        if self.codec.unit > 1:
            return self.normalize(self.codec.decode(self.data[start:end])).count("\n")
        ends = self.data.count(b"\n", start, end)
        if self.has_carriage_returns and not self.has_lone_returns:
            ends += self.data.count(b"\r", start, end) - self.data.count(b"\r\n", start, end)
        return ends

    def line_start(self, offset: int, before: int = 0) -> int:
        """Where the line of a byte begins, or the one `before` lines earlier."""
        unit = self.codec.unit
        start = offset + unit
        for _ in range(1 + before):
            if start <= self.body:
                break
            start = self._line_start(start - unit)
        return start

    def _line_start(self, offset: int) -> int:
        unit, newline = self.codec.unit, self.codec.newline
        at = self._rfind(newline, self.body, offset)
        start = self.body if at < 0 else at + unit
        if self.has_carriage_returns and not self.has_lone_returns:
            end = offset - unit if self.data.startswith(newline, offset) else offset
            at = self._rfind(self.codec.carriage_return, start, max(start, end))
            start = start if at < 0 else at + unit
        return start

    def line_end(self, offset: int, after: int = 0) -> int:
        """Where the line of a byte ends, behind its line end, or the one `after` lines later."""
        for _ in range(1 + after):
            if offset >= len(self.data):
                break
            offset = self._line_end(offset)
        return offset

    def _line_end(self, offset: int) -> int:
        unit = self.codec.unit
        at = self._find(self.codec.newline, offset)
        end = len(self.data) if at < 0 else at + unit
        if self.has_carriage_returns and not self.has_lone_returns:
            lone = self._find(self.codec.carriage_return, offset, end)
            if lone >= 0 and lone + 2 * unit != end:
                return lone + unit
        return end

    def newline_near(self, span: Span) -> str:
        """The line end used near a span: the first inside or after it, else the last before it. A lone carriage return is
        one only in a file that has no other."""
        if not self.has_carriage_returns:
            return "\n"
        newline = self.codec.newline
        at = self._find(newline, span.start)
        if at < 0:
            at = self._rfind(newline, self.body, span.start)
        if at < 0:
            return "\r" if self._find(self.codec.carriage_return, self.body) >= 0 else "\n"
        return "\r\n" if self.follows_carriage_return(at) else "\n"

    def follows_carriage_return(self, offset: int) -> bool:
        """Whether a carriage return stands right before a byte."""
        start = offset - self.codec.unit
        return start >= self.body and self.data.startswith(self.codec.carriage_return, start)

    def _find(self, needle: bytes, start: int, end: int | None = None) -> int:
        """Like `bytes.find`, at whole units of the encoding only."""
        at = self.data.find(needle, start, end)
        while at >= 0 and (at - self.body) % self.codec.unit:
            at = self.data.find(needle, at + 1, end)
        return at

    def _rfind(self, needle: bytes, start: int, end: int) -> int:
        at = self.data.rfind(needle, start, end)
        while at >= 0 and (at - self.body) % self.codec.unit:
            at = self.data.rfind(needle, start, at + len(needle) - 1)
        return at

    @cached_property
    def _text_measure(self) -> _Measure:
        return _Measure(self.body, lambda part: len(self.normalize(self.codec.decode(part))), self.codec.width)

    def _spans(self, starts: list[int], length: int, measure: _Measure) -> Iterator[Span]:
        positions = sorted({*starts, *(start + length for start in starts)})
        offsets = dict(zip(positions, self._offsets(positions, measure), strict=True))
        return (Span(offsets[start], offsets[start + length]) for start in starts)

    def _offsets(self, positions: Sequence[int], measure: _Measure) -> list[int]:
        """Byte offsets of ascending positions: whole blocks are passed over, then lines, then characters."""
        offsets: list[int] = []
        passed = beyond = 0
        line_start = block_end = measure.start
        for position in positions:
            while position >= beyond and block_end < len(self.data):
                passed, line_start, block_end = beyond, block_end, self._block_end(block_end)
                beyond += measure.length(self.data[line_start:block_end])
            while True:
                at = self._find(self.codec.newline, line_start, block_end)
                line_end = block_end if at < 0 else at + self.codec.unit
                line = self.data[line_start:line_end]
                length = measure.length(line)
                if position < passed + length or at < 0:
                    break
                passed, line_start = passed + length, line_end
            offsets.append(line_start + measure.width(line, position - passed))
        return offsets

    def _block_end(self, start: int) -> int:
        if len(self.data) - start <= BLOCK:
            return len(self.data)
        at = self._rfind(self.codec.newline, start, start + BLOCK)
        at = self._find(self.codec.newline, start + BLOCK) if at < 0 else at
        return len(self.data) if at < 0 else at + self.codec.unit


class _Measure(Struct, frozen=True):
    """Measures bytes in the units of a normalized view: the length of a part there, and the bytes a part of it takes."""

    start: int
    length: Callable[[bytes], int]
    width: Callable[[bytes, int], int]


_BYTE_MEASURE = _Measure(0, lambda part: len(part) - part.count(b"\r\n"), lambda line, count: count)


def _occurrences(haystack: str | bytes, needle: str | bytes, overlapping: bool, start: int) -> Iterator[int]:
    if not needle:
        return
    step = 1 if overlapping else len(needle)
    at = haystack.find(needle, start)  # type: ignore[arg-type]
    while at >= 0:
        yield at
        at = haystack.find(needle, at + step)  # type: ignore[arg-type]


# Beyond this many pairs of lines, line ends are assigned by position instead of by comparing lines.
MAX_COMPARISONS = 1_000_000
_LINE_WITH_END = re.compile(r"([^\r\n]*)(\r\n|\n|\r)")
_LINE_WITH_FEED = re.compile(r"([^\n]*?)(\r\n|\n)")


class Splice(Struct, frozen=True):
    """Bytes `start` to `end` become `new`."""

    start: int
    end: int
    new: bytes


def apply_splices(data: bytes, splices: Sequence[Splice]) -> bytes:
    """The content after ascending, disjoint splices."""
    view = memoryview(data)
    pieces: list[bytes | memoryview] = []
    at = 0
    for splice in splices:
        pieces += (view[at : splice.start], splice.new)
        at = splice.end
    pieces.append(view[at:])
    return b"".join(pieces)


def diff_bytes(old: bytes, new: bytes) -> Splice:
    """The smallest single splice that turns a content into another."""
    head = common_prefix(old, new)
    tail = common_suffix(old[head:], new[head:])
    return Splice(head, len(old) - tail, new[head : len(new) - tail])


def replace_span(document: Document, span: Span, new: str) -> Splice:
    """The smallest splice that turns the text of a span into `new`, in the file's own encoding and line ends."""
    new, data = new.replace("\r\n", "\n"), document.data[span.start : span.end]
    if not document.has_carriage_returns and document.codec.bytewise and data.isascii():
        # Bytes are characters here, and every line end in the file is the same.
        smallest = diff_bytes(data, document.codec.encode(new))
        return Splice(span.start + smallest.start, span.start + smallest.end, smallest.new)
    part = document.subdocument(span)
    old = part.text
    head = common_prefix(old, new)
    tail = common_suffix(old[head:], new[head:])
    try:
        start, end = part.byte_offsets((head, len(old) - tail))
    except SplitsCharacter:
        head, tail, start, end = 0, 0, 0, span.end - span.start
    middle = Span(span.start + start, span.start + end)
    text = _with_line_ends(
        new[head : len(new) - tail],
        document.codec.decode(document.data[middle.start : middle.end]),
        _LINE_WITH_FEED if document.has_lone_returns else _LINE_WITH_END,
        document.newline_near(Span(middle.start, span.end)),
    )
    text = document.restore_returns(text, middle, span)
    return Splice(middle.start, middle.end, document.codec.encode(_separate_line_ends(text, document, middle)))


def replace_text(document: Document, new: str) -> Splice:
    """The splice that makes `new` the whole text of a document."""
    return replace_span(document, Span(document.body, len(document.data)), new)


def common_prefix(one: Sequence[Any], other: Sequence[Any]) -> int:
    """How many characters, bytes or lines two texts begin with alike."""
    low, high = 0, min(len(one), len(other))
    if one[:high] == other[:high]:
        return high
    while high - low > 1:
        half = (low + high) // 2
        if one[low:half] == other[low:half]:
            low = half
        else:
            high = half
    return low


def common_suffix(one: Sequence[Any], other: Sequence[Any]) -> int:
    """How many characters, bytes or lines two texts end with alike."""
    low, high = 0, min(len(one), len(other))
    if one[len(one) - high :] == other[len(other) - high :]:
        return high
    while high - low > 1:
        half = (low + high) // 2
        if one[len(one) - half : len(one) - low] == other[len(other) - half : len(other) - low]:
            low = half
        else:
            high = half
    return low


def _separate_line_ends(text: str, document: Document, span: Span) -> str:
    """Change the line ends at the edges of a new text where a carriage return and a line feed would come to lie side by
    side and make one line end of two."""
    follows = document.follows_carriage_return(span.start)
    precedes = document.data.startswith(document.codec.newline, span.end)
    if follows and not text and precedes:
        return "\r"
    if document.has_lone_returns:
        text = f"\r{text}" if follows and text.startswith("\n") else text
        return f"{text}\r" if precedes and text.endswith("\r") else text
    if follows:
        rest = text.lstrip("\n")
        text = "\r" * (len(text) - len(rest)) + rest
    return text + "\n" if precedes and text.endswith("\r") else text


def _with_line_ends(new: str, old: str, pattern: re.Pattern[str], neighbor: str) -> str:
    """`new`, with `\\n` ends, as it belongs in place of `old`, whose line ends are as in the file."""
    if "\n" not in new:
        return new
    lines = pattern.findall(old)
    kinds = {end for _, end in lines}
    if len(kinds) > 1:
        texts = new.split("\n")
        ends = _aligned_line_ends([text for text, _ in lines], [end for _, end in lines], texts[:-1])
        return "".join(map("".join, zip(texts, _never_joined(texts, ends), strict=False))) + texts[-1]
    end = kinds.pop() if kinds else neighbor
    return new if end == "\n" else new.replace("\n", end)


def _never_joined(lines: list[str], ends: Iterable[str]) -> Iterator[str]:
    """The line ends, none of which joins with the end of the line before: an empty line ends as that does."""
    last = ""
    for line, end in zip(lines, ends, strict=False):
        last = "\r" if not line and last == "\r" and end == "\n" else end
        yield last


def _aligned_line_ends(old: list[str], ends: list[str], new: list[str]) -> Iterator[str]:
    """One line end for each new line: that of the line it equals or replaces, else of the one before."""
    if len(old) * len(new) > MAX_COMPARISONS:
        yield from (ends[min(i, len(ends) - 1)] for i in range(len(new)))
        return
    last = ends[0]
    for _, i, j, k, m in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        for n in range(m - k):
            if i + n < j:
                last = ends[i + n]
            yield last
