"""JSON as the standard has it: no NaN, no infinity, a bounded depth, and repeated keys counted."""

from __future__ import annotations

import json
from typing import Any

MAX_DEPTH = 200


class Repeated:
    """The keys that an object gave more than once while a text was decoded."""

    __slots__ = ("keys",)

    def __init__(self) -> None:
        self.keys: dict[str, None] = {}

    def collect(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        """An object of its pairs, as a decoder's hook."""
        made = dict(pairs)
        if len(made) != len(pairs):
            seen: set[str] = set()
            for key, _ in pairs:
                if key in seen:
                    self.keys[key] = None
                seen.add(key)
        return made


class TooDeep(ValueError):
    """Lists and objects inside each other beyond what anybody means."""

    def __init__(self) -> None:
        super().__init__(f"it is nested more than {MAX_DEPTH} levels deep")


class NotFinite(ValueError):
    """A number that is none."""

    def __init__(self, text: str) -> None:
        super().__init__(f"{text} is not a number JSON knows; use a finite number or null")


def decode(text: str, *, repeated: Repeated | None = None, raw_controls: bool = False) -> Any:
    """The value of a JSON text. Raises `ValueError`: `json.JSONDecodeError`, `TooDeep` or `NotFinite`."""
    decoder = json.JSONDecoder(
        object_pairs_hook=repeated.collect if repeated else None,
        parse_float=_finite,
        parse_constant=_no_constant,
        strict=not raw_controls,
    )
    try:
        value = decoder.decode(text)
    except RecursionError:
        raise TooDeep from None
    if text.count("[") + text.count("{") > MAX_DEPTH and is_too_deep(value):
        raise TooDeep
    return value


def is_too_deep(value: Any) -> bool:
    """Whether lists and objects lie inside each other beyond the bound."""
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH):
        below: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                below.extend(item.values())
            elif isinstance(item, list):
                below.extend(item)
        if not below:
            return False
        level = below
    return any(isinstance(item, (dict, list)) for item in level)


def _finite(text: str) -> float:
    number = float(text)
    if number - number != 0:
        raise NotFinite(text)
    return number


def _no_constant(text: str) -> Any:
    raise NotFinite(text)
