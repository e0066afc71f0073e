"""The OpenAI Responses API: encode requests, parse its stream.

The history is sent with every request (`store` is off). Reasoning items, and items of tools that the provider runs, are kept
as they came and sent back unchanged; encrypted reasoning is asked for, so that the model can continue from its own thoughts.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from wieldy.core.call import CUSTOM_PREFIX
from wieldy.core.messages import ContentBlock, Message, encode_messages
from wieldy.core.provider import (
    BlockDelta,
    BlockEnded,
    BlockStarted,
    Delta,
    Request,
    StopReason,
    ToolSpec,
    Usage,
    UsageReported,
)
from wieldy.core.schema.provider_dialects import OPENAI, adapt_schema
from wieldy.core.schema.strict_json import encode_json, encode_json_text
from wieldy.models.http import (
    bad_event,
    encode_body,
    encode_tool,
    get_count,
    get_int,
    get_object,
    get_objects,
    get_text,
    stream_failure,
)
from wieldy.models.openai import (
    OpenAIModel,
    OpenAIParser,
    count_usage,
    image_url,
    is_reasoning_model,
    join_items,
    request_head,
    result_text,
)

WIRE = "responses"
# Marks the ids of calls of custom tools, whose input is plain text: their results are items of another type.
CUSTOM = CUSTOM_PREFIX
EFFORTS = ((4_000, "low"), (16_000, "medium"))  # up to so many tokens of thinking; beyond: high
STOP_REASONS: Mapping[str, StopReason] = {"max_output_tokens": "max_tokens", "content_filter": "refusal"}


class OpenAIResponses(OpenAIModel):
    """One model behind a Responses API."""

    path = "/responses"

    def encode(self, request: Request) -> bytes:
        return encode_request(request, self.model)

    def parser(self) -> ResponseParser:
        return ResponseParser(self.model)


def encode_request(request: Request, model: str) -> bytes:
    """Encode a request as JSON. The history is joined from messages that were encoded when they were new."""
    head = request_head(request, model, token_limit="max_output_tokens", store=False)
    if request.system:
        head["instructions"] = "\n\n".join(request.system)
    if is_reasoning_model(model):
        head["include"] = ["reasoning.encrypted_content"]
        if request.thinking_budget:
            effort = next((name for limit, name in EFFORTS if request.thinking_budget <= limit), "high")
            head["reasoning"] = {"effort": effort, "summary": "auto"}
    encoded = list(filter(None, encode_messages(request.messages, WIRE, _encode_message)))
    head["prompt_cache_key"] = _cache_key(model, encoded)
    return encode_body(head, _encode_tools(request.tools, request.server_tools), "input", encoded)


def _cache_key(model: str, history: Sequence[bytes]) -> str:
    """The same for all requests of a conversation, also after it is resumed, so that they reach the same cache."""
    return hashlib.sha256(model.encode() + b"".join(history[:1])).hexdigest()[:32]


def _encode_tools(tools: Sequence[ToolSpec], server_tools: Sequence[Mapping[str, Any]]) -> Iterator[bytes]:
    """Encode the tools; a custom tool, given in the provider's own format, takes the place of the tool of its name."""
    custom = {tool.get("name") for tool in server_tools if tool.get("type") == "custom"}
    yield from (encode_tool(tool, WIRE, define_tool) for tool in tools if tool.name not in custom)
    yield from map(encode_json, server_tools)


def define_tool(tool: ToolSpec) -> dict[str, Any]:
    schema = adapt_schema(tool.input_schema, OPENAI)
    definition = {"type": "function", "name": tool.name, "description": tool.description}
    return {**definition, "parameters": schema, "strict": False}


def _encode_message(message: Message) -> bytes:
    return join_items(_assistant_items(message) if message.role == "assistant" else user_messages(message))


def _assistant_items(message: Message) -> Iterator[dict[str, Any]]:
    thoughts: list[dict[str, Any]] = []
    for block in message.content:
        match block["type"]:
            case "thinking":
                thoughts += [_without_nulls(block["item"])] if _can_be_sent_back(block.get("item")) else []
                continue
            case "text":
                item = _text_item(block)
            case "tool_use":
                item = _call_item(block)
            case "response_item":
                item = _without_nulls(block["item"])
            case _:
                continue
        # A reasoning item is accepted only before what it led to: thoughts at the end of an interrupted answer are left out.
        yield from thoughts
        thoughts.clear()
        yield item


def _can_be_sent_back(item: Any) -> bool:
    """Whether a reasoning item holds its thoughts itself: one that refers to the server's storage is not found there."""
    return isinstance(item, Mapping) and bool(item.get("encrypted_content") or item.get("content"))


def _without_nulls(item: Mapping[str, Any]) -> dict[str, Any]:
    """An item as it came, except for fields without a value, which the API writes and does not accept."""
    return {name: value for name, value in item.items() if value is not None}


