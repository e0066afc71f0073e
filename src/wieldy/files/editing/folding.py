"""Fold typography: quotes, dashes, odd spaces, full-width forms and decomposed characters become plain ones."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left, bisect_right
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


class FoldedSegment(Struct, frozen=True):
    """A range whose length folding changes."""

    folded: int
    folded_length: int
    source: int
    source_length: int


class FoldedText(Struct, frozen=True):
    """A folded text, and where positions in it are in the source. Positions inside a range that was folded as one are None."""

    text: str
    segments: tuple[FoldedSegment, ...] = ()

    def source_start(self, position: int) -> int | None:
        """Where a range that begins here begins in the source."""
        index = bisect_right(self.segments, position, key=lambda segment: segment.folded) - 1
        if index < 0:
            return position
        segment = self.segments[index]
        if position == segment.folded and segment.folded_length:
            return segment.source
        return _source_after(segment, position)

    def source_end(self, position: int) -> int | None:
        """Where a range that ends here ends in the source."""
        index = bisect_left(self.segments, position, key=lambda segment: segment.folded)
        if index < len(self.segments) and self.segments[index].folded == position:
            return self.segments[index].source
        return _source_after(self.segments[index - 1], position) if index else position

    def folded_position(self, source: int) -> int | None:
        """Where a position of the source is in the folded text."""
        index = bisect_right(self.segments, source, key=lambda segment: segment.source) - 1
        if index < 0:
            return source
        segment = self.segments[index]
        if source == segment.source:
            return segment.folded
        rest = source - segment.source - segment.source_length
        return None if rest < 0 else segment.folded + segment.folded_length + rest


def fold(text: str) -> FoldedText:
    """Fold a text, keeping the way back."""
    if text.isascii():
        return FoldedText(text)
    pieces: list[str] = []
    segments: list[FoldedSegment] = []
    source = folded = 0
    for match in _length_changes(unicodedata.is_normalized("NFC", text)).finditer(text):
        old = match.group()
        new = "..." if old == "…" else "" if old in INVISIBLE else unicodedata.normalize("NFC", old)
        if len(old) == len(new) == 1:
            continue
        pieces += (text[source : match.start()], new)
        folded += match.start() - source
        segments.append(FoldedSegment(folded, len(new), match.start(), len(old)))
        folded, source = folded + len(new), match.end()
    pieces.append(text[source:])
    return FoldedText("".join(pieces).translate(PLAIN), tuple(segments))


def fold_text(text: str) -> str:
    """The folded form of a text, where the way back is not needed."""
    return text if text.isascii() else fold(text).text


def _source_after(segment: FoldedSegment, position: int) -> int | None:
    rest = position - segment.folded - segment.folded_length
    return None if rest < 0 else segment.source + segment.source_length + rest


@cache
def _length_changes(composed: bool) -> re.Pattern[str]:
    """Matches what folding may change in length; in composed (NFC) text there are no combining sequences to look for."""
    simple = f"…|[{INVISIBLE}]"
    if composed:
        return re.compile(simple)
    marks = "".join(char for char in map(chr, range(0x300, 0x1F000)) if unicodedata.combining(char))
    return re.compile(f"[^\n…{INVISIBLE}][{marks}]+|[\u1100-\u1112][\u1161-\u1175][\u11a8-\u11c2]?|{simple}")
