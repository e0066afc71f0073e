"""JSON as bytes, as short as it can be: no blanks, no escapes that UTF-8 does without.

The standard library's encoder: what is sent and written down is encoded once and in small pieces; a faster one takes longer to
load than it would ever save before the first request.
"""

from __future__ import annotations

import json
import math
from typing import Any

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False, check_circular=False).encode


def dense(value: Any) -> bytes:
    """A value as JSON; numbers that JSON cannot hold become null. Raises `UnicodeEncodeError` for half of a character."""
    try:
        text = _encode(value)
    except ValueError:
        text = _encode(_finite(value))
    return text.encode()


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value
