"""Both ways of speaking to a model, seen from outside: the calls in an answer, and calls and results in a request."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, NamedTuple


class Seen(NamedTuple):
    """A call on the wire."""

    id: str
    name: str
    input: dict[str, Any]


def calls_answered(path: str, events: Iterable[dict[str, Any]]) -> list[Seen]:
    """The calls that a stream of events makes."""
    opened: dict[int, tuple[str, str]] = {}
    raw: dict[int, str] = {}
    for event in events:
        for index, id, name, piece in _pieces_of_messages(event) if _speaks_messages(path) else _pieces_of_chat(event):
            if id:
                opened[index] = (id, name)
            raw[index] = raw.get(index, "") + piece
    return [Seen(id, name, json.loads(raw[index] or "{}")) for index, (id, name) in opened.items()]


def calls_sent(path: str, asked: dict[str, Any]) -> list[Seen]:
    """The calls that a request's history holds."""
    if _speaks_messages(path):
        return [Seen(b["id"], b["name"], b["input"]) for b in _blocks(asked) if b["type"] == "tool_use"]
    made = [call for message in asked["messages"] for call in message.get("tool_calls") or ()]
    return [Seen(call["id"], call["function"]["name"], json.loads(call["function"]["arguments"])) for call in made]


def results_sent(path: str, asked: dict[str, Any]) -> dict[str, str]:
    """The results that a request brings, by the id of their call."""
    if _speaks_messages(path):
        return {b["tool_use_id"]: json.dumps(b["content"]) for b in _blocks(asked) if b["type"] == "tool_result"}
    return {m["tool_call_id"]: json.dumps(m["content"]) for m in asked["messages"] if m["role"] == "tool"}


def _speaks_messages(path: str) -> bool:
    return path.endswith("/messages")


def _blocks(asked: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        block for message in asked["messages"] if isinstance(message["content"], list) for block in message["content"]
    ]


def _pieces_of_messages(event: dict[str, Any]) -> list[tuple[int, str, str, str]]:
    block, delta = event.get("content_block", {}), event.get("delta", {})
    if block.get("type") == "tool_use":
        return [(event["index"], block["id"], block["name"], "")]
    return [(event["index"], "", "", delta["partial_json"])] if delta.get("type") == "input_json_delta" else []


def _pieces_of_chat(event: dict[str, Any]) -> list[tuple[int, str, str, str]]:
    made = [call for choice in event["choices"] for call in choice["delta"].get("tool_calls") or ()]
    return [
        (call["index"], call.get("id", ""), call["function"].get("name", ""), call["function"].get("arguments", ""))
        for call in made
    ]
