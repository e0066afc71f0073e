"""Replacing stretches of bytes by others: all the rest stays bit for bit as it was."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Sequence

from msgspec import Struct

from wieldy.files.editing.document import Document, Mark, Span, SplitsCharacter
from wieldy.files.editing.restyling import with_endings
from wieldy.files.encodings import UTF8, decodes

BLOCK = 1 << 14


def common_prefix_length(one: bytes, other: bytes) -> int:
    """How many bytes two contents begin with alike."""
    shortest = min(len(one), len(other))
    at = 0
    while at < shortest:
        end = min(at + BLOCK, shortest)
        here, there = one[at:end], other[at:end]
        if here != there:
            apart = int.from_bytes(here, "big") ^ int.from_bytes(there, "big")
            return end - (apart.bit_length() + 7) // 8
        at = end
    return shortest


def same_end(one: bytes, other: bytes, most: int) -> int:
    """How many bytes, but no more than `most`, two contents end with alike."""
    done = 0
    while done < most:
        upto = min(done + BLOCK, most)
        here, there = one[len(one) - upto : len(one) - done], other[len(other) - upto : len(other) - done]
        if here != there:
            apart = int.from_bytes(here, "little") ^ int.from_bytes(there, "little")
            return upto - (apart.bit_length() + 7) // 8
        done = upto
    return most


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


def known_after(before: Document, splices: Sequence[Splice], after: bytes, mark: Mark | None) -> Document | None:
    """The document that splices lead to, where its encoding needs no looking for: valid UTF-8 cut between characters,
    with valid UTF-8 put in, stays that, unless it looks like something else by a NUL or at its start. `mark` is a line
    before the first splice."""
    if before.encoding != UTF8 or after.startswith(BOM_UTF8) or b"\0" in after:
        return None
    plain = not before.returns
    for splice in splices:
        if _splits_utf8(before.data, splice.start) or _splits_utf8(before.data, splice.end):
            return None
        if not splice.new.isascii() and not decodes(splice.new, "utf-8"):
            return None
        plain = plain and b"\r" not in splice.new
    return Document(after, UTF8, mark, plain)


def _splits_utf8(data: bytes, offset: int) -> bool:
    return offset < len(data) and 0x80 <= data[offset] < 0xC0


def splice(document: Document, span: Span, new: str) -> Splice:
    """The least splice that turns the text of a span into `new`, in the file's own encoding and line ends."""
    new, data = unix_ends(new), document.data[span.start : span.end]
    if not document.returns and document.codec.bytewise and data.isascii():
        # Bytes are characters here, and every line end in the file is the same.
        least = diff_bytes(data, document.codec.encode(new))
        return Splice(span.start + least.start, span.start + least.end, least.new)
    part = document.slice(span)
    old = part.text
    head = common_prefix(old, new)
    tail = common_suffix(old[head:], new[head:])
    try:
        start, end = part.offsets((head, len(old) - tail))
    except SplitsCharacter:
        head, tail, start, end = 0, 0, 0, span.end - span.start
    middle = Span(span.start + start, span.start + end)
    text = with_endings(
        new[head : len(new) - tail],
        document.codec.decode(document.data[middle.start : middle.end]),
        document.newline_by(Span(middle.start, span.end)),
    )
    return Splice(middle.start, middle.end, document.codec.encode(_kept_apart(text, document, middle)))


def _kept_apart(text: str, document: Document, span: Span) -> str:
    """A text as it must be put in place of a span lest it make one line end of two: of a carriage return and a line feed
    that come to lie side by side."""
    follows = document.starts_line_with_return(span.start)
    precedes = document.data.startswith(document.codec.newline, span.end)
    if follows and not text and precedes:
        return "\r"
    if follows:
        rest = text.lstrip("\n")
        text = "\r" * (len(text) - len(rest)) + rest
    return text + "\n" if precedes and text.endswith("\r") else text


def splices(document: Document, spans: Sequence[Span], new: str) -> tuple[Splice, ...]:
    """The least splices that turn the text of each span into `new`."""
    if len(spans) == 1:
        return (splice(document, spans[0], new),)
    # What becomes of a span depends on nothing but its bytes and, if there are carriage returns, on the line ends beside it.
    known: dict[tuple[bytes, object], Splice] = {}
    made: list[Splice] = []
    for span in spans:
        old = document.data[span.start : span.end], _line_ends_beside(document, span) if document.returns else None
        if old not in known:
            first = splice(document, span, new)
            known[old] = Splice(first.start - span.start, first.end - span.start, first.new)
        least = known[old]
        made.append(Splice(span.start + least.start, span.start + least.end, least.new))
    return tuple(made)


def _line_ends_beside(document: Document, span: Span) -> tuple[str, bool, bool]:
    return (
        document.newline_by(Span(span.end, span.end)),
        document.starts_line_with_return(span.start),
        document.data.startswith(document.codec.newline, span.end),
    )


def unix_ends(text: str) -> str:
    """A text whose line ends are `\\n`; a lone carriage return is a character like any other."""
    return text.replace("\r\n", "\n") if "\r\n" in text else text


def common_prefix(one: str, other: str) -> int:
    """How many characters two texts begin with alike."""
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


def common_suffix(one: str, other: str) -> int:
    """How many characters two texts end with alike."""
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


def whole(document: Document, new: str) -> Splice:
    """The splice that makes `new` the whole text of a document."""
    return splice(document, Span(document.body, len(document.data)), new)


def diff_bytes(old: bytes, new: bytes) -> Splice:
    """The one least splice that turns a content into another."""
    head = common_prefix_length(old, new)
    tail = same_end(old, new, min(len(old), len(new)) - head)
    return Splice(head, len(old) - tail, new[head : len(new) - tail])
