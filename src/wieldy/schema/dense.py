"""JSON as bytes, as short as it can be: no blanks, no escapes that UTF-8 does without.

The standard library's encoder: what is sent and written down is encoded once and in small pieces; a faster one takes longer to
load than it would ever save before the first request.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from json import encoder
from typing import Any

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


def dense(value: Any) -> bytes:
    """A value as JSON; numbers that JSON cannot hold become null. Raises `UnicodeEncodeError` for half of a character."""
    return dense_text(value).encode()


def dense_text(value: Any) -> str:
    """The same as text."""
    try:
        return _encode(value)
    except ValueError:
        return _encode(_finite(value))


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value
