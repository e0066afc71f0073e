"""A file's bytes seen as text with `\\n` line ends, and the way back from places in the text to places in the bytes."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from wieldy.edit.codec import Codec
from wieldy.text.encoding import Encoding, detect

_LINE_END = re.compile("\r\n|\n|\r")
_LINE_END_BYTES = re.compile(rb"\r\n|\n|\r")


class Span(NamedTuple):
    """A stretch of bytes."""

    start: int
    end: int


def unix(text: str) -> str:
    """A text with every line end as `\\n`."""
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


@dataclass(frozen=True)
class Document:
    """The content of one file. Searching happens in its text, changing in its bytes."""

    data: bytes
    encoding: Encoding

    @staticmethod
    def of(data: bytes) -> Document:
        """The document some bytes are, by their own look."""
        return Document(data, detect(data))

    @cached_property
    def codec(self) -> Codec:
        """The encoding at work."""
        return Codec(self.encoding)

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
            return self._spans(list(_occurrences(self.text, needle, overlapping)), len(needle))
        wanted = self.codec.needle(needle)
        if not wanted:
            return iter(())
        starts = _occurrences(self._bytes_with_unix_ends, wanted, overlapping)
        inside = (start for start in starts if start >= self.body)
        if b"\r" not in self.data:
            return (Span(start, start + len(wanted)) for start in inside)
        return self._spans_in_bytes(list(inside), len(wanted))

    def span(self, start: int, end: int) -> Span:
        """The bytes of a stretch of the text."""
        return Span(*self.offsets((start, end)))

    def offsets(self, places: Sequence[int]) -> list[int]:
        """Byte offsets of ascending places in the text. Raises `SplitsCharacter` for a place that has none."""
        if b"\r" not in self.data and self.codec.bytewise and self.text.isascii():
            return [self.body + place for place in places]
        return self._walked(places, self.codec.decode, self.codec.width, self.body)

    def slice(self, span: Span) -> Document:
        """A stretch of this document as one of its own, without byte order mark."""
        return Document(self.data[span.start : span.end], Encoding(self.encoding.name, sure=self.encoding.sure))

    def line_number(self, offset: int) -> int:
        """The number of the line a byte is in, from 1."""
        if self._plain:
            return self.data.count(b"\n", 0, offset) + 1
        return max(bisect_right(self._line_starts, offset), 1)

    def lines_between(self, start: int, end: int) -> int:
        """How many lines end between two bytes."""
        if self._plain:
            return self.data.count(b"\n", start, end)
        return self.line_number(end) - self.line_number(start)

    def lines(self) -> int:
        """How many lines there are; what follows the last line end counts if it is not empty."""
        if self._plain:
            return self.data.count(b"\n") + (not self.empty and not self.data.endswith(b"\n"))
        return len(self._line_starts) - (self._line_starts[-1] >= len(self.data))

    def line_start(self, offset: int) -> int:
        """Where the line of a byte begins."""
        if self._plain:
            return max(self.data.rfind(b"\n", 0, offset) + 1, self.body)
        return self._line_starts[max(bisect_right(self._line_starts, offset) - 1, 0)]

    def line_end(self, offset: int) -> int:
        """Where the line of a byte ends, behind its line end."""
        if self._plain:
            return self.data.find(b"\n", offset) + 1 or len(self.data)
        index = bisect_right(self._line_starts, offset)
        return self._line_starts[index] if index < len(self._line_starts) else len(self.data)

    def newline_by(self, span: Span) -> str:
        """The line end that belongs near a stretch: the first inside or behind it, else the last before it. A lone
        carriage return is one only in a file that has no other."""
        newline, unit = self.codec.newline, self.codec.unit
        at = self._next(newline, span.start)
        if at < 0:
            at = self._last(newline, span.start)
        carriage_return = "\r".encode(self.codec.name)
        if at < 0:
            return "\r" if self._next(carriage_return, self.body) >= 0 else "\n"
        return "\r\n" if at - unit >= self.body and self.data[at - unit : at] == carriage_return else "\n"

    @cached_property
    def _plain(self) -> bool:
        """Whether lines end with the byte of a line feed and with nothing else."""
        return self.codec.unit == 1 and b"\r" not in self.data

    @cached_property
    def _line_starts(self) -> array[int]:
        starts = array("Q", (self.body,))
        if self.codec.unit == 1:
            starts.extend(end.end() for end in _LINE_END_BYTES.finditer(self.data, self.body))
            return starts
        text, read, offset = self.codec.decode(self.data[self.body :]), 0, self.body
        for end in _LINE_END.finditer(text):
            offset += len(self.codec.encode(text[read : end.end()]))
            read = end.end()
            starts.append(offset)
        return starts

    def _next(self, wanted: bytes, start: int) -> int:
        at = self.data.find(wanted, start)
        while at >= 0 and (at - self.body) % self.codec.unit:
            at = self.data.find(wanted, at + 1)
        return at

    def _last(self, wanted: bytes, end: int) -> int:
        at = self.data.rfind(wanted, self.body, end)
        while at >= 0 and (at - self.body) % self.codec.unit:
            at = self.data.rfind(wanted, self.body, at + len(wanted) - 1)
        return at

    @cached_property
    def _bytes_with_unix_ends(self) -> bytes:
        if b"\r" not in self.data:
            return self.data
        return self.data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _spans_in_bytes(self, starts: list[int], length: int) -> Iterator[Span]:
        return self._paired(
            starts, length, lambda places: self._walked(places, lambda line: line, lambda line, count: count, 0)
        )

    def _spans(self, starts: list[int], length: int) -> Iterator[Span]:
        return self._paired(starts, length, self.offsets)

    def _paired(self, starts: list[int], length: int, offsets: Callable[[Sequence[int]], list[int]]) -> Iterator[Span]:
        if not starts:
            return iter(())
        places = sorted({*starts, *(start + length for start in starts)})
        found = dict(zip(places, offsets(places), strict=True))
        return (Span(found[start], found[start + length]) for start in starts)

    def _walked(
        self,
        places: Sequence[int],
        seen_as: Callable[[bytes], str | bytes],
        width: Callable[[bytes, int], int],
        begin: int,
    ) -> list[int]:
        """Offsets of ascending places in the text or in the bytes with unix line ends, line by line."""
        offsets: list[int] = []
        passed, line_start, waiting = 0, begin, iter(places)
        place = next(waiting, None)
        while place is not None:
            found = self._next(self.codec.newline, line_start)
            line_end = len(self.data) if found < 0 else found + self.codec.unit
            line = self.data[line_start:line_end]
            seen = seen_as(line)
            length = len(seen) - (seen[-2:] in ("\r\n", b"\r\n"))
            while place is not None and (place < passed + length or found < 0):
                offsets.append(line_start + width(line, place - passed))
                place = next(waiting, None)
            passed, line_start = passed + length, line_end
        return offsets


def _occurrences(haystack: str | bytes, needle: str | bytes, overlapping: bool) -> Iterator[int]:
    if not needle:
        return
    step = 1 if overlapping else len(needle)
    at = haystack.find(needle)  # type: ignore[arg-type]
    while at >= 0:
        yield at
        at = haystack.find(needle, at + step)  # type: ignore[arg-type]
