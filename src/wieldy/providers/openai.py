"""OpenAI-compatible Chat Completions: the conversation in its form, and deltas out of its stream.

The wire has no end of a block: text ends when a call begins, a call ends when its JSON is complete, so that its tool can start.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from wieldy.core.message import ContentBlock, Message
from wieldy.core.provider import (
    BlockEnded,
    BlockGrew,
    BlockStarted,
    Delta,
    Metered,
    ProviderFailure,
    Request,
    Stopped,
    StopReason,
    ToolOffer,
    Usage,
)
from wieldy.providers.extent import Extent
from wieldy.providers.http import Http, HttpFailure
from wieldy.providers.refusal import failure
from wieldy.providers.sse import Events
from wieldy.schema.dialect import OPENAI, adapted

URL = "https://api.openai.com/v1"
WIRE = "openai"

encode = msgspec.json.Encoder().encode


class Piece(msgspec.Struct):
    """What a chunk adds to a call."""

    index: int = 0
    id: str | None = None
    function: dict[str, Any] | None = None


class Grown(msgspec.Struct):
    """What a chunk adds to the message."""

    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[Piece] | None = None


class Choice(msgspec.Struct):
    """One answer of several; we ask for one."""

    delta: Grown = msgspec.field(default_factory=Grown)
    finish_reason: str | None = None


class Chunk(msgspec.Struct):
    """One event of the stream."""

    choices: list[Choice] = msgspec.field(default_factory=list)
    usage: dict[str, Any] | None = None
    error: Any = None


decode = msgspec.json.Decoder(Chunk).decode

REASONS: Mapping[str, StopReason] = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "length": "max_tokens",
    "content_filter": "refusal",
}


class OpenAI:
    """One model behind a Chat Completions API."""

    name = "openai"

    def __init__(
        self,
        model: str,
        *,
        key: str | None,
        base_url: str | None,
        env: Mapping[str, str],
        context_window: int = 128_000,
    ) -> None:
        self.model = model
        self.context_window = context_window
        headers = {"accept": "text/event-stream", "user-agent": "wieldy"}
        if key:
            headers["authorization"] = f"Bearer {key}"
        self._http = Http(base_url or URL, headers, env=env)

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[AsyncIterator[Delta]]:
        """Send the request and give its deltas."""
        try:
            async with self._http.post("/chat/completions", body(request, self.model)) as response:
                if response.status != 200:
                    raise failure(
                        response.status, response.headers, await response.text(), self.model, self._http.place
                    )
                yield deltas(response.chunks())
        except HttpFailure as broken:
            raise ProviderFailure("connection", str(broken)) from None

    async def aclose(self) -> None:
        """Close connections."""
        await self._http.aclose()


def body(request: Request, model: str) -> bytes:
    """The request as JSON, joined from messages that were encoded when they were new."""
    head: dict[str, Any] = {
        "model": model,
        "max_completion_tokens" if model.startswith(("o1", "o3", "o4", "gpt-5")) else "max_tokens": request.max_tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if request.stop_sequences:
        head["stop"] = list(request.stop_sequences)
    pieces = [encode(head)[:-1]]
    if request.tools:
        pieces += [b',"tools":[', b",".join(map(_tool, request.tools)), b"]"]
    messages = [encode({"role": "system", "content": "\n\n".join(request.system)})] if request.system else []
    messages += [encoded for message in request.messages if (encoded := message.encoded(WIRE, _message))]
    pieces += [b',"messages":[', b",".join(messages), b"]}"]
    return b"".join(pieces)


def _tool(tool: ToolOffer) -> bytes:
    found = tool.encoded.get(WIRE)
    if found is None:
        function = {
            "name": tool.name,
            "description": tool.description,
            "parameters": adapted(tool.input_schema, OPENAI),
        }
        found = tool.encoded[WIRE] = encode({"type": "function", "function": function})
    return found


def _message(message: Message) -> bytes:
    """One message is one or several here: each result is a message of its own. They are joined, ready for the list."""
    parts = _assistant(message) if message.role == "assistant" else _user(message)
    return b",".join(encode(part) for part in parts)


def _assistant(message: Message) -> Iterator[dict[str, Any]]:
    text = "".join(block["text"] for block in message.content if block["type"] == "text")
    thoughts = "".join(block["thinking"] for block in message.content if block["type"] == "thinking")
    calls = [
        {
            "id": block["id"],
            "type": "function",
            "function": {"name": block["name"], "arguments": encode(block["input"]).decode()},
        }
        for block in message.calls()
    ]
    said: dict[str, Any] = {"role": "assistant", "content": text or None}
    if thoughts and calls:
        said["reasoning_content"] = thoughts
    if calls:
        said["tool_calls"] = calls
    if text or calls:
        yield said


def _user(message: Message) -> Iterator[dict[str, Any]]:
    shown: list[dict[str, Any]] = []
    for block in message.content:
        if block["type"] == "tool_result":
            text, images = _result(block)
            yield {"role": "tool", "tool_call_id": block["tool_use_id"], "content": text}
            shown += images
        elif block["type"] == "image":
            shown.append(_image(block))
        elif block["type"] == "text":
            shown.append({"type": "text", "text": block["text"]})
    if len(shown) == 1 and shown[0]["type"] == "text":
        yield {"role": "user", "content": shown[0]["text"]}
    elif shown:
        yield {"role": "user", "content": shown}


def _result(block: ContentBlock) -> tuple[str, list[dict[str, Any]]]:
    """A result message holds text only; its pictures follow in a message of the user's."""
    content = block.get("content", "")
    if isinstance(content, str):
        return content, []
    texts = [part["text"] for part in content if part["type"] == "text"]
    images = [_image(part) for part in content if part["type"] == "image"]
    if images:
        texts.append(f"({len(images)} image(s) follow)")
    return "\n".join(texts) or "(no output)", images


