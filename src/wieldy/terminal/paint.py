"""Colour, where the terminal takes it and the person has not switched it off."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Literal, TextIO, TypeAlias

Style: TypeAlias = Literal["bold", "dim", "red", "green", "yellow", "cyan"]

_CODES: Mapping[Style, str] = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


class Paint:
    """Puts a style round a text, or leaves it as it is."""

    def __init__(self, on: bool) -> None:
        self.on = on

    @classmethod
    def for_stream(cls, stream: TextIO | None = None, env: Mapping[str, str] = os.environ) -> Paint:
        """On for a terminal, unless `NO_COLOR` is set or the terminal is dumb."""
        stream = stream or sys.stdout
        return cls(stream.isatty() and not env.get("NO_COLOR") and env.get("TERM") != "dumb")

    def __call__(self, text: str, *styles: Style) -> str:
        """The text in these styles."""
        if not self.on or not styles:
            return text
        return f"\x1b[{';'.join(_CODES[style] for style in styles)}m{text}\x1b[0m"
