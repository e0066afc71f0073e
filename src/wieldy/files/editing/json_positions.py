"""Where things stand in a JSON text: members and items with their positions, so that they can be replaced in place."""

from __future__ import annotations

import json
import re
from typing import Any

from msgspec import Struct

_SPACE = re.compile(r"[ \t\r\n]*")
_decode = json.JSONDecoder().raw_decode


class Malformed(ValueError):
    """The text is not the JSON it was taken for."""


class Placed(Struct, frozen=True):
    """A value and the stretch of text it stands in."""

    start: int
    end: int
    value: Any


class Member(Struct, frozen=True):
    """One `"name": value` of an object; `start` is where the name begins, `named` where it ends."""

    name: str
    start: int
    named: int
    value: Placed


def skip_space(text: str, at: int) -> int:
    """The next place that is not white space."""
    match = _SPACE.match(text, at)
    return match.end() if match else at


def members(text: str, at: int, spread: str | None = None) -> tuple[list[Member], int]:
    """The members of the object at `at`, as they are written, and where it ends. Of an array that is called `spread` the
    value is the list of its items, each `Placed`."""
    found: list[Member] = []
    at = _opened(text, at, "{")
    while not text.startswith("}", at):
        if not text.startswith('"', at):
            raise Malformed(f"a name in quotes was expected at character {at}")
        name, named = _value(text, at)
        colon = skip_space(text, named)
        if not text.startswith(":", colon):
            raise Malformed(f"`:` was expected at character {colon}")
        begin = skip_space(text, colon + 1)
        value, end = items(text, begin) if name == spread and text.startswith("[", begin) else _value(text, begin)
        found.append(Member(name, at, named, Placed(begin, end, value)))
        at = _next(text, end, "}")
    return found, at + 1


def items(text: str, at: int) -> tuple[list[Placed], int]:
    """The items of the array at `at`, and where it ends."""
    found: list[Placed] = []
    at = _opened(text, at, "[")
    while not text.startswith("]", at):
        value, end = _value(text, at)
        found.append(Placed(at, end, value))
        at = _next(text, end, "]")
    return found, at + 1


def _opened(text: str, at: int, opening: str) -> int:
    if not text.startswith(opening, at):
        raise Malformed(f"`{opening}` was expected at character {at}")
    return skip_space(text, at + 1)


def _next(text: str, at: int, closing: str) -> int:
    """Where the next part begins, or the closing bracket stands."""
    at = skip_space(text, at)
    if text.startswith(closing, at):
        return at
    if not text.startswith(",", at):
        raise Malformed(f"`,` or `{closing}` was expected at character {at}")
    at = skip_space(text, at + 1)
    if text.startswith(closing, at):
        raise Malformed(f"a comma before `{closing}` at character {at}")
    return at


def _value(text: str, at: int) -> tuple[Any, int]:
    try:
        return _decode(text, at)
    except (ValueError, RecursionError) as error:
        raise Malformed(str(error)) from None
