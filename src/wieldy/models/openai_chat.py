"""OpenAI-compatible Chat Completions: encode requests, parse the stream."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from wieldy.core.messages import ContentBlock, Message, encode_messages
from wieldy.core.provider import (
    BlockDelta,
    BlockEnded,
    BlockStarted,
    Delta,
    Field,
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

WIRE = "openai"
STOP_REASONS: Mapping[str, StopReason] = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "length": "max_tokens",
    "content_filter": "refusal",
}
# The server gave up: DeepSeek's for want of resources, OpenRouter's because the one behind it failed, vLLM's by aborting.
FAILURES = frozenset({"insufficient_system_resource", "error", "abort"})

# Mistral's API refuses fields that it does not know. Its models, wherever they run, take only ids of nine letters or digits,
# and a message of the user only after one of the assistant.
MISTRAL_WIRE = "openai-mistral"
MISTRAL_HOST = "api.mistral.ai"
MISTRAL_MODELS = re.compile(r"mistral|mixtral|ministral|magistral|codestral|devstral|pixtral", re.IGNORECASE)
_MISTRAL_ID = re.compile(r"[A-Za-z0-9]{9}")


class OpenAIChat(OpenAIModel):
    """One model behind a Chat Completions API."""

    path = "/chat/completions"

    def encode(self, request: Request) -> bytes:
        return encode_request(request, self.model, is_strict=self._url.hostname == MISTRAL_HOST)

    def parser(self) -> CompletionParser:
        return CompletionParser(self.model)


def encode_request(request: Request, model: str, *, is_strict: bool = False) -> bytes:
    """Encode a request as JSON. The history is joined from messages that were encoded when they were new.

    `is_strict`: the server refuses fields that it does not know.
    """
    token_limit = "max_completion_tokens" if is_reasoning_model(model) else "max_tokens"
    options = {} if is_strict else {"stream_options": {"include_usage": True}}
    head = request_head(request, model, token_limit=token_limit, **options)
    if request.stop_sequences:
        head["stop"] = list(request.stop_sequences)
    encoded = [encode_json({"role": "system", "content": "\n\n".join(request.system)})] if request.system else []
    is_mistral = is_strict or MISTRAL_MODELS.search(model)
    wire, encode = (MISTRAL_WIRE, _encode_for_mistral) if is_mistral else (WIRE, _encode_message)
    encoded += filter(None, encode_messages(request.messages, wire, encode))
    return encode_body(head, (encode_tool(tool, WIRE, define_tool) for tool in request.tools), "messages", encoded)


def define_tool(tool: ToolSpec) -> dict[str, Any]:
    schema = adapt_schema(tool.input_schema, OPENAI)
    function = {"name": tool.name, "description": tool.description, "parameters": schema}
    return {"type": "function", "function": function}


def _encode_message(message: Message) -> bytes:
    return join_items(_assistant_messages(message) if message.role == "assistant" else user_messages(message))


def _encode_for_mistral(message: Message) -> bytes:
    items = list(_assistant_messages(message) if message.role == "assistant" else user_messages(message))
    for item in items:
        item.pop("reasoning_content", None)
        for call in item.get("tool_calls", ()):
            call["id"] = _mistral_id(call["id"])
        if "tool_call_id" in item:
            item["tool_call_id"] = _mistral_id(item["tool_call_id"])
    if len(items) > 1 and items[-1]["role"] == "user":
        items.insert(-1, {"role": "assistant", "content": "OK."})
    return join_items(items)


def _mistral_id(id: str) -> str:
    return id if _MISTRAL_ID.fullmatch(id) else hashlib.sha256(id.encode()).hexdigest()[:9]


def _assistant_messages(message: Message) -> Iterator[dict[str, Any]]:
    text = "".join(block["text"] for block in message.content if block["type"] == "text")
    # Thoughts with a signature or an item came over another API; others came over this one, and some servers want them back.
    unsigned = [b for b in message.content if b["type"] == "thinking" and not ("signature" in b or "item" in b)]
    thoughts = "".join(block["thinking"] for block in unsigned)
    calls = [
        {
            "id": block["id"],
            "type": "function",
            "function": {"name": block["name"], "arguments": encode_json_text(block["input"])},
        }
        for block in message.calls()
    ]
    encoded: dict[str, Any] = {"role": "assistant", "content": text or None}
    if thoughts and calls:
        encoded["reasoning_content"] = thoughts
    if calls:
        encoded["tool_calls"] = calls
    if text or calls:
        yield encoded


def user_messages(message: Message) -> Iterator[dict[str, Any]]:
    """A message of the user as this API takes it: one for each tool result, and one for pictures and texts."""
    parts: list[dict[str, Any]] = []
    for block in message.content:
        if block["type"] == "tool_result":
            text, images = _tool_result(block)
            yield {"role": "tool", "tool_call_id": block["tool_use_id"], "content": text}
            parts += images
        elif block["type"] == "image":
            parts.append(_image(block))
        elif block["type"] == "text":
            parts.append({"type": "text", "text": block["text"]})
    if len(parts) == 1 and parts[0]["type"] == "text":
        yield {"role": "user", "content": parts[0]["text"]}
    elif parts:
        yield {"role": "user", "content": parts}


def _tool_result(block: ContentBlock) -> tuple[str, list[dict[str, Any]]]:
    """The text of a result, and its images, which must follow in a user message."""
    content = block.get("content", "")
    images = [] if isinstance(content, str) else [_image(part) for part in content if part["type"] == "image"]
    if images:
        content = [*content, {"type": "text", "text": f"({len(images)} image(s) follow)"}]
    return result_text(content), images


def _image(block: ContentBlock) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": image_url(block)}}


_SURPLUS = " \t\r\n}]"  # what a model may add to complete arguments without a change to them


class CompletionParser(OpenAIParser):
    """Parses the stream of one completion. Some servers never send [DONE]: the finish reason is enough."""

    def __init__(self, model: str = "") -> None:
        super().__init__(model)
        self._open_text: tuple[Field, int] | None = None
        self._calls: list[PartialCall] = []
        self._call_at_index: dict[int, PartialCall] = {}
        self._call_with_id: dict[tuple[int | None, str], PartialCall] = {}  # by index and id, and by id alone

    def feed_event(self, event: Mapping[str, Any]) -> Iterator[Delta]:
        """Parse one decoded chunk. Raises `ProviderFailure`."""
        if error := event.get("error"):
            raise stream_failure(error, self._model)
        if usage := get_object(event, "usage"):
            yield UsageReported(_parse_usage(usage))
        for choice in get_objects(event, "choices")[:1]:
            delta = get_object(choice, "delta")
            if thought := get_text(delta, "reasoning_content") or get_text(delta, "reasoning"):
                yield from self._grow_text("thinking", thought)
            if isinstance(delta.get("content"), list):
                for part in get_objects(delta, "content"):
                    yield from self._grow_part(part)
            elif text := get_text(delta, "content") or get_text(delta, "refusal"):
                yield from self._grow_text("text", text)
            for position, piece in enumerate(get_objects(delta, "tool_calls")):
                yield from self._grow_call(piece, position)
            if reason := get_text(choice, "finish_reason"):
                if reason in FAILURES:
                    raise stream_failure(reason, self._model)
                self._stop_reason = STOP_REASONS.get(reason, "end_turn")

    @property
    def _has_calls(self) -> bool:
        return bool(self._calls)

    def _close_blocks(self, *, is_cut_off: bool) -> Iterator[Delta]:
        yield from self._close_text()
        for call in self._calls:
            if call.block is None and not is_cut_off:
                raise bad_event("a call has no name")
            # Where the server only said [DONE], half of the JSON tells that the call was cut off; no JSON is no input.
            is_half = is_cut_off or (self._stop_reason is None and call.scanner.is_open)
            if call.block is not None and not call.closed and not is_half:
                yield BlockEnded(call.block)

    def _grow_text(self, kind: Literal["text", "thinking"], piece: str) -> Iterator[Delta]:
        if self._open_text is None or self._open_text[0] != kind:
            yield from self._close_text()
            self._open_text = (kind, self._begin_block())
            yield BlockStarted(self._open_text[1], {"type": kind, kind: ""})
        yield BlockDelta(self._open_text[1], kind, piece)

    def _grow_part(self, part: Mapping[str, Any]) -> Iterator[Delta]:
        """Add a part of a content that is a list, as Mistral's models that think send it."""
        for thought in get_objects(part, "thinking"):
            yield from self._grow_text("thinking", get_text(thought, "text") or "")
        if text := get_text(part, "text"):
            yield from self._grow_text("text", text)

    def _close_text(self) -> Iterator[Delta]:
        if self._open_text is not None:
            block, self._open_text = self._open_text[1], None
            yield BlockEnded(block)

    def _grow_call(self, piece: Mapping[str, Any], position: int) -> Iterator[Delta]:
        function = get_object(piece, "function")
        name = get_text(function, "name") or ""
        arguments = function.get("arguments")
        text = arguments if isinstance(arguments, str) else "" if arguments is None else encode_json_text(arguments)
        call = self._call_of(piece, position, name, has_text=bool(text.strip(_SURPLUS)))
        if call.block is None:
            call.early_text += text
            call.name = call.name or name
            if not call.name:
                return
            text = call.early_text
            yield from self._close_text()
            call.block = self._begin_block()
            block = {"type": "tool_use", "id": call.id or f"call_{call.block}", "name": call.name, "input": {}}
            yield BlockStarted(call.block, block)
        if call.closed:
            if text.strip(_SURPLUS):
                raise bad_event(f"it adds to the call {call.id or call.name}, whose arguments were complete")
        elif text:
            yield BlockDelta(call.block, "input", text)
            if call.scanner.feed(text):
                call.closed = True
                yield BlockEnded(call.block)

    def _call_of(self, piece: Mapping[str, Any], position: int, name: str, *, has_text: bool) -> PartialCall:
        """The call that a piece belongs to: the one with its id, else the one at its index, unless that has ended.

        Some servers give every call the same index or none, some no id, and some repeat id and name in each piece.
        """
        index = None if piece.get("index") is None else get_int(piece, "index")
        id, place = get_text(piece, "id") or "", position if index is None else index
        call = self._call_at_index.get(place)
        if id and (call is None or call.id != id):
            same_id = self._call_with_id.get((index, id))
            call = same_id if same_id is not None or (call is not None and call.id) else call
        if call is not None and id and id == call.id:
            if name and call.name and name != call.name:
                raise bad_event(f"the call {id} is of {call.name} and then of {name}")
        elif call is not None and call.ends_before(name, has_text=has_text):
            name = name or call.name
            call = None
        if call is None:
            call = PartialCall(name)
            self._calls.append(call)
        self._call_at_index[place] = call
        if id:
            call.id = id
            self._call_with_id[index, id] = self._call_with_id[None, id] = call
        return call


