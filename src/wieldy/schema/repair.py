"""One pass over almost-JSON: it follows the grammar token by token and mends what can only be meant one way.

Mended are trailing commas, Python's `True`, `False` and `None`, raw control characters inside strings (kept as they
are), and surplus closing braces at the very end. A text that stops too early is told apart from one that is wrong.
"""

from __future__ import annotations

import re
from enum import Enum

from wieldy.schema.pattern import pattern
from wieldy.schema.strict import MAX_DEPTH, TooDeep

_TOKEN = pattern(
    r"""(?P<space>[ \t\r\n]++)
    | (?P<string>"[^"\\]*+(?:\\.[^"\\]*+)*+")
    | (?P<mark>[{}\[\],:])
    | (?P<word>[^ \t\r\n{}\[\],:"]++)""",
    re.VERBOSE | re.DOTALL,
)
_LITERAL = pattern(r"true|false|null|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|NaN|-?Infinity", re.ASCII)
_PYTHON = {"True": "true", "False": "false", "None": "null"}
_MOST_TOKENS = 200_000  # half a second of work; no call that anybody means comes near
_CONTROL = pattern(r"[\x00-\x1f]")


class CutOff(ValueError):
    """The text stops before the value is complete."""


class Malformed(ValueError):
    """The text is no JSON, and how it was meant is not plain. `at` is the index of what is wrong."""

    def __init__(self, reason: str, at: int) -> None:
        super().__init__(reason)
        self.at = at


class _Next(Enum):
    """What the grammar wants, in words for a message."""

    VALUE = "a value"
    ITEM_OR_END = "a value or ]"
    KEY = "a key in double quotes"
    KEY_OR_END = "a key in double quotes or }"
    COLON = "a colon after the key"
    COMMA_OR_END = "a comma or the closing bracket"
    NOTHING = "the end of the input"


class Repair:
    """The mending of one text: `text` can be decoded with raw control characters allowed, `notes` name the repairs."""

    __slots__ = ("_after_comma", "_comma", "_next", "_open", "_pieces", "notes")

    def __init__(self, text: str) -> None:
        self.notes: dict[str, None] = {}
        self._pieces: list[str] = []
        self._open: list[str] = []
        self._next = _Next.VALUE
        self._comma = -1
        self._after_comma = False
        at = tokens = 0
        while at < len(text):
            tokens += 1
            if tokens > _MOST_TOKENS:
                raise Malformed("it is too long to be mended; send valid JSON", at)
            token = _TOKEN.match(text, at)
            if token is None:
                raise CutOff("a string is not closed")
            self._take(token, at, token.end() == len(text))
            at = token.end()
        if self._next is not _Next.NOTHING:
            raise CutOff(f"it stops where {self._next.value} should follow")

    @property
    def text(self) -> str:
        """The mended text."""
        return "".join(self._pieces)

    def _take(self, token: re.Match[str], at: int, is_last: bool) -> None:
        piece = token[0]
        match token.lastgroup:
            case "space":
                self._pieces.append(piece)
                return
            case "string":
                self._string(piece, at)
            case "mark":
                self._mark(piece, at)
            case _:
                self._word(piece, at, is_last)
        self._after_comma = piece == ","

    def _string(self, piece: str, at: int) -> None:
        if self._next in (_Next.KEY, _Next.KEY_OR_END):
            self._next = _Next.COLON
        else:
            self._value(piece, at)
        if _CONTROL.search(piece):
            self.notes["line breaks or control characters inside a string were taken as they are"] = None
        self._pieces.append(piece)

    def _word(self, piece: str, at: int, is_last: bool) -> None:
        known = _PYTHON.get(piece, piece)
        if _LITERAL.fullmatch(known):
            self._value(piece, at)
            if known is not piece:
                self.notes["True, False or None was read as true, false or null"] = None
            self._pieces.append(known)
        elif is_last and self._open:
            raise CutOff("it stops in the middle of a word")
        else:
            raise self._malformed(piece, at)

    def _value(self, piece: str, at: int) -> None:
        if self._next not in (_Next.VALUE, _Next.ITEM_OR_END):
            raise self._malformed(piece, at)
        self._next = _Next.COMMA_OR_END if self._open else _Next.NOTHING

    def _mark(self, piece: str, at: int) -> None:
        match piece:
            case "{" | "[":
                self._value(piece, at)
                self._open.append("}" if piece == "{" else "]")
                if len(self._open) > MAX_DEPTH:
                    raise TooDeep
                self._next = _Next.KEY_OR_END if piece == "{" else _Next.ITEM_OR_END
            case ":" if self._next is _Next.COLON:
                self._next = _Next.VALUE
            case "," if self._next is _Next.COMMA_OR_END:
                self._comma = len(self._pieces)
                self._next = _Next.KEY if self._open[-1] == "}" else _Next.VALUE
            case "}" if self._next is _Next.NOTHING:
                self.notes["a closing brace too many at the end was removed"] = None
                return
            case "}" | "]" if self._open and self._open[-1] == piece and self._may_close():
                self._open.pop()
                self._next = _Next.COMMA_OR_END if self._open else _Next.NOTHING
            case _:
                raise self._malformed(piece, at)
        self._pieces.append(piece)

    def _may_close(self) -> bool:
        if self._next in (_Next.COMMA_OR_END, _Next.ITEM_OR_END, _Next.KEY_OR_END):
            return True
        if self._after_comma:
            self._pieces[self._comma] = ""
            self.notes["a trailing comma was removed"] = None
            return True
        return False

    def _malformed(self, piece: str, at: int) -> Malformed:
        hint = ""
        if piece[0] in "'‘’“”`":
            hint = " Keys and strings need plain double quotes."
        elif self._next is _Next.COMMA_OR_END and piece not in "{}[]:,":
            hint = ' A double quote inside a string must be written \\", and a backslash \\\\.'
        elif self._next in (_Next.KEY, _Next.KEY_OR_END):
            hint = " Every key needs double quotes."
        shown = piece if len(piece) <= 30 else piece[:29] + "…"
        return Malformed(f"expected {self._next.value}, found {shown}.{hint}", at)
