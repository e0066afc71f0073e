"""Replace ranges of bytes; everything else stays bit for bit as it was."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from typing import AnyStr

from msgspec import Struct

from wieldy.files.editing.document import Document, Span, SplitsCharacter

# Beyond this many pairs of lines, line ends are assigned by position instead of by comparing lines.
MAX_COMPARISONS = 1_000_000
_LINE_WITH_END = re.compile(r"([^\r\n]*)(\r\n|\n|\r)")
_LINE_WITH_FEED = re.compile(r"([^\n]*?)(\r\n|\n)")


class Splice(Struct, frozen=True):
    """Bytes `start` to `end` become `new`."""

    start: int
    end: int
    new: bytes

    @property
    def growth(self) -> int:
        """How many bytes longer the content gets."""
        return len(self.new) - (self.end - self.start)


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


def common_prefix(one: AnyStr, other: AnyStr) -> int:
    """How many characters, or bytes, two texts begin with alike."""
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


def common_suffix(one: AnyStr, other: AnyStr) -> int:
    """How many characters, or bytes, two texts end with alike."""
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
