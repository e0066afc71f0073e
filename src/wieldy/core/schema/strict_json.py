"""Standard JSON: no NaN or infinity, bounded depth, and duplicate keys are reported."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, TypeAlias, TypeVar

import msgspec

MAX_DEPTH = 200

T = TypeVar("T")

Decoded: TypeAlias = tuple[Any, tuple[str, ...]]
"""A value, and the keys that an object in it has more than once; the last one counts."""


class TooDeep(ValueError):
    """Lists and objects are nested too deeply."""

    def __init__(self) -> None:
        super().__init__(f"it is nested more than {MAX_DEPTH} levels deep")


class NotFinite(ValueError):
    """NaN or infinity."""

    def __init__(self, text: str) -> None:
        super().__init__(f"{text} is not a number JSON knows; use a finite number or null")


def decode(text: str, *, raw_controls: bool = False) -> Decoded:
    """Decode JSON. Raises `ValueError`: `json.JSONDecodeError`, `TooDeep` or `NotFinite`."""
    duplicates: dict[str, None] = {}

    def make_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) != len(pairs):
            counts = Counter(key for key, _ in pairs)
            duplicates.update(dict.fromkeys(key for key, count in counts.items() if count > 1))
        return made

    try:
        value = json.loads(
            text,
            object_pairs_hook=make_object,
            parse_float=_parse_finite,
            parse_constant=_reject_constant,
            strict=not raw_controls,
        )
    except RecursionError:
        raise TooDeep from None
    if text.count("[") + text.count("{") > MAX_DEPTH and is_too_deep(value):
        raise TooDeep
    return value, tuple(duplicates)


def is_too_deep(value: Any) -> bool:
    """Whether lists and objects are nested deeper than `MAX_DEPTH`."""
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


def _parse_finite(text: str) -> float:
    number = float(text)
    if number - number != 0:
        raise NotFinite(text)
    return number


def _reject_constant(text: str) -> Any:
    raise NotFinite(text)


def encode_json(value: Any) -> bytes:
    """Encode compactly; NaN and infinity become null. Raises `UnicodeEncodeError` for lone surrogates."""
    return msgspec.json.encode(value)


def encode_json_text(value: Any) -> str:
    """Like `encode_json`, as text, which may hold lone surrogates."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except ValueError:
        return msgspec.json.encode(value).decode()


def to_json(value: object) -> str:
    """Records as JSON; unlike msgspec's own encoder it takes file names that are not valid UTF-8."""
    return json.dumps(msgspec.to_builtins(value))


def from_json(text: str | bytes, kind: type[T]) -> T:
    """The reverse of `to_json`. Raises `ValueError`."""
    return msgspec.convert(json.loads(text), kind)
