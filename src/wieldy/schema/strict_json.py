"""JSON as the standard has it: no NaN, no infinity, a bounded depth, and repeated keys told."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from json import encoder
from typing import Any, TypeAlias

MAX_DEPTH = 200

Decoded: TypeAlias = tuple[Any, tuple[str, ...]]
"""A value, and the keys that an object in it gave more than once; the last one counts."""


class TooDeep(ValueError):
    """Lists and objects inside each other beyond what anybody means."""

    def __init__(self) -> None:
        super().__init__(f"it is nested more than {MAX_DEPTH} levels deep")


class NotFinite(ValueError):
    """A number that is none."""

    def __init__(self, text: str) -> None:
        super().__init__(f"{text} is not a number JSON knows; use a finite number or null")


def decode(text: str, *, raw_controls: bool = False) -> Decoded:
    """What a JSON text says. Raises `ValueError`: `json.JSONDecodeError`, `TooDeep` or `NotFinite`."""
    decoder = _LENIENT if raw_controls else _STRICT
    decoded: Decoded
    try:
        # Most texts have no blanks around them: those are read without a look for some.
        value, end = decoder.raw_decode(text) if text.startswith("{") else (None, -1)
        decoded = value if end == len(text) else decoder.decode(text), ()
    except _Repeated:
        decoded = _with_repeated_keys(text, raw_controls)
    except RecursionError:
        raise TooDeep from None
    if text.count("[") + text.count("{") > MAX_DEPTH and is_too_deep(decoded[0]):
        raise TooDeep
    return decoded


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


class _Repeated(Exception):
    """Some key came twice: rare enough to read the text again for its name."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise _Repeated
    return made


def _with_repeated_keys(text: str, raw_controls: bool) -> Decoded:
    repeated: dict[str, None] = {}

    def collect(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for key, value in pairs:
            if key in made:
                repeated[key] = None
            made[key] = value
        return made

    value = _decoder(collect, strict=not raw_controls).decode(text)
    return value, tuple(repeated)


def _finite(text: str) -> float:
    number = float(text)
    if number - number != 0:
        raise NotFinite(text)
    return number


def _no_constant(text: str) -> Any:
    raise NotFinite(text)


def _decoder(hook: Any, *, strict: bool) -> json.JSONDecoder:
    return json.JSONDecoder(object_pairs_hook=hook, parse_float=_finite, parse_constant=_no_constant, strict=strict)


_STRICT = _decoder(_unique, strict=True)
_LENIENT = _decoder(_unique, strict=False)


_LIBRARY = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False, check_circular=False)


def _made_once() -> Callable[[Any], str]:
    """The library's encoder, which it makes anew for every value: that takes longer than to write a small one."""
    escape = encoder.encode_basestring
    try:
        pieces = encoder.c_make_encoder(None, _LIBRARY.default, escape, None, ":", ",", False, False, False)  # type: ignore[attr-defined]
    except (AttributeError, TypeError):  # not every Python has it, or in this way
        return _LIBRARY.encode
    return lambda value: "".join(pieces(value, 0))


_encode = _made_once()


def encode_json(value: Any) -> bytes:
    """A value as JSON; numbers that JSON cannot hold become null. Raises `UnicodeEncodeError` for half of a character."""
    return encode_json_text(value).encode()


def encode_json_text(value: Any) -> str:
    """The same as text."""
    try:
        return _encode(value)
    except ValueError:
        return _encode(_finite_dense(value))


def _finite_dense(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite_dense(item) for key, item in value.items()}
    return [_finite_dense(item) for item in value] if isinstance(value, list | tuple) else value
