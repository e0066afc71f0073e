"""What a session without a watcher has come to: denials, tokens, time with the model; and the whole as one object."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from wieldy.agent.session import Session
from wieldy.core.events import AgentEvent, Event, ModelAnswered, RunEnded, ToolFailed
from wieldy.core.outcome import Refused, ToolResult

SUBTYPES = {
    "done": "success",
    "max_turns": "error_max_turns",
    "max_cost": "error_max_budget_usd",
}
USAGE = {
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "cache_read_tokens": "cache_read_input_tokens",
    "cache_write_tokens": "cache_creation_input_tokens",
}


class Tally:
    """What a session without a watcher has come to: denials, tokens, time with the model."""

    def __init__(self) -> None:
        self.denials: list[dict[str, Any]] = []
        self.usage: dict[str, int] = dict.fromkeys(USAGE.values(), 0)
        self.model_seconds = 0.0
        self.turns = 0
        self.stop_reason: str | None = None
        self._inputs: dict[str, Mapping[str, Any]] = {}

    def take(self, event: Event) -> None:
        """Count an event. What sub-agents use and are denied counts; their turns are their own."""
        inner = event.event if isinstance(event, AgentEvent) else event
        if isinstance(inner, ModelAnswered):
            self.model_seconds += inner.seconds
            if inner is event:
                self.stop_reason = inner.stop_reason
                self.turns += 1
            for own, name in USAGE.items():
                self.usage[name] += getattr(inner.usage, own)
            self._inputs.update((b["id"], b["input"]) for b in inner.content if b["type"] == "tool_use")
        elif isinstance(inner, ToolFailed) and was_denied(inner.result):
            self.denials.append({"tool_name": inner.name, "tool_use_id": inner.call_id})

    def denied(self) -> list[dict[str, Any]]:
        """Every call that was not permitted, with its input."""
        return [{**denial, "tool_input": dict(self._inputs.get(denial["tool_use_id"], {}))} for denial in self.denials]


def usage_of(usage: Any) -> dict[str, int]:
    """A count of tokens in the words of the Messages API; of nothing, zeros."""
    return {name: getattr(usage, own, 0) for own, name in USAGE.items()}


def summary(session: Session, last: RunEnded, tally: Tally, seconds: float) -> dict[str, Any]:
    """The result of a run as one object."""
    success = last.why == "done"
    told: dict[str, Any] = {
        "type": "result",
        "subtype": SUBTYPES.get(last.why, "error_during_execution"),
        "is_error": not success,
        "duration_ms": round(seconds * 1000),
        "duration_api_ms": round(tally.model_seconds * 1000),
        "num_turns": last.turns,
        "stop_reason": tally.stop_reason,
        "session_id": session.id,
        "total_cost_usd": round(last.cost, 6),
        "usage": dict(tally.usage),
        "modelUsage": {session.model_name: {**tally.usage, "costUSD": round(last.cost, 6)}},
        "permission_denials": tally.denied(),
        "terminal_reason": last.why,
        "uuid": uuid(),
    }
    return {**told, "result": last.text} if success else {**told, "errors": [last.detail or last.why]}


def was_denied(result: ToolResult) -> bool:
    """Whether a call was not permitted, by a rule, a person or a hook."""
    return isinstance(result.outcome, Refused) and result.outcome.stage in ("permission", "hook")


def uuid() -> str:
    """A random (version 4) UUID; the module of that name costs milliseconds to load."""
    digits = f"{(int.from_bytes(os.urandom(16)) & ~(0xF << 76) & ~(3 << 62)) | 4 << 76 | 2 << 62:032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def line(value: Mapping[str, Any]) -> str:
    """An object as a line."""
    # Escapes for everything beyond ASCII: no reader's encoding, and no half of a character, can break a line.
    return json.dumps(value, default=str) + "\n"
