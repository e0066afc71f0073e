"""The loop breaker refuses the third identical failing call in a row; the fifth ends the turn."""

from __future__ import annotations

import json
from collections.abc import Mapping

from wieldy.core.call import RawInput, ToolCall
from wieldy.core.errors import Refusal

POLLING_TOOLS = frozenset({"BashOutput"})
REFUSE_AT = 3
STOP_AT = 5


class LoopBreaker:
    """Counts consecutive failures of the same call. A success of that call resets its count."""

    def __init__(self) -> None:
        self._failures: dict[str, int] = {}

    def check(self, call: ToolCall) -> None:
        """Raise `Refusal` for a call that has failed too often to be run once more."""
        if not self._failures or call.name in POLLING_TOOLS:
            return
        count = self._failures.get(_key(call.name, call.input), 0)
        if count >= REFUSE_AT - 1:
            raise Refusal(
                "loop",
                f"This exact call of {call.name} has failed {count} times, and was not run again.",
                "The same input will "
                "fail the same way: change it, look at why it fails with another tool, or tell the user what is in the way.",
                person=f"the same call has failed {count} times before",
            )

    def record(self, call: ToolCall, *, failed: bool) -> bool:
        """Count the result of a call; true when the turn must end."""
        if not failed and not self._failures:
            return False
        key = _key(call.name, call.input)
        if not failed:
            self._failures.pop(key, None)
            return False
        self._failures[key] = self._failures.get(key, 0) + 1
        return call.name not in POLLING_TOOLS and self._failures[key] >= STOP_AT


def _key(name: str, input: RawInput) -> str:
    if isinstance(input, Mapping):
        return f"{name} {json.dumps(input, sort_keys=True, default=str)}"
    return f"{name} {input if isinstance(input, str) else bytes(input).decode('utf-8', 'replace')}"
