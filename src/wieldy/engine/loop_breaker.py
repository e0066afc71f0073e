"""The loop breaker refuses the third identical failing call while nothing changes; the fifth ends the turn."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from hashlib import blake2b

from wieldy.core.call import RawInput, ToolCall
from wieldy.core.errors import Refusal

POLLING_TOOLS = frozenset({"BashOutput"})
# A command that waits before it looks again, such as `sleep 5 && curl localhost:8000`.
_WAITS = re.compile(rb"\bsleep [\d.$]")
REFUSE_AT = 3
STOP_AT = 5
MAX_CHANGES = 1_000


class LoopBreaker:
    """Counts the failures of the same call.

    Its success resets its count. A change that was not made before resets all counts: a command that runs the tests may fail
    many times while the model mends the code.
    """

    def __init__(self) -> None:
        self._failures: dict[bytes, int] = {}
        self._changes: dict[bytes, None] = {}

    def reset(self) -> None:
        """Forget everything: a person has spoken, and may have changed something."""
        self._failures.clear()
        self._changes.clear()

    def check(self, call: ToolCall) -> None:
        """Raise `Refusal` for a call that has failed too often to be run once more."""
        if not self._failures or _is_polling(call):
            return
        count = self._failures.get(_key(call.name, call.input), 0)
        if count >= REFUSE_AT - 1:
            raise Refusal(
                "loop",
                f"This exact call of {call.name} has failed {count} times with no change in between, and was not run again.",
                "The same input will "
                "fail the same way: change it, look at why it fails with another tool, or tell the user what is in the way.",
                person=f"the same call has failed {count} times before",
            )

    def record(self, call: ToolCall, *, failed: bool, changes: bool = False) -> bool:
        """Count the result of a call, which `changes` something or not; true when the turn must end."""
        if not failed and not self._failures:
            return False
        key = _key(call.name, call.input)
        if not failed:
            self._failures.pop(key, None)
            if changes and key not in self._changes:
                self._failures.clear()
                self._changes[key] = None
                if len(self._changes) > MAX_CHANGES:
                    del self._changes[next(iter(self._changes))]
            return False
        self._failures[key] = self._failures.get(key, 0) + 1
        return self._failures[key] >= STOP_AT and not _is_polling(call)


def _is_polling(call: ToolCall) -> bool:
    return call.name in POLLING_TOOLS or (call.name == "Bash" and _WAITS.search(_as_bytes(call.input)) is not None)


def _key(name: str, input: RawInput) -> bytes:
    """A digest: the input may be long, and is remembered for as long as the session lasts."""
    return blake2b(name.encode("utf-8", "surrogatepass") + b" " + _as_bytes(input), digest_size=16).digest()


def _as_bytes(input: RawInput) -> bytes:
    if isinstance(input, Mapping):
        input = json.dumps(input, sort_keys=True, default=str)
    return input.encode("utf-8", "surrogatepass") if isinstance(input, str) else bytes(input)