class PartialCall:
    """A call whose arguments are still arriving; its block has a number once its name is known."""

    __slots__ = ("block", "closed", "early_text", "id", "is_named_again", "name", "scanner")

    def __init__(self, name: str) -> None:
        self.id = ""
        self.name = name
        self.block: int | None = None
        self.scanner = JsonEndScanner()
        self.closed = False
        self.early_text = ""  # arguments that came before the name
        self.is_named_again = False

    def ends_before(self, name: str, *, has_text: bool) -> bool:
        """Whether a piece without the id of this call belongs to the next one, as far as the pieces tell."""
        if name and name != self.name:
            return self.block is not None
        if not self.closed or self.id:
            return False
        # Its name alone may begin another call of the same tool, or repeat what is known: the next piece tells.
        self.is_named_again = self.is_named_again or bool(name)
        return self.is_named_again and has_text


_BRACKET = re.compile(r'["{}\[\]]')
_STRING_END = re.compile(r'["\\]')


class JsonEndScanner:
    """Finds the end of a JSON object in pieces of text, so that a call can start before the stream ends.

    Where something stands before the object, such as a code fence, the end is not found: something may follow it, too.
    An empty object is passed over: it may stand for arguments that are still to come.
    """

    def __init__(self) -> None:
        self._depth = 0
        self._has_begun = False
        self._has_prefix = False
        self._has_strings = False
        self._in_string = False
        self._escaped = False

    @property
    def is_open(self) -> bool:
        """Whether something has begun whose end was not found."""
        return self._has_prefix or self._in_string or self._depth > 0

    def feed(self, piece: str) -> bool:
        """Whether the object is complete with this piece."""
        if not self._has_begun and (start := piece.lstrip()):
            self._has_begun, self._has_prefix = True, start[0] not in "{["
        at = 0
        while at < len(piece):
            if self._escaped:
                self._escaped = False
                at += 1
                continue
            match = (_STRING_END if self._in_string else _BRACKET).search(piece, at)
            if match is None:
                return False
            at = match.end()
            mark = match[0]
            if mark == '"':
                self._in_string, self._has_strings = not self._in_string, True
            elif mark == "\\":
                self._escaped = True
            else:
                self._depth += 1 if mark in "{[" else -1
                if self._depth <= 0 and self._has_strings and not self._has_prefix:
                    return True
        return False


def _parse_usage(counts: Mapping[str, Any]) -> Usage:
    details = get_object(counts, "prompt_tokens_details")
    cached = get_count(details, "cached_tokens") or get_count(counts, "prompt_cache_hit_tokens")
    return count_usage(get_count(counts, "prompt_tokens"), get_count(counts, "completion_tokens"), cached)


event_parser = CompletionParser
