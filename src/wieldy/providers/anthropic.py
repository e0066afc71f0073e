"""The Anthropic Messages API: a request out of pieces that were encoded once, deltas out of its stream."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from wieldy.core.message import Message
from wieldy.core.provider import (
    BlockEnded,
    BlockGrew,
    BlockStarted,
    Delta,
    Metered,
    ProviderFailure,
    Request,
    Stopped,
    ToolOffer,
    Usage,
)
from wieldy.providers.http import Http, HttpFailure
from wieldy.providers.refusal import failure
from wieldy.providers.sse import Events
from wieldy.schema.dialect import ANTHROPIC, adapted

URL = "https://api.anthropic.com"
VERSION = "2023-06-01"
WIRE = "anthropic"
CACHED = {"cache_control": {"type": "ephemeral"}}

encode = msgspec.json.Encoder().encode


class Event(msgspec.Struct):
    """Any event of the stream; each kind fills some of these."""

    type: str
    index: int = 0
    content_block: dict[str, Any] | None = None
    delta: dict[str, Any] | None = None
    message: dict[str, Any] | None = None
    usage: dict[str, Any] | None = None
    error: dict[str, Any] | None = None


decode = msgspec.json.Decoder(Event).decode


class Anthropic:
    """One model behind the Messages API, or behind anything that speaks it."""

    name = "anthropic"

    def __init__(
        self,
        model: str,
        *,
        key: str | None,
        base_url: str | None,
        env: Mapping[str, str],
        context_window: int = 200_000,
    ) -> None:
        self.model = model
        self.context_window = context_window
        headers = {"anthropic-version": VERSION, "accept": "text/event-stream", "user-agent": "wieldy"}
        if key:
            headers["x-api-key"] = key
        elif token := env.get("ANTHROPIC_AUTH_TOKEN"):
            headers["authorization"] = f"Bearer {token}"
        self._http = Http(base_url or URL, headers, env=env)

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[AsyncIterator[Delta]]:
        """Send the request and give its deltas."""
        try:
            async with self._http.post("/v1/messages", body(request, self.model)) as response:
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
    """The request as JSON. Histories are joined from messages that were encoded when they were new."""
    head: dict[str, Any] = {"model": model, "max_tokens": request.max_tokens, "stream": True}
    if request.system:
        blocks: list[dict[str, Any]] = [{"type": "text", "text": part} for part in request.system]
        blocks[0] |= CACHED
        head["system"] = blocks
    if request.thinking_budget:
        head["thinking"] = {"type": "enabled", "budget_tokens": request.thinking_budget}
    if request.stop_sequences:
        head["stop_sequences"] = list(request.stop_sequences)
    pieces = [encode(head)[:-1]]
    if request.tools or request.server_tools:
        last = len(request.tools)
        tools = [_tool(tool, number + 1 in request.breaks) for number, tool in enumerate(request.tools[:last])]
        tools += [encode(tool) for tool in request.server_tools]
        pieces += [b',"tools":[', b",".join(tools), b"]"]
    messages = [message.encoded(WIRE, _message) for message in request.messages[:-1]]
    messages += [_last(message) for message in request.messages[-1:]]
    pieces += [b',"messages":[', b",".join(messages), b"]}"]
    return b"".join(pieces)


def _message(message: Message) -> bytes:
    return encode({"role": message.role, "content": message.content})


def _last(message: Message) -> bytes:
    """The last message carries the cache breakpoint, so that the next request finds everything before it."""
    *rest, final = message.content
    if final["type"] in ("thinking", "redacted_thinking"):
        return message.encoded(WIRE, _message)
    return encode({"role": message.role, "content": [*rest, {**final, **CACHED}]})


def _tool(tool: ToolOffer, ends_block: bool) -> bytes:
    wire = f"{WIRE}{ends_block}"
    found = tool.encoded.get(wire)
    if found is None:
        schema = adapted(tool.input_schema, ANTHROPIC)
        described = {"name": tool.name, "description": tool.description, "input_schema": schema}
        found = tool.encoded[wire] = encode(described | CACHED if ends_block else described)
    return found


async def deltas(chunks: AsyncIterator[bytes]) -> AsyncIterator[Delta]:
    """The stream's bytes as deltas. Raises `ProviderFailure` when it ends before the message does."""
    events, usage = Events(), Usage()
    try:
        async for chunk in chunks:
            for data in events.feed(chunk):
                try:
                    event = decode(data)
                except msgspec.DecodeError as error:
                    raise ProviderFailure("protocol", f"the stream holds something that is no event: {error}") from None
                if event.type == "content_block_delta":
                    delta = _grown(event)
                    if delta is not None:
                        yield delta
                elif event.type == "content_block_start":
                    yield BlockStarted(event.index, event.content_block or {})
                elif event.type == "content_block_stop":
                    yield BlockEnded(event.index)
                elif event.type == "message_start":
                    usage = _usage((event.message or {}).get("usage"), usage)
                    yield Metered(usage)
                elif event.type == "message_delta":
                    usage = _usage(event.usage, usage)
                    yield Metered(usage)
                    if reason := (event.delta or {}).get("stop_reason"):
                        yield Stopped(reason)
                elif event.type == "message_stop":
                    return
                elif event.type == "error":
                    raise _reported(event.error or {})
    except HttpFailure as broken:
        raise ProviderFailure("connection", str(broken)) from None
    raise ProviderFailure("connection", "the stream ended before the message did")


def _grown(event: Event) -> BlockGrew | None:
    delta = event.delta or {}
    match delta.get("type"):
        case "text_delta":
            return BlockGrew(event.index, "text", delta["text"])
        case "input_json_delta":
            return BlockGrew(event.index, "input", delta["partial_json"])
        case "thinking_delta":
            return BlockGrew(event.index, "thinking", delta["thinking"])
        case "signature_delta":
            return BlockGrew(event.index, "signature", delta["signature"])
        case "citations_delta":
            return BlockGrew(event.index, "citation", delta["citation"])
    return None


def _usage(told: Mapping[str, Any] | None, known: Usage) -> Usage:
    """What is told now replaces what was known; an output count is a running total."""
    told = told or {}
    return Usage(
        input_tokens=told.get("input_tokens") or known.input_tokens,
        output_tokens=told.get("output_tokens") or known.output_tokens,
        cache_read_tokens=told.get("cache_read_input_tokens") or known.cache_read_tokens,
        cache_write_tokens=told.get("cache_creation_input_tokens") or known.cache_write_tokens,
    )


def _reported(error: Mapping[str, Any]) -> ProviderFailure:
    kind = {"overloaded_error": "overloaded", "rate_limit_error": "rate", "api_error": "overloaded"}.get(
        str(error.get("type")), "bad_request"
    )
    return ProviderFailure(kind, f"the model broke off: {error.get('message', 'no reason given')}")  # type: ignore[arg-type]
