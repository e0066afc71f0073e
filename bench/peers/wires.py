"""The three ways models are spoken to: how a turn becomes a stream of events, and what results a request brings back."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from bench.peers.script import Call, Say, Turn

Wire: TypeAlias = Literal["messages", "chat", "responses"]
Named: TypeAlias = Callable[[Call], tuple[str, dict[str, str]]]
"""A call in an agent's own words: the name of its tool, and the input."""

PATHS: Mapping[str, Wire] = {"/messages": "messages", "/chat/completions": "chat", "/responses": "responses"}


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes that go out after a pause; whether a call is complete with them."""

    pause: float
    data: bytes
    ends_call: bool = False


def results(wire: Wire, request: Mapping[str, Any]) -> list[str]:
    """The results of tools in a request, oldest first."""
    if wire == "messages":
        blocks = [b for m in request["messages"] if isinstance(m["content"], list) for b in m["content"]]
        return [_text(block.get("content")) for block in blocks if block["type"] == "tool_result"]
    if wire == "chat":
        return [_text(message["content"]) for message in request["messages"] if message["role"] == "tool"]
    return [_text(item["output"]) for item in request["input"] if item.get("type") == "function_call_output"]


def stream(wire: Wire, turn: Turn, named: Named, number: int) -> Iterator[Piece]:
    """An answer as it goes over the wire; `number` makes its ids unique."""
    return {"messages": _messages, "chat": _chat, "responses": _responses}[wire](turn, named, number)


def _messages(turn: Turn, named: Named, number: int) -> Iterator[Piece]:
    usage = {"input_tokens": 10, "output_tokens": 1}
    message = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": "m", "content": []}
    yield _event({"type": "message_start", "message": {**message, "stop_reason": None, "usage": usage}})
    for index, part in enumerate(turn):
        at = {"index": index}
        if isinstance(part, Say):
            yield _event({"type": "content_block_start", **at, "content_block": {"type": "text", "text": ""}})
            for text in _pieces(part):
                delta = {"type": "text_delta", "text": text}
                yield _event({"type": "content_block_delta", **at, "delta": delta}, part.delay)
        else:
            name, input = named(part)
            block = {"type": "tool_use", "id": f"toolu_{number}_{index}", "name": name, "input": {}}
            yield _event({"type": "content_block_start", **at, "content_block": block})
            delta = {"type": "input_json_delta", "partial_json": json.dumps(input)}
            yield _event({"type": "content_block_delta", **at, "delta": delta})
        yield _event({"type": "content_block_stop", **at}, ends_call=isinstance(part, Call))
    reason = "tool_use" if _calls(turn) else "end_turn"
    yield _event({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 20}})
    yield _event({"type": "message_stop"})


def _chat(turn: Turn, named: Named, number: int) -> Iterator[Piece]:
    def chunk(delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        return {
            "id": f"chat{number}",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": "m",
            "choices": [choice],
        }

    yield _data(chunk({"role": "assistant", "content": ""}))
    count = 0
    for part in turn:
        if isinstance(part, Say):
            for text in _pieces(part):
                yield _data(chunk({"content": text}), part.delay)
        else:
            name, input = named(part)
            function = {"name": name, "arguments": ""}
            opened = {"index": count, "id": f"call_{number}_{count}", "type": "function", "function": function}
            yield _data(chunk({"tool_calls": [opened]}))
            filled = {"index": count, "function": {"arguments": json.dumps(input)}}
            yield _data(chunk({"tool_calls": [filled]}), ends_call=True)
            count += 1
    yield _data(chunk({}, "tool_calls" if count else "stop"))
    usage = {"prompt_tokens": 10, "completion_tokens": 20, "total_tokens": 30}
    yield _data({**chunk({}), "choices": [], "usage": usage})
    yield Piece(0.0, b"data: [DONE]\n\n")


def _responses(turn: Turn, named: Named, number: int) -> Iterator[Piece]:
    answer: dict[str, Any] = {"id": f"resp_{number}", "object": "response", "created_at": 1, "model": "m", "output": []}
    yield _event({"type": "response.created", "response": {**answer, "status": "in_progress"}})
    items: list[dict[str, Any]] = []
    for index, part in enumerate(turn):
        at = {"output_index": index}
        item: dict[str, Any]
        if isinstance(part, Say):
            item = {"id": f"msg_{number}_{index}", "type": "message", "role": "assistant", "content": []}
            yield _event({"type": "response.output_item.added", **at, "item": {**item, "status": "in_progress"}})
            for text in _pieces(part):
                said = {"item_id": item["id"], "content_index": 0, "delta": text}
                yield _event({"type": "response.output_text.delta", **at, **said}, part.delay)
            item["content"] = [{"type": "output_text", "text": part.text, "annotations": []}]
        else:
            name, input = named(part)
            item = {"id": f"fc_{number}_{index}", "type": "function_call", "call_id": f"call_{number}_{index}"}
            item |= {"name": name, "arguments": ""}
            yield _event({"type": "response.output_item.added", **at, "item": {**item, "status": "in_progress"}})
            item["arguments"] = json.dumps(input)
            filled = {"item_id": item["id"], "delta": item["arguments"]}
            yield _event({"type": "response.function_call_arguments.delta", **at, **filled})
        item["status"] = "completed"
        items.append(item)
        yield _event({"type": "response.output_item.done", **at, "item": item}, ends_call=isinstance(part, Call))
    usage = {"input_tokens": 10, "output_tokens": 20, "total_tokens": 30}
    done = {**answer, "status": "completed", "output": items, "usage": usage}
    yield _event({"type": "response.completed", "response": done})


def _event(event: dict[str, Any], pause: float = 0.0, *, ends_call: bool = False) -> Piece:
    return Piece(pause, f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode(), ends_call)


def _data(chunk: dict[str, Any], pause: float = 0.0, *, ends_call: bool = False) -> Piece:
    return Piece(pause, f"data: {json.dumps(chunk)}\n\n".encode(), ends_call)


def _pieces(part: Say) -> list[str]:
    size = part.piece or len(part.text)
    return [part.text[at : at + size] for at in range(0, len(part.text), size)]


def _calls(turn: Turn) -> bool:
    return any(isinstance(part, Call) for part in turn)


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "".join(_text(block.get("text")) for block in content)
    return content if isinstance(content, str) else ""
