"""The Anthropic Messages API: a request out of pieces that were encoded once, deltas out of its stream."""

from __future__ import annotations

import re
from asyncio import Future
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

from wieldy.core.messages import ContentBlock, History, Message, encoded_all, listed
from wieldy.core.provider import (
    BlockEnded,
    BlockGrew,
    BlockStarted,
    Delta,
    Field,
    Metered,
    ProviderFailure,
    Request,
    Stopped,
    StopReason,
    ToolOffer,
    Usage,
)
from wieldy.providers.errors import reported
from wieldy.providers.http import IDLE_SECONDS, Http, HttpFailure, Response
from wieldy.providers.leisure import Signs
from wieldy.providers.models import known
from wieldy.providers.request_prefix import Front
from wieldy.providers.sse import decoded, number, part, streamed, text
from wieldy.schema.provider_dialects import ANTHROPIC, adapted
from wieldy.schema.strict_json import dense

URL = "https://api.anthropic.com"
VERSION = "2023-06-01"
WIRE = "anthropic"
CACHED = {"cache_control": {"type": "ephemeral"}}
MAX_TOKENS = 16_000
WINDOW = 200_000
SEARCH = "web_search_20250305"

NOTABLE = (b"content_block_st", b"message_", b"error")
"""What stands in every event but those that a block grows by."""

_SPEAKS = re.compile(rb'"(?:text|thinking)_delta"')
_NAMED = re.compile(rb"(?m)^event:")
_LAST = (  # as short as they can be; a call would take a block's end, a start with an id and a name, and another end
    b'data:{"type":"content_block_stop","index":0}\n\n',
    b'data:{"type":"message_delta","delta":{"stop_reason":"refusal"}}\n\n',
    b'data:{"type":"message_stop"}\n\n',
)
_NAMES = b"event:content_block_stop\nevent:message_delta\nevent:message_stop\n"


def ending(told: bytes) -> int:
    """The fewest bytes of the last events while a text or a thought is open. The end of an open call is too near."""
    if _SPEAKS.search(told) is None or b"input_json_delta" in told:
        return 1
    return sum(map(len, _LAST)) + (len(_NAMES) if _NAMED.search(told) else 0)


SIGNS = Signs(NOTABLE, ending)

_ODD = re.compile(r"[^A-Za-z0-9_-]")

FIELDS: Mapping[str, tuple[str, Field]] = {
    "text_delta": ("text", "text"),
    "input_json_delta": ("partial_json", "input"),
    "thinking_delta": ("thinking", "thinking"),
    "signature_delta": ("signature", "signature"),
    "citations_delta": ("citation", "citation"),
}
_REASONS: Mapping[str, StopReason] = {"model_context_window_exceeded": "max_tokens"}


class Anthropic:
    """One model behind the Messages API, or behind anything that speaks it."""

    name = "anthropic"
    remote = True

    def __init__(
        self,
        model: str,
        *,
        key: str | None,
        base_url: str | None,
        env: Mapping[str, str],
        context_window: int | None = None,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        self.model = model
        found = known(model)
        self.context_window = context_window or (found.window if found is not None else WINDOW)
        headers = {"anthropic-version": VERSION, "accept": "text/event-stream", "user-agent": "wieldy"}
        if key:
            headers["x-api-key"] = key
        elif token := env.get("ANTHROPIC_AUTH_TOKEN"):
            headers["authorization"] = f"Bearer {token}"
        url = (base_url or URL).rstrip("/").removesuffix("/v1")
        self.searches = url == URL
        self._front = Front(front)
        self._http = Http(url, headers, env=env, idle_seconds=idle_seconds)

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[Delta]]:
        """Send the request and give its deltas."""
        signs = None if request.stream_deltas else SIGNS
        sent = joined(self._front.of(request, self.model), request.messages)
        return streamed(self._http, "/v1/messages", sent, self.model, deltas, signs)

    def search_tool(self, allowed: Sequence[str], blocked: Sequence[str]) -> Mapping[str, Any]:
        """The search of Anthropic's servers."""
        domains = {"allowed_domains": list(allowed), "blocked_domains": list(blocked)}
        named = {name: listed for name, listed in domains.items() if listed}
        return {"type": SEARCH, "name": "web_search", "max_uses": 1, **named}

    def approach(self) -> Future[Any] | None:
        """Begin to connect."""
        return self._http.approach()

    async def aclose(self) -> None:
        """Close connections."""
        await self._http.aclose()


def body(request: Request, model: str) -> bytes:
    """The request as JSON. Histories are joined from messages that were encoded when they were new."""
    return joined(front(request, model), request.messages)


def front(request: Request, model: str) -> tuple[bytes, list[bytes]]:
    """What comes before the messages of a conversation, the prompt where it is one of them."""
    head: dict[str, Any] = {"model": model, "max_tokens": request.max_tokens or MAX_TOKENS, "stream": True}
    if request.system:
        blocks: list[dict[str, Any]] = [{"type": "text", "text": part} for part in request.system]
        blocks[-1] |= CACHED
        head["system"] = blocks
    if thinking := _thinking(request.thinking_budget, model):
        head["thinking"] = thinking
        head["max_tokens"] += thinking.get("budget_tokens", 0)
    if request.stop_sequences:
        head["stop_sequences"] = list(request.stop_sequences)
    pieces = [dense(head)[:-1]]
    if request.tools or request.server_tools:
        breaks = request.breaks[-1:]
        tools = [_tool(tool, number in breaks) for number, tool in enumerate(request.tools, 1)]
        tools += [dense(tool) for tool in request.server_tools]
        pieces += [b',"tools":[', b",".join(tools), b"]"]
    return b"".join([*pieces, b',"messages":[']), []


