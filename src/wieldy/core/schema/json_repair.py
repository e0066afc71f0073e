"""Read a model's JSON with a closed list of repairs: each is unambiguous and reported; cut-off JSON is never completed."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from enum import Enum
from typing import Any

from wieldy.core.schema.strict_json import MAX_DEPTH, Decoded, TooDeep, decode, is_too_deep
from wieldy.core.text import truncate

_JUNK = " \t\r\n\f\v\0\ufeff\u200b\u00a0\u2028\u2029"
_FENCE = re.compile(r"```[ \t]*[A-Za-z0-9_+-]*[ \t]*(?:\r?\n|(?=[{\"]))")
_SURROGATE_NOTE = "half of a character (a lone surrogate) was replaced by U+FFFD"
_SURROGATE = re.compile(r"[\ud800-\udfff]")


class ReadInput:
    """An object, and notes on what was repaired."""

    __slots__ = ("notes", "value")

    def __init__(self, value: dict[str, Any], notes: tuple[str, ...] = ()) -> None:
        self.value = value
        self.notes = notes


class UnreadableJson(Exception):
    """Not a JSON object. `cut_off` says that the text stops early: such a call is never run."""

    def __init__(self, reason: str, *, cut_off: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.cut_off = cut_off


def read_object(raw: bytes | str | Mapping[str, Any]) -> ReadInput:
    """Read the object that a model sent. Raises `UnreadableJson`."""
    if isinstance(raw, str):
        return _read(raw, inside=False)
    if isinstance(raw, Mapping):
        value = dict(raw)
        if is_too_deep(value):
            raise UnreadableJson(str(TooDeep()))
        return ReadInput(_without_surrogates(value), (_SURROGATE_NOTE,)) if _has_surrogates(value) else ReadInput(value)
    if not isinstance(raw, bytes | bytearray):
        raise _no_object(raw)
    return _read(_decoded(raw), inside=False)


def _no_object(value: Any) -> UnreadableJson:
    return UnreadableJson(f"The input is {_kind(value)}, but an object is needed: {{…}} with the parameters by name.")


def _decoded(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        if error.reason == "unexpected end of data":
            raise _cut_off("it ends in the middle of a character") from None
    try:
        return raw.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise UnreadableJson(f"The input is not UTF-8: byte {error.start} is 0x{raw[error.start]:02x}.") from None


def _read(text: str, *, inside: bool) -> ReadInput:
    notes: list[str] = []
    bare = text.strip(" \t\r\n")
    if not bare:
        return ReadInput({})
    try:
        value, repeated = decode(bare)
    except json.JSONDecodeError as error:
        if error.pos >= len(bare) or error.msg.startswith("Unterminated string"):
            # Valid up to its end: no need to let the repairs find that out token by token.
            raise _cut_off("it stops before the object is complete") from None
        bare = _unwrap(bare, notes)
        value, repeated = _repair(bare, notes)
    except ValueError as error:
        raise UnreadableJson(f"The input cannot be read: {error}.") from None
    if isinstance(value, str) and not inside and value.lstrip(_JUNK).startswith("{"):
        inner = _read(value, inside=True)
        return ReadInput(inner.value, (*notes, "the object was inside a string", *inner.notes))
    if not isinstance(value, dict):
        raise _no_object(value)
    notes.extend(f'"{key}" was given more than once; the last one counts' for key in repeated)
    if _may_hold_surrogates(bare) and _has_surrogates(value):
        value = _without_surrogates(value)
        notes.append(_SURROGATE_NOTE)
    return ReadInput(value, tuple(notes))


def _unwrap(text: str, notes: list[str]) -> str:
    """Strip a code fence and invisible characters around the text."""
    bare = text.strip(_JUNK)
    if fence := _FENCE.match(bare):
        if not bare.endswith("```") or len(bare) < fence.end() + 3:
            raise _cut_off("its code fence is never closed")
        notes.append("a code fence around the object was removed")
        return bare[fence.end() : -3].strip(_JUNK)
    if bare != text:
        notes.append("stray characters around the object were removed")
    return bare


def _repair(text: str, notes: list[str]) -> Decoded:
    """Decode with repairs inside the text."""
    try:
        repair = Repair(text)
        decoded = decode(repair.text, raw_controls=True)
    except CutOff as error:
        raise _cut_off(str(error)) from None
    except Malformed as error:
        raise UnreadableJson(f"The input is not valid JSON at {_place(text, error.at)}: {error}") from None
    except json.JSONDecodeError as error:
        reason = f"{error.msg[0].lower()}{error.msg[1:]}".removesuffix(":")
        hint = " A backslash in a string is written \\\\." if "escape" in error.msg else ""
        raise UnreadableJson(
            f"The input is not valid JSON at {_place(repair.text, error.pos)}: {reason}.{hint}"
        ) from None
    except ValueError as error:
        raise UnreadableJson(f"The input cannot be read: {error}.") from None
    notes.extend(repair.notes)
    return decoded


def _cut_off(how: str) -> UnreadableJson:
    return UnreadableJson(f"The input is cut off: {how}.", cut_off=True)


def _place(text: str, at: int) -> str:
    line = text.count("\n", 0, at) + 1
    return f"line {line}, column {at - text.rfind(chr(10), 0, at)}"


def _kind(value: Any) -> str:
    if isinstance(value, list):
        return "a list"
    if isinstance(value, str):
        return "a string"
    return "null" if value is None else "true or false" if isinstance(value, bool) else "a number"


def _may_hold_surrogates(text: str) -> bool:
    """A fast check before the thorough one: as an escape, or literally."""
    return "\\ud" in text or "\\uD" in text or not (text.isascii() or _SURROGATE.search(text) is None)


def _has_surrogates(value: Any) -> bool:
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, str):
            if not item.isascii() and _SURROGATE.search(item):
                return True
        elif isinstance(item, dict):
            pending.extend(item)
            pending.extend(item.values())
        elif isinstance(item, (list, tuple)):
            pending.extend(item)
    return False


def _without_surrogates(value: Any) -> Any:
    """Replace lone surrogates by U+FFFD; the depth is bounded, so recursion is safe."""
    if isinstance(value, str):
        return value if value.isascii() else _SURROGATE.sub("\ufffd", value)
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(item) for key, item in value.items()}
    return [_without_surrogates(item) for item in value] if isinstance(value, list) else value


_TOKEN = re.compile(
    r"""(?P<space>[ \t\r\n]++)
    | (?P<string>"[^"\\]*+(?:\\.[^"\\]*+)*+")
    | (?P<mark>[{}\[\],:])
    | (?P<word>[^ \t\r\n{}\[\],:"]++)""",
    re.VERBOSE | re.DOTALL,
)
_LITERAL = re.compile(r"true|false|null|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|NaN|-?Infinity", re.ASCII)
_PYTHON = {"True": "true", "False": "false", "None": "null"}
_MAX_TOKENS = 200_000  # half a second of work; no real call comes near
_CONTROL = re.compile(r"[\x00-\x1f]")


class CutOff(ValueError):
    """The text stops before the value is complete."""


class Malformed(ValueError):
    """The text is not JSON and cannot be repaired unambiguously. `at` is the index of the error."""

    def __init__(self, reason: str, at: int) -> None:
        super().__init__(reason)
        self.at = at


class _Next(Enum):
    """What the grammar expects next, in words for a message."""

    VALUE = "a value"
    ITEM_OR_END = "a value or ]"
    KEY = "a key in double quotes"
    KEY_OR_END = "a key in double quotes or }"
    COLON = "a colon after the key"
    COMMA_OR_END = "a comma or the closing bracket"
    NOTHING = "the end of the input"


class Repair:
    """Repairs one text: `text` can be decoded with raw control characters allowed, `notes` name the repairs."""

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
            if tokens > _MAX_TOKENS:
                raise Malformed("it is too long to be repaired; send valid JSON", at)
            token = _TOKEN.match(text, at)
            if token is None:
                raise CutOff("a string is not closed")
            self._take(token, at, token.end() == len(text))
            at = token.end()
        if self._next is not _Next.NOTHING:
            raise CutOff(f"it stops where {self._next.value} should follow")

    @property
    def text(self) -> str:
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
        return Malformed(f"expected {self._next.value}, found {truncate(piece, 30)}.{hint}", at)
