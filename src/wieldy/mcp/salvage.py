"""A line that the SDK cannot read, but that is an answer to somebody: mended, or turned into an error they can be told."""

from __future__ import annotations

import json
from typing import Any

INTERNAL_ERROR = -32603


def salvaged(line: bytes) -> list[bytes]:
    """What to read in place of a line, best first; nothing where it is mere noise.

    Half of a surrogate pair and bytes that are no UTF-8 become the replacement character. Whoever waits for an answer that makes
    no sense gets an error in its place, instead of waiting until their time is up.
    """
    try:
        message = json.loads(line.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return []
    if not isinstance(message, dict) or "jsonrpc" not in message:
        return []
    found = [_sound(message)]
    number = message.get("id")
    if "method" not in message and isinstance(number, str | int):
        error = {"code": INTERNAL_ERROR, "message": "it sent a malformed answer"}
        found.append(_sound({"jsonrpc": "2.0", "id": number, "error": error}))
    return found


def _sound(value: Any) -> bytes:
    text = json.dumps(value, ensure_ascii=False)
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode("utf-8")