def joined(begun: tuple[bytes, list[bytes]], messages: History) -> bytes:
    """A whole request, of its front and its messages. Changes the list."""
    before, encoded = begun
    # The last two of the user's messages carry breakpoints: this request finds what the one before it left in the cache.
    plain = messages[:-3] if len(messages) > 3 else ()
    encoded += encoded_all(plain, WIRE, _message)
    for message in messages[len(plain) :]:
        cached = message.role == "user" and (message is messages[-1] or message is messages[max(len(messages) - 3, 0)])
        encoded.append(message.encoded(f"{WIRE}+", _cached) if cached else message.encoded(WIRE, _message))
    return listed(before, encoded, b"]}")


def _thinking(budget: int | None, model: str) -> dict[str, Any]:
    """What to say of thinking. Newer models take no budget; unless asked, they keep what they thought to themselves, and with
    it all they say between calls."""
    found = known(model)
    kind = found.thinking if found is not None else "budget"
    if kind == "always" or (kind == "adaptive" and budget):
        return {"type": "adaptive", "display": "summarized"}
    return {"type": "enabled", "budget_tokens": budget} if budget else {}


def _message(message: Message) -> bytes:
    return dense({"role": message.role, "content": _content(message)})


def _cached(message: Message) -> bytes:
    *rest, final = _content(message)
    return dense({"role": message.role, "content": [*rest, {**final, **CACHED}]})


def _content(message: Message) -> list[ContentBlock]:
    """The blocks in the words of this API: ids of other houses made legal, thoughts that nobody signed left out."""
    return [_block(b) for b in message.content if b["type"] != "thinking" or "signature" in b]


def _block(block: ContentBlock) -> ContentBlock:
    match block["type"]:
        case "tool_use" if _ODD.search(block["id"]):
            return {**block, "id": _legal(block["id"])}
        case "tool_result" if _ODD.search(block["tool_use_id"]):
            return {**block, "tool_use_id": _legal(block["tool_use_id"])}
    return block


def _legal(id: str) -> str:
    return _ODD.sub(lambda odd: f"_{ord(odd[0]):x}_", id)


def _tool(tool: ToolOffer, ends_block: bool) -> bytes:
    wire = f"{WIRE}{ends_block}"
    found = tool.encoded.get(wire)
    if found is None:
        schema = adapted(tool.input_schema, ANTHROPIC)
        described = {"name": tool.name, "description": tool.description, "input_schema": schema}
        found = tool.encoded[wire] = dense(described | CACHED if ends_block else described)
    return found


async def deltas(
    events: AsyncIterator[Sequence[bytes]], model: str = "", response: Response | None = None
) -> AsyncIterator[Delta]:
    """The stream's events as deltas. Raises `ProviderFailure` when it ends before the message does."""
    usage = Usage()
    try:
        async for told in events:
            for data in told:
                event = decoded(data)
                kind = text(event, "type")
                if kind == "content_block_delta":
                    delta = _grown(event)
                    if delta is not None:
                        yield delta
                elif kind == "content_block_start":
                    yield BlockStarted(number(event, "index"), part(event, "content_block"))
                elif kind == "content_block_stop":
                    yield BlockEnded(number(event, "index"))
                elif kind == "message_start":
                    usage = _usage(part(part(event, "message"), "usage"), usage)
                    yield Metered(usage)
                elif kind == "message_delta":
                    usage = _usage(part(event, "usage"), usage)
                    yield Metered(usage)
                    if reason := part(event, "delta").get("stop_reason"):
                        yield Stopped(_REASONS.get(reason, reason))
                elif kind == "message_stop":
                    if response is not None:
                        response.whole = True
                    return
                elif kind == "error":
                    raise reported(event.get("error") or {}, model)
                elif kind is None:
                    raise ProviderFailure("protocol", "the stream holds something that is no event: it has no `type`")
    except HttpFailure as broken:
        raise ProviderFailure("connection", str(broken)) from None
    raise ProviderFailure("connection", "the stream ended before the message did")


def _grown(event: Mapping[str, Any]) -> BlockGrew | None:
    delta = part(event, "delta")
    field = FIELDS.get(delta.get("type", ""))
    if field is None:
        return None
    name, grows = field
    piece = delta.get(name)
    if piece is None:
        raise ProviderFailure("protocol", f"the stream holds a {delta['type']} without {name}")
    return BlockGrew(number(event, "index"), grows, piece)


def _usage(told: Mapping[str, Any], known: Usage) -> Usage:
    """What is told now replaces what was known; an output count is a running total."""
    return Usage(
        input_tokens=told.get("input_tokens") or known.input_tokens,
        output_tokens=told.get("output_tokens") or known.output_tokens,
        cache_read_tokens=told.get("cache_read_input_tokens") or known.cache_read_tokens,
        cache_write_tokens=told.get("cache_creation_input_tokens") or known.cache_write_tokens,
    )
