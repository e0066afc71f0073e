"""Text as a terminal shows it: control characters made visible, width by grapheme, wrapping and clipping of styled rows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeAlias, cast

from wieldy.core.console import Fragment, Style, StyledText
from wieldy.core.text import escape_controls

TAB_WIDTH = 4
ELLIPSIS = "…"

_COLOR_SEQUENCE = re.compile("\x1b\\[[0-9;:]*m")
_URL = re.compile(r"https?://\S+")
_WORDS = re.compile(r"\s+|\S+")


class TextSpan(NamedTuple):
    """A piece of text in one style: words such as `bold` or `dim red`, or none."""

    text: str
    style: str = ""


Row: TypeAlias = tuple[TextSpan, ...]


def make_printable(text: str) -> str:
    """Spell out control characters, except line breaks; drop color sequences, expand tabs.

    What comes out passes the gate of `console` unchanged, so that its width is known before it is written.
    """
    if text.isascii() and text.isprintable():
        return text
    if "\x1b" in text:
        text = _COLOR_SEQUENCE.sub("", text)
    text = escape_controls(text)
    return text.expandtabs(TAB_WIDTH) if "\t" in text else text


def to_line(text: str, limit: int = 2_000) -> str:
    """Return the text as one printable line; only its beginning where it is long."""
    cut = len(text) > limit
    return make_printable(text[:limit]).replace("\n", "⏎") + (ELLIPSIS if cut else "")


def display_width(text: str) -> int:
    """Return the number of columns of a printable text."""
    if text.isascii():
        return len(text)
    return _wide_width(text)


@lru_cache(maxsize=4096)
def _wide_width(text: str) -> int:
    from wcwidth import wcswidth

    columns = wcswidth(text)
    return columns if columns >= 0 else len(text)


def graphemes(text: str) -> Iterator[str]:
    """Yield what a reader takes for one character: a letter with its accents, an emoji with its parts."""
    if text.isascii():
        return iter(text)
    from wcwidth import iter_graphemes

    return iter_graphemes(text)


def row_width(row: Row) -> int:
    return sum(display_width(span.text) for span in row)


@lru_cache(maxsize=256)
def _styles(names: str) -> tuple[Style, ...]:
    return cast("tuple[Style, ...]", tuple(names.split()))


def row_fragments(row: Row) -> list[Fragment]:
    return [StyledText(span.text, _styles(span.style)) if span.style else span.text for span in row]


def row_text(row: Row) -> str:
    return "".join(span.text for span in row)


def split_at_width(text: str, width: int) -> tuple[str, str]:
    """Split a text after as many graphemes as fit into the width."""
    if text.isascii():
        return text[:width], text[width:]
    used = length = 0
    for grapheme in graphemes(text):
        columns = display_width(grapheme)
        if used + columns > width:
            break
        used += columns
        length += len(grapheme)
    return text[:length], text[length:]


def clip_text(text: str, width: int) -> str:
    """Cut a text to the width, marking the cut."""
    if len(text) <= width and text.isascii():
        return text
    beginning, rest = split_at_width(text[: 4 * max(width, 1) + 64], max(width, 0))
    if not rest and len(beginning) == len(text):
        return text
    return split_at_width(beginning, width - 1)[0] + ELLIPSIS if width > 0 else ""


def clip_row(row: Row, width: int) -> Row:
    """Cut a row to the width, marking the cut."""
    spans: list[TextSpan] = []
    left = width
    for span in row:
        columns = display_width(span.text) if len(span.text) <= 4 * width + 64 else width + 1
        if columns > left:
            if left > 0:
                spans.append(TextSpan(clip_text(span.text, left), span.style))
            elif spans:
                last = spans[-1]
                spans[-1] = TextSpan(clip_text(last.text + " ", max(display_width(last.text), 1)), last.style)
            break
        spans.append(span)
        left -= columns
    return tuple(spans)


def wrap_spans(
    spans: Iterable[TextSpan], width: int, *, first: Sequence[TextSpan] = (), rest: Sequence[TextSpan] | None = None
) -> list[Row]:
    """Wrap text at blanks. `first` and `rest` precede the first and the other rows. A web address is never broken."""
    rest = first if rest is None else rest
    rows: list[Row] = []
    wrapping = _Wrapping(width, tuple(first), tuple(rest), rows)
    for span in spans:
        for number, line in enumerate(span.text.split("\n")):
            if number:
                wrapping.end_row()
            for word in _WORDS.findall(line):
                wrapping.add(word, span.style)
    wrapping.end_row()
    return rows


def merge_spans(spans: Iterable[TextSpan]) -> Row:
    """Join neighbors of one style."""
    merged: list[TextSpan] = []
    for span in spans:
        if merged and merged[-1].style == span.style:
            merged[-1] = TextSpan(merged[-1].text + span.text, span.style)
        else:
            merged.append(span)
    return tuple(merged)


class _Wrapping:
    """Fills rows word by word. A word may consist of several spans: it is held back until a blank follows."""

    def __init__(self, width: int, first: Row, rest: Row, rows: list[Row]) -> None:
        self._width = max(width, 8)
        self._rest = rest
        self._rows = rows
        self._start(first)
        self._word: list[TextSpan] = []
        self._blank: TextSpan | None = None

    def _start(self, prefix: Row) -> None:
        self._row = list(prefix)
        self._used = row_width(prefix)
        self._empty = True

    def add(self, word: str, style: str) -> None:
        if word.isspace():
            self._place_word()
            self._blank = TextSpan((self._blank.text if self._blank else "") + word, style)
        else:
            self._word.append(TextSpan(word, style))

    def end_row(self) -> None:
        self._place_word()
        self._blank = None
        self._next_row()

    def _next_row(self) -> None:
        self._rows.append(merge_spans(self._row))
        self._start(self._rest)

    def _place_word(self) -> None:
        if not self._word:
            return
        word, self._word = self._word, []
        columns = sum(display_width(span.text) for span in word)
        blank, self._blank = self._blank, None
        if blank is not None and (not self._empty or self._is_first_row()):
            blank_columns = display_width(blank.text)
            if self._used + blank_columns + columns <= self._width:
                self._row.append(blank)
                self._used += blank_columns
            elif not self._empty:
                self._next_row()
        elif not self._empty and self._used + columns > self._width and blank is not None:
            self._next_row()
        if self._used + columns > self._width and not _URL.search("".join(span.text for span in word)):
            self._break_word(word)
            return
        self._row.extend(word)
        self._used += columns
        self._empty = False

    def _is_first_row(self) -> bool:
        return not self._rows

    def _break_word(self, word: list[TextSpan]) -> None:
        for text, style in word:
            rest = text
            while rest:
                fitting, rest = split_at_width(rest, self._width - self._used)
                if not fitting and self._empty:
                    fitting, rest = rest[:1], rest[1:]  # wider than the whole row
                if fitting:
                    self._row.append(TextSpan(fitting, style))
                    self._used += display_width(fitting)
                    self._empty = False
                if rest:
                    self._next_row()
