"""Styles of the terminal: the attributes and the 16 colors every terminal has, as escape sequences or not at all."""

from __future__ import annotations

import os
from collections.abc import Mapping

from wieldy.terminal.text import Row, Span

ATTRIBUTES: Mapping[str, str] = {
    "bold": "1",
    "dim": "2",
    "italic": "3",
    "underline": "4",
    "reverse": "7",
    "strike": "9",
}
# Neither black nor white: one of them is the background.
COLORS: Mapping[str, str] = {"red": "31", "green": "32", "yellow": "33", "blue": "34", "magenta": "35", "cyan": "36"}
RESET = "\x1b[0m"


class Palette:
    """Turns styled rows into text with escape sequences."""

    def __init__(self, *, attributes: bool = True, colors: bool = True) -> None:
        self._codes = {**(ATTRIBUTES if attributes else {}), **(COLORS if colors else {})}
        self._cache: dict[str, str] = {}

    @classmethod
    def for_terminal(cls, env: Mapping[str, str] = os.environ) -> Palette:
        """No colors with `NO_COLOR`; nothing at all on a dumb terminal."""
        dumb = env.get("TERM", "") in ("dumb", "")
        return cls(attributes=not dumb, colors=not dumb and not env.get("NO_COLOR"))

    def encode(self, row: Row) -> str:
        """Return the text of a row with its styles; each styled span ends with a reset."""
        return "".join([self.encode_span(span) for span in row])

    def encode_span(self, span: Span) -> str:
        if not span.style or not span.text:
            return span.text
        start = self._cache.get(span.style)
        if start is None:
            codes = [self._codes[word] for word in span.style.split() if word in self._codes]
            start = self._cache[span.style] = f"\x1b[{';'.join(codes)}m" if codes else ""
        return f"{start}{span.text}{RESET}" if start else span.text
