"""A model's JSON, read with a closed list of repairs: each unambiguous, each named; nothing is ever completed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from wieldy.schema.pattern import pattern
from wieldy.schema.strict import Decoded, TooDeep, decode, is_too_deep

_JUNK = " \t\r\n\f\v\0\ufeff\u200b\u00a0\u2028\u2029"
_FENCE = pattern(r"```[ \t]*[A-Za-z0-9_+-]*[ \t]*(?:\r?\n|(?=[{\"]))")
_HALF = "half of a character (a lone surrogate) was replaced by U+FFFD"
_SURROGATE = pattern(r"[\ud800-\udfff]")
_SCALARS = frozenset({int, float, bool, type(None)})


class Read:
    """An object, and what had to be mended to read it."""

    __slots__ = ("notes", "value")

    def __init__(self, value: dict[str, Any], notes: tuple[str, ...] = ()) -> None:
        self.value = value
        self.notes = notes


class Unreadable(Exception):
    """Not a JSON object. `cut_off` says that the text stops before its end: such a call is never run."""

    def __init__(self, reason: str, *, cut_off: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.cut_off = cut_off


def read_object(raw: bytes | str | Mapping[str, Any]) -> Read:
    """The object a model meant. Raises `Unreadable`."""
    if isinstance(raw, str):
        return _read(raw, inside=False)
    if isinstance(raw, Mapping):
        value = dict(raw)
        if _is_flat_ascii(value):
            return Read(value)
        if is_too_deep(value):
            raise Unreadable(str(TooDeep()))
        return Read(_without_surrogates(value), (_HALF,)) if _has_surrogates(value) else Read(value)
    return _read(_decoded(raw), inside=False)


def _decoded(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        if error.reason == "unexpected end of data":
            raise _cut_off("it ends in the middle of a character") from None
    try:
        return raw.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise Unreadable(f"The input is not UTF-8: byte {error.start} is 0x{raw[error.start]:02x}.") from None


def _read(text: str, *, inside: bool) -> Read:
    notes: list[str] = []
    bare = text.strip(" \t\r\n")
    if not bare:
        return Read({})
    try:
        value, repeated = decode(bare)
    except json.JSONDecodeError as error:
        if error.pos >= len(bare) or error.msg.startswith("Unterminated string"):
            # Right up to its end: the quick way to know what the repairs would find out token by token.
            raise _cut_off("it stops before the object is complete") from None
        bare = _unwrapped(bare, notes)
        value, repeated = _mended(bare, notes)
    except ValueError as error:
        raise Unreadable(f"The input cannot be read: {error}.") from None
    if isinstance(value, str) and not inside and value.lstrip(_JUNK).startswith("{"):
        inner = _read(value, inside=True)
        return Read(inner.value, (*notes, "the object was inside a string", *inner.notes))
    if not isinstance(value, dict):
        raise Unreadable(f"The input is {_kind(value)}, but an object is needed: {{…}} with the parameters by name.")
    notes.extend(f'"{key}" was given more than once; the last one counts' for key in repeated)
    if _may_hold_surrogates(bare) and _has_surrogates(value):
        value = _without_surrogates(value)
        notes.append(_HALF)
    return Read(value, tuple(notes))


def _unwrapped(text: str, notes: list[str]) -> str:
    """The text without a code fence and without invisible characters around it."""
    bare = text.strip(_JUNK)
    if fence := _FENCE.match(bare):
        if not bare.endswith("```") or len(bare) < fence.end() + 3:
            raise _cut_off("its code fence is never closed")
        notes.append("a code fence around the object was removed")
        return bare[fence.end() : -3].strip(_JUNK)
    if bare != text:
        notes.append("stray characters around the object were removed")
    return bare


def _mended(text: str, notes: list[str]) -> Decoded:
    """Decode with the repairs inside the text."""
    from wieldy.schema.repair import CutOff, Malformed, Repair

    try:
        repair = Repair(text)
        decoded = decode(repair.text, raw_controls=True)
    except CutOff as error:
        raise _cut_off(str(error)) from None
    except Malformed as error:
        raise Unreadable(f"The input is not valid JSON at {_place(text, error.at)}: {error}") from None
    except json.JSONDecodeError as error:
        reason = f"{error.msg[0].lower()}{error.msg[1:]}".removesuffix(":")
        hint = " A backslash in a string is written \\\\." if "escape" in error.msg else ""
        raise Unreadable(f"The input is not valid JSON at {_place(repair.text, error.pos)}: {reason}.{hint}") from None
    except ValueError as error:
        raise Unreadable(f"The input cannot be read: {error}.") from None
    notes.extend(repair.notes)
    return decoded


def _cut_off(how: str) -> Unreadable:
    return Unreadable(f"The input is cut off: {how}.", cut_off=True)


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
    """A quick look before the long one: as an escape, or as it is."""
    return "\\ud" in text or "\\uD" in text or not (text.isascii() or _SURROGATE.search(text) is None)


def _is_flat_ascii(value: dict[str, Any]) -> bool:
    """A quick look at what most inputs are: a few plain values, with nothing in them to put right."""
    for name, item in value.items():
        kind = type(item)
        if kind is str:
            if not item.isascii():
                return False
        elif kind not in _SCALARS:
            return False
        if not name.isascii():
            return False
    return True


def _has_surrogates(value: Any) -> bool:
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            if not item.isascii() and _SURROGATE.search(item):
                return True
        elif isinstance(item, dict):
            waiting.extend(item)
            waiting.extend(item.values())
        elif isinstance(item, (list, tuple)):
            waiting.extend(item)
    return False


def _without_surrogates(value: Any) -> Any:
    """The same value with U+FFFD for halves of characters; no deeper than the bound, so recursion is safe."""
    if isinstance(value, str):
        return value if value.isascii() else _SURROGATE.sub("\ufffd", value)
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(item) for key, item in value.items()}
    return [_without_surrogates(item) for item in value] if isinstance(value, list) else value