def _text_item(block: ContentBlock) -> dict[str, Any]:
    phase = {"phase": block["phase"]} if "phase" in block else {}
    return {"type": "message", "role": "assistant", "content": block["text"], **phase}


def _call_item(block: ContentBlock) -> dict[str, Any]:
    id, name = block["id"], block["name"]
    if id.startswith(CUSTOM):
        text = block["input"].get("input", "")
        return {"type": "custom_tool_call", "call_id": id.removeprefix(CUSTOM), "name": name, "input": text}
    return {"type": "function_call", "call_id": id, "name": name, "arguments": encode_json_text(block["input"])}


def user_messages(message: Message) -> Iterator[dict[str, Any]]:
    """A message of the user as items of this API."""
    parts: list[dict[str, Any]] = []
    for block in message.content:
        if block["type"] == "tool_result":
            id = block["tool_use_id"]
            kind = "custom_tool_call_output" if id.startswith(CUSTOM) else "function_call_output"
            yield {"type": kind, "call_id": id.removeprefix(CUSTOM), "output": _output(block.get("content", ""))}
        elif block["type"] in ("text", "image"):
            parts.append(_input_part(block))
    if parts:
        yield {"type": "message", "role": "user", "content": parts}


def _output(content: Any) -> str | list[dict[str, Any]]:
    """The content of a result: text, or a list with pictures in it."""
    if not isinstance(content, str) and any(part["type"] == "image" for part in content):
        return [_input_part(part) for part in content if part["type"] in ("text", "image")]
    return result_text(content)


def _input_part(block: ContentBlock) -> dict[str, Any]:
    if block["type"] == "image":
        return {"type": "input_image", "image_url": image_url(block), "detail": "auto"}
    return {"type": "input_text", "text": block["text"]}


