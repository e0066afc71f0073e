"""Typographic folding: quotes, dashes, odd spaces, full-width forms and compositions made plain, with a way back."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from functools import cache

from msgspec import Struct

SINGLE_QUOTES = "‘’‚‛′´ʼ"
DOUBLE_QUOTES = "“”„‟″"
DASHES = "‐‑‒–—―−﹣"
SPACES = "\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"
INVISIBLE = "\u00ad\u200b\u200c\u200d\u2060\ufeff"
# Bytes that did not decode are shown to the model as replacement characters.
UNDECODED = "".join(map(chr, range(0xDC80, 0xDD00)))

PLAIN: dict[int, int] = {
    **{ord(char): ord("'") for char in SINGLE_QUOTES},
    **{ord(char): ord('"') for char in DOUBLE_QUOTES},
    **{ord(char): ord("-") for char in DASHES},
    **{ord(char): ord(" ") for char in SPACES},
    **{ord(char): 0xFFFD for char in UNDECODED},
    **{full: full - 0xFEE0 for full in range(0xFF01, 0xFF5F)},
    ord("。"): ord("."),
    ord("、"): ord(","),
}


class Segment(Struct, frozen=True):
    """A stretch whose length folding changes."""

    folded: int
    folded_length: int
    source: int
    source_length: int


class Folded(Struct, frozen=True):
    """A folded text and where its pieces came from."""

    text: str
    segments: tuple[Segment, ...] = ()

    def source_start(self, place: int) -> int | None:
        """Where a stretch that begins here begins in the source; None inside a piece that cannot be cut."""
        index = bisect_right(self.segments, place, key=lambda segment: segment.folded) - 1
        if index < 0:
            return place
        segment = self.segments[index]
        if place == segment.folded and segment.folded_length:
            return segment.source
        return _behind(segment, place)

    def source_end(self, place: int) -> int | None:
        """Where a stretch that ends here ends in the source; None inside a piece that cannot be cut."""
        index = bisect_left(self.segments, place, key=lambda segment: segment.folded)
        if index < len(self.segments) and self.segments[index].folded == place:
            return self.segments[index].source
        return _behind(self.segments[index - 1], place) if index else place

    def folded_place(self, source: int) -> int | None:
        """Where a place of the source is in the folded text; None inside a piece that cannot be cut."""
        index = bisect_right(self.segments, source, key=lambda segment: segment.source) - 1
        if index < 0:
            return source
        segment = self.segments[index]
        if source == segment.source:
            return segment.folded
        rest = source - segment.source - segment.source_length
        return None if rest < 0 else segment.folded + segment.folded_length + rest


def fold(text: str) -> Folded:
    """The plain form of a text."""
    if text.isascii():
        return Folded(text)
    pieces: list[str] = []
    segments: list[Segment] = []
    read = written = 0
    for found in _uneven(unicodedata.is_normalized("NFC", text)).finditer(text):
        old, new = found.group(), _evened(found.group())
        if len(old) == len(new) == 1:
            continue
        pieces += (text[read : found.start()], new)
        written += found.start() - read
        segments.append(Segment(written, len(new), found.start(), len(old)))
        written, read = written + len(new), found.end()
    pieces.append(text[read:])
    return Folded("".join(pieces).translate(PLAIN), tuple(segments))


def plain(text: str) -> str:
    """The plain form of a text, where the way back is not needed."""
    return text if text.isascii() else fold(text).text


def _behind(segment: Segment, place: int) -> int | None:
    rest = place - segment.folded - segment.folded_length
    return None if rest < 0 else segment.source + segment.source_length + rest


def _evened(piece: str) -> str:
    if piece == "…":
        return "..."
    return "" if piece in INVISIBLE else unicodedata.normalize("NFC", piece)


@cache
def _uneven(composed: bool) -> re.Pattern[str]:
    simple = f"…|[{INVISIBLE}]"
    if composed:
        return re.compile(simple)
    return re.compile(f"[^\n…{INVISIBLE}][{_marks()}]+|[\u1100-\u1112][\u1161-\u1175][\u11a8-\u11c2]?|{simple}")


def _marks() -> str:
    is_mark: Callable[[str], int] = unicodedata.combining
    return "".join(char for char in map(chr, range(0x300, 0x1F000)) if is_mark(char))


__all__ = ["DOUBLE_QUOTES", "PLAIN", "SINGLE_QUOTES", "SPACES", "Folded", "Segment", "fold", "plain"]
