"""One event of a stream, from bytes to an object whose parts have the kinds they should; stray bytes are no obstacle."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from wieldy.core.provider import ProviderFailure

_decode = json.JSONDecoder().raw_decode


def decoded(data: bytes) -> dict[str, Any]:
    """The object in some bytes. Raises `ProviderFailure` for what is none."""
    text = data.decode("utf-8", "replace").strip(" \t\r\n")
    try:
        found, end = _decode(text)
        if end < len(text):
            raise ValueError(f"something comes after its end: {text[end : end + 20]!r}")
    except (ValueError, RecursionError) as error:
        raise _odd(str(error)) from None
    if not isinstance(found, dict):
        raise _odd("it is not an object")
    return found


def part(told: Mapping[str, Any], name: str) -> dict[str, Any]:
    """An object inside another; empty where there is none."""
    found = told.get(name)
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise _odd(f"its `{name}` is not an object")
    return found


def parts(told: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """A list of objects; empty where there is none."""
    found = told.get(name)
    if found is None:
        return []
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise _odd(f"its `{name}` is not a list of objects")
    return found


def text(told: Mapping[str, Any], name: str) -> str | None:
    """A text, if there is one."""
    found = told.get(name)
    if found is not None and not isinstance(found, str):
        raise _odd(f"its `{name}` is not text")
    return found


def number(told: Mapping[str, Any], name: str) -> int:
    """A whole number; 0 where there is none."""
    found = told.get(name, 0)
    if not isinstance(found, int) or isinstance(found, bool):
        raise _odd(f"its `{name}` is not a whole number")
    return found


def _odd(why: str) -> ProviderFailure:
    return ProviderFailure("protocol", f"the stream holds something that is no event: {why}")
