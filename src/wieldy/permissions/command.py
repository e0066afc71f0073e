"""The pattern inside `Bash(…)`: an exact command, a prefix that ends at a word, or `*` anywhere."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, TypeAlias

from wieldy.schema.pattern import pattern

Shape: TypeAlias = Literal["exact", "prefix", "glob"]

_UNESCAPED_STAR = pattern(r"(?<!\\)\*")
_BLANK = " \t\n"


class CommandPattern:
    """What a command rule matches. `\\*` is an asterisk, `*` anything, a last `:*` or ` *` any further words."""

    __slots__ = ("first_word", "literal", "needle", "open_end", "pieces", "shape")

    def __init__(self, specifier: str) -> None:
        self.open_end = specifier.endswith((":*", " *"))
        body = (specifier[:-2] if self.open_end else specifier).strip(" ")
        self.pieces = tuple(piece.replace(r"\*", "*") for piece in _UNESCAPED_STAR.split(body))
        single = len(self.pieces) == 1
        self.shape: Shape = "glob" if not single else "prefix" if self.open_end else "exact"
        self.literal = self.pieces[0]
        self.first_word = _fixed_first_word(self.pieces)
        self.needle = max(self.pieces, key=len)

    def matches(self, command: str) -> bool:
        """Whether the whole command text is covered. Linear in the command for any number of `*`."""
        if self.shape == "exact":
            return command == self.literal
        if not command.startswith(self.literal):
            return False
        if self.shape == "prefix":
            return _ends_word(command, len(self.literal))
        return _rest_matches(command, self.pieces, self.open_end)


def _rest_matches(command: str, pieces: Sequence[str], open_end: bool) -> bool:
    position = len(pieces[0])
    for piece in pieces[1:-1]:
        found = command.find(piece, position)
        if found < 0:
            return False
        position = found + len(piece)
    last = pieces[-1]
    if not open_end:
        return len(command) - len(last) >= position and command.endswith(last)
    found = command.find(last, position)
    while found >= 0:
        if _ends_word(command, found + len(last)):
            return True
        found = command.find(last, found + 1)
    return False


def _ends_word(command: str, at: int) -> bool:
    return at == len(command) or command[at] in _BLANK


def _fixed_first_word(pieces: Sequence[str]) -> str | None:
    word = re.split(r"[ \t]", pieces[0], maxsplit=1)[0]
    open_word = len(pieces) > 1 and len(word) == len(pieces[0])
    return None if open_word or not word else word


def wildcard(pattern: str, text: str) -> bool:
    """Whether a text matches a pattern in which `*` is any text and `\\*` an asterisk."""
    pieces = tuple(piece.replace(r"\*", "*") for piece in _UNESCAPED_STAR.split(pattern))
    if len(pieces) == 1:
        return text == pieces[0]
    return text.startswith(pieces[0]) and _rest_matches(text, pieces, open_end=False)


def escaped(command: str) -> str:
    """A command as a specifier that matches exactly it."""
    return command.replace("*", r"\*")