class ResponseParser(OpenAIParser):
    """Parses the stream of one response."""

    def __init__(self, model: str = "") -> None:
        super().__init__(model)
        self._blocks: dict[tuple[int, int], int] = {}  # open ones, by the place of their item and part
        self._begun: set[tuple[int, int]] = set()
        self._ended: set[int] = set()
        self._calls: set[int] = set()
        self._streamed: dict[int, list[str]] = {}  # the pieces of the input of each call
        self._phases: dict[int, str] = {}

    def feed_event(self, event: Mapping[str, Any]) -> Iterator[Delta]:
        """Parse one decoded event. Raises `ProviderFailure`."""
        kind = get_text(event, "type")
        match kind:
            case "response.output_text.delta" | "response.refusal.delta":
                yield from self._grow(event, "text", get_int(event, "content_index"))
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                yield from self._grow(event, "thinking", 0)
            case "response.reasoning_summary_part.added" if get_int(event, "summary_index"):
                yield from self._grow({**event, "delta": "\n\n"}, "thinking", 0)
            case "response.function_call_arguments.delta":
                yield from self._stream_call(get_int(event, "output_index"), get_text(event, "delta") or "")
            case "response.custom_tool_call_input.delta":
                yield from self._stream_call(get_int(event, "output_index"), _inside_json(event, "delta"))
            case "response.output_item.added":
                yield from self._begin_item(get_int(event, "output_index"), get_object(event, "item"))
            case "response.output_item.done":
                yield from self._end_item(get_int(event, "output_index"), get_object(event, "item"))
            case "response.completed" | "response.incomplete" | "response.failed" | "response.cancelled":
                yield from self._end(kind, get_object(event, "response"))
            case "error":
                raise stream_failure(event.get("error") or {**event, "type": None}, self._model)
            case None:
                if error := event.get("error"):
                    raise stream_failure(error, self._model)
                raise bad_event("it has no `type`")

    @property
    def _has_calls(self) -> bool:
        return bool(self._calls)

    def _close_blocks(self, *, is_cut_off: bool) -> Iterator[Delta]:
        for place in list(self._blocks):
            if place[0] not in self._calls or not (is_cut_off or self._stop_reason is None):
                yield BlockEnded(self._blocks.pop(place))

    def _begin(self, place: tuple[int, int], block: ContentBlock) -> BlockStarted:
        if place in self._begun:
            raise bad_event(f"it begins item {place[0]} again")
        self._blocks[place] = self._begin_block()
        self._begun.add(place)
        return BlockStarted(self._blocks[place], block)

    def _grow(self, event: Mapping[str, Any], kind: Literal["text", "thinking"], part: int) -> Iterator[Delta]:
        output = get_int(event, "output_index")
        place = (output, part)
        if place not in self._begun:
            phase = {"phase": self._phases[output]} if kind == "text" and output in self._phases else {}
            yield self._begin(place, {"type": kind, kind: "", **phase})
        if (piece := get_text(event, "delta")) and place in self._blocks:
            yield BlockDelta(self._blocks[place], kind, piece)

    def _stream_call(self, output: int, piece: str) -> Iterator[Delta]:
        if piece:
            self._streamed.setdefault(output, []).append(piece)
            yield from self._grow_call(output, piece)

    def _grow_call(self, output: int, piece: str) -> Iterator[Delta]:
        block = self._blocks.get((output, 0))
        if block is None:
            raise bad_event(
                f"it adds to the call {output}, which has {'ended' if output in self._ended else 'not begun'}"
            )
        if piece:
            yield BlockDelta(block, "input", piece)

    def _begin_item(self, output: int, item: Mapping[str, Any]) -> Iterator[Delta]:
        match get_text(item, "type"):
            case "function_call" | "custom_tool_call" as kind:
                is_custom = kind == "custom_tool_call"
                self._calls.add(output)
                id = f"{CUSTOM if is_custom else ''}{get_text(item, 'call_id') or get_text(item, 'id') or ''}"
                block = {"type": "tool_use", "id": id, "name": get_text(item, "name") or "", "input": {}}
                yield self._begin((output, 0), block)
                if is_custom:
                    yield from self._grow_call(output, '{"input":"')
            case "message" if phase := get_text(item, "phase"):
                self._phases[output] = phase

    def _end_item(self, output: int, item: Mapping[str, Any]) -> Iterator[Delta]:
        """End the blocks of an item; what of it was not streamed comes now."""
        if output in self._ended:
            raise bad_event(f"it ends item {output} again")
        self._ended.add(output)
        kind = get_text(item, "type")
        match kind:
            case "function_call" | "custom_tool_call":
                yield from self._end_call(output, item, is_custom=kind == "custom_tool_call")
                return
            case "message":
                yield from self._missing_texts(output, get_objects(item, "content"))
            case "reasoning":
                texts = [part.get("text") or "" for part in get_objects(item, "summary")]
                if (output, 0) not in self._begun:
                    yield from self._grow({"output_index": output, "delta": "\n\n".join(texts)}, "thinking", 0)
                yield BlockDelta(self._blocks[output, 0], "item", dict(item))
            case _:
                yield self._begin((output, 0), {"type": "response_item", "item": dict(item)})
        for place in [place for place in self._blocks if place[0] == output]:
            yield BlockEnded(self._blocks.pop(place))

    def _missing_texts(self, output: int, parts: Sequence[Mapping[str, Any]]) -> Iterator[Delta]:
        for number, part in enumerate(parts):
            text = part.get("text") or part.get("refusal")
            if text and (output, number) not in self._begun:
                yield from self._grow({"output_index": output, "delta": text}, "text", number)

    def _end_call(self, output: int, item: Mapping[str, Any], *, is_custom: bool) -> Iterator[Delta]:
        if (output, 0) not in self._begun:
            yield from self._begin_item(output, item)
        whole = _inside_json(item, "input") if is_custom else get_text(item, "arguments") or ""
        streamed = "".join(self._streamed.pop(output, ()))
        if whole.startswith(streamed):
            yield from self._grow_call(output, whole[len(streamed) :])
        elif not is_custom and not streamed.strip(" \t\r\n{}"):  # an empty object stood for what comes now
            yield from self._grow_call(output, whole)
        elif whole not in streamed and not _is_same_json(streamed, whole):
            raise bad_event(f"the arguments of the call {output} are not those that were streamed")
        if item.get("status") != "incomplete":
            if is_custom:
                yield from self._grow_call(output, '"}')
            yield BlockEnded(self._blocks.pop((output, 0)))

    def _end(self, kind: str, response: Mapping[str, Any]) -> Iterator[Delta]:
        if usage := get_object(response, "usage"):
            yield UsageReported(_parse_usage(usage))
        if kind in ("response.failed", "response.cancelled"):
            raise stream_failure(response.get("error") or {"message": "the response was cancelled"}, self._model)
        reason = get_object(response, "incomplete_details").get("reason")
        self._stop_reason = "end_turn" if kind == "response.completed" else STOP_REASONS.get(str(reason), "max_tokens")
        self.finished = True


def _is_same_json(one: str, other: str) -> bool:
    try:
        return bool(json.loads(one) == json.loads(other))
    except ValueError:
        return False


def _inside_json(event: Mapping[str, Any], name: str) -> str:
    """A text as it stands inside a JSON string."""
    return json.dumps(get_text(event, name) or "")[1:-1]


def _parse_usage(counts: Mapping[str, Any]) -> Usage:
    cached = get_count(get_object(counts, "input_tokens_details"), "cached_tokens")
    return count_usage(get_count(counts, "input_tokens"), get_count(counts, "output_tokens"), cached)


event_parser = ResponseParser