def _image(block: ContentBlock) -> dict[str, Any]:
    source = block["source"]
    url = source["url"] if source["type"] == "url" else f"data:{source['media_type']};base64,{source['data']}"
    return {"type": "image_url", "image_url": {"url": url}}


async def deltas(chunks: AsyncIterator[bytes]) -> AsyncIterator[Delta]:
    """The stream's bytes as deltas. Raises `ProviderFailure` when it ends before the answer does."""
    events, answer = Events(), Blocks()
    try:
        async for chunk in chunks:
            for data in events.feed(chunk):
                if data == b"[DONE]":
                    for delta in answer.end():
                        yield delta
                    return
                for delta in answer.take(_chunk(data)):
                    yield delta
    except HttpFailure as broken:
        raise ProviderFailure("connection", str(broken)) from None
    if answer.reason is None:
        raise ProviderFailure("connection", "the stream ended before the answer did")
    for delta in answer.end():  # some servers never say [DONE]
        yield delta


def _chunk(data: bytes) -> Chunk:
    try:
        chunk = decode(data)
    except msgspec.DecodeError as error:
        raise ProviderFailure("protocol", f"the stream holds something that is no chunk: {error}") from None
    if chunk.error:
        said = chunk.error.get("message", chunk.error) if isinstance(chunk.error, Mapping) else chunk.error
        raise ProviderFailure("overloaded", f"the model broke off: {said}")
    return chunk


class Blocks:
    """Which blocks of an answer are open. Blocks are numbered as they begin."""

    def __init__(self) -> None:
        self.reason: StopReason | None = None
        self._begun = 0
        self._speaking: tuple[str, int] | None = None
        self._calls: dict[int, tuple[int, Extent]] = {}
        self._ended: set[int] = set()

    def take(self, chunk: Chunk) -> Iterator[Delta]:
        """The deltas of one chunk."""
        if chunk.usage:
            yield Metered(_usage(chunk.usage))
        for choice in chunk.choices[:1]:
            grown = choice.delta
            if thought := grown.reasoning_content or grown.reasoning:
                yield from self._say("thinking", thought)
            if grown.content:
                yield from self._say("text", grown.content)
            for piece in grown.tool_calls or ():
                yield from self._call(piece)
            if choice.finish_reason:
                self.reason = REASONS.get(choice.finish_reason, "end_turn")

    def end(self) -> Iterator[Delta]:
        """Close what is open; a call whose JSON is not complete stays open, and so is never run."""
        yield from self._hush()
        for index, (number, extent) in self._calls.items():
            if index not in self._ended and extent.empty:
                yield BlockEnded(number)
        reason = self.reason or "end_turn"
        yield Stopped("tool_use" if self._calls and reason == "end_turn" else reason)

    def _say(self, kind: str, text: str) -> Iterator[Delta]:
        if self._speaking is None or self._speaking[0] != kind:
            yield from self._hush()
            self._speaking = (kind, self._begun)
            yield BlockStarted(self._begun, {"type": kind, kind: ""})
            self._begun += 1
        yield BlockGrew(self._speaking[1], kind, text)  # type: ignore[arg-type]

    def _hush(self) -> Iterator[Delta]:
        if self._speaking is not None:
            yield BlockEnded(self._speaking[1])
            self._speaking = None

    def _call(self, piece: Piece) -> Iterator[Delta]:
        function = piece.function or {}
        if piece.index not in self._calls:
            yield from self._hush()
            self._calls[piece.index] = (self._begun, Extent())
            block = {
                "type": "tool_use",
                "id": piece.id or f"call_{self._begun}",
                "name": function.get("name", ""),
                "input": {},
            }
            yield BlockStarted(self._begun, block)
            self._begun += 1
        number, extent = self._calls[piece.index]
        if (text := function.get("arguments")) and piece.index not in self._ended:
            yield BlockGrew(number, "input", text)
            if extent.feed(text):
                self._ended.add(piece.index)
                yield BlockEnded(number)


def _usage(told: Mapping[str, Any]) -> Usage:
    cached = (told.get("prompt_tokens_details") or {}).get("cached_tokens") or told.get("prompt_cache_hit_tokens") or 0
    return Usage(
        input_tokens=max((told.get("prompt_tokens") or 0) - cached, 0),
        output_tokens=told.get("completion_tokens") or 0,
        cache_read_tokens=cached,
    )
