"""The loop breaker: the third identical failing call is refused in other words, the fifth ends the turn."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

POLLING = frozenset({"BashOutput"})
REFUSE_AT = 3
STOP_AT = 5


class Breaker:
    """Counts how often in a row the very same call has failed. Any success of it, or another input, starts anew."""

    def __init__(self) -> None:
        self._failures: dict[str, int] = {}

    def refusal(self, name: str, input: Any) -> str | None:
        """Words for a call that has failed too often to be run once more."""
        if not self._failures:
            return None
        count = self._failures.get(_key(name, input), 0)
        if name in POLLING or count < REFUSE_AT - 1:
            return None
        return (
            f"This exact call of {name} has failed {count} times, and was not run again. The same input will fail the same way: "
            "change it, look at why it fails with another tool, or tell the user what is in the way."
        )

    def note(self, name: str, input: Any, *, failed: bool) -> bool:
        """Take the result of a call into account; true when the turn must end."""
        if not failed and not self._failures:
            return False
        key = _key(name, input)
        if not failed:
            self._failures.pop(key, None)
            return False
        self._failures[key] = self._failures.get(key, 0) + 1
        return name not in POLLING and self._failures[key] >= STOP_AT


def _key(name: str, input: Any) -> str:
    if isinstance(input, Mapping):
        return f"{name} {json.dumps(input, sort_keys=True, default=str)}"
    return f"{name} {input if isinstance(input, str) else bytes(input).decode('utf-8', 'replace')}"
