"""Totals of a non-interactive run, and the `result` object that summarizes it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from shlex import quote
from typing import Any
from uuid import uuid4

from wieldy.agent.session import Session
from wieldy.core.decision import Decision
from wieldy.core.events import AgentEvent, Event, ModelAnswered, RunEnded, ToolFailed
from wieldy.core.outcome import Refused, ToolResult
from wieldy.core.text import escape_to_line, truncate

SUBTYPES = {
    "done": "success",
    "max_turns": "error_max_turns",
    "max_cost": "error_max_budget_usd",
}
# Fields of `Usage` → names of the Messages API.
USAGE_NAMES = {
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "cache_read_tokens": "cache_read_input_tokens",
    "cache_write_tokens": "cache_creation_input_tokens",
}


class RunTotals:
    """Denied calls, tokens and model time of a session, subagents included; turns of subagents are not counted."""

    def __init__(self) -> None:
        self.denials: list[dict[str, Any]] = []
        self._decisions: dict[str, Decision] = {}
        self.usage: dict[str, int] = dict.fromkeys(USAGE_NAMES.values(), 0)
        self.model_seconds = 0.0
        self.stop_reason: str | None = None
        self._inputs: dict[str, Mapping[str, Any]] = {}

    def add(self, event: Event) -> None:
        inner = event.event if isinstance(event, AgentEvent) else event
        if isinstance(inner, ModelAnswered):
            self.model_seconds += inner.seconds
            if inner is event:
                self.stop_reason = inner.stop_reason
            for name, count in usage_as_dict(inner.usage).items():
                self.usage[name] += count
            self._inputs.update((b["id"], b["input"]) for b in inner.content if b["type"] == "tool_use")
        elif isinstance(inner, ToolFailed) and is_denied(inner.result):
            self.denials.append({"tool_name": inner.name, "tool_use_id": inner.call_id})
            decision = inner.result.outcome.data if isinstance(inner.result.outcome, Refused) else None
            if isinstance(decision, Decision):
                self._decisions[inner.call_id] = decision

    def denied_calls(self) -> list[dict[str, Any]]:
        return [{**denial, "tool_input": dict(self._inputs.get(denial["tool_use_id"], {}))} for denial in self.denials]

    def denial_lines(self) -> list[str]:
        """Return a line for each denied call: what was to be done, why it was not, and the rules that would allow it."""
        lines = []
        for denial in self.denied_calls():
            values = [value for value in denial["tool_input"].values() if isinstance(value, str)]
            name = f"{denial['tool_name']}({truncate(values[0], 120)})" if values else denial["tool_name"]
            decision = self._decisions.get(denial["tool_use_id"])
            why = f": {decision.explanation}" if decision is not None else ""
            rules = " ".join(map(quote, decision.suggestions)) if decision is not None else ""
            advice = f"; to allow it: wieldy permissions allow {rules}" if rules else ""
            lines.append(escape_to_line(f"{name} was not permitted{why}{advice}"))
        return lines


def usage_as_dict(usage: Any) -> dict[str, int]:
    """Return token counts in the names of the Messages API; zeros for None."""
    return {name: getattr(usage, field, 0) for field, name in USAGE_NAMES.items()}


def summarize(session: Session, end: RunEnded, totals: RunTotals, seconds: float) -> dict[str, Any]:
    is_success = end.why == "done"
    result: dict[str, Any] = {
        "type": "result",
        "subtype": SUBTYPES.get(end.why, "error_during_execution"),
        "is_error": not is_success,
        "duration_ms": round(seconds * 1000),
        "duration_api_ms": round(totals.model_seconds * 1000),
        "num_turns": end.turns,
        "stop_reason": totals.stop_reason,
        "session_id": session.id,
        "total_cost_usd": round(end.cost, 6),
        "usage": dict(totals.usage),
        "modelUsage": {session.model_name: {**totals.usage, "costUSD": round(end.cost, 6)}},
        "permission_denials": totals.denied_calls(),
        "terminal_reason": end.why,
        "uuid": str(uuid4()),
    }
    if end.unpriced:
        result["unpriced_models"] = list(end.unpriced)
    if end.data is not None:
        result["structured_output"] = end.data
    return {**result, "result": end.text} if is_success else {**result, "errors": [end.detail or end.why]}


def is_denied(result: ToolResult) -> bool:
    """Return whether a rule, a person or a hook denied a call."""
    return isinstance(result.outcome, Refused) and result.outcome.stage in ("permission", "hook")


def encode_line(value: Mapping[str, Any]) -> str:
    """Encode an object as one JSON line, in ASCII: no encoding and no lone surrogate can break it."""
    return json.dumps(value, default=str) + "\n"
