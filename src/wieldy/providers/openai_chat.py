"""OpenAI-compatible Chat Completions: the conversation in the form of that API."""

from __future__ import annotations

import re
from asyncio import Future
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Literal

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
from wieldy.providers.sse import Extent, decoded, number, part, parts, streamed, text
from wieldy.schema.provider_dialects import OPENAI, adapted
from wieldy.schema.strict_json import dense, dense_text

REASONS: Mapping[str, StopReason] = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "length": "max_tokens",
    "content_filter": "refusal",
}

DONE = b"[DONE]"
NOTABLE = (
    *(b"tool_calls", b"function_call", DONE, b"error"),
    *(b'"finish_reason":"', b'"finish_reason": "', b'"usage":{', b'"usage": {'),
)
"""What stands in the chunks that say more than some words of a text or a thought."""

_CHUNK = re.compile(rb'data:[^\n]*?"delta": ?(\{(?:[^"{}]|"(?:[^"\\]|\\.)*")+\})[^\n]*\n\n')
_SAYS = re.compile(rb'"(?:content|reasoning(?:_content)?|refusal)": ?"[^"]')
_MORE = b'{}"prompt_tokens":1,"completion_tokens":1,"total_tokens":2data:[DONE]\n\n'


def ending(told: bytes) -> int:
    """The fewest bytes of the last events, by the form of a chunk with words: one without any, usage, and `[DONE]`.

    Usage is asked for, so it comes, in that chunk or in one of its own. A whole call in a chunk is not shorter.
    """
    chunk = _CHUNK.search(told)
    if chunk is None or _SAYS.search(chunk[1]) is None:
        return 1
    return len(chunk[0]) - len(chunk[1]) + len(_MORE)


SIGNS = Signs(NOTABLE, ending)


async def deltas(
    events: AsyncIterator[Sequence[bytes]], model: str = "", response: Response | None = None
) -> AsyncIterator[Delta]:
    """The stream's events as deltas. Raises `ProviderFailure` when it ends before the answer does."""
    answer = Blocks()
    try:
        async for told in events:
            over = DONE in told
            for data in told[: told.index(DONE)] if over else told:
                chunk = decoded(data)
                if error := chunk.get("error"):
                    raise reported(error, model)
                for delta in answer.take(chunk):
                    yield delta
            if over:
                if response is not None:
                    response.whole = True
                break
    except HttpFailure as broken:
        if answer.reason is None:
            raise ProviderFailure("connection", str(broken)) from None
    if answer.reason is None:
        raise ProviderFailure("connection", "the stream ended before the answer did")
    for delta in answer.end():  # some servers never say [DONE]
        yield delta


class Blocks:
    """Which blocks of an answer are open. Blocks are numbered as they begin."""

    def __init__(self) -> None:
        self.reason: StopReason | None = None
        self._begun = 0
        self._speaking: tuple[Field, int] | None = None
        self._calls: list[Writing] = []
        self._at: dict[int, Writing] = {}

    def take(self, chunk: Mapping[str, Any]) -> list[Delta]:
        """The deltas of one chunk."""
        told: list[Delta] = []
        if usage := part(chunk, "usage"):
            told.append(Metered(_usage(usage)))
        for choice in parts(chunk, "choices")[:1]:
            grown = part(choice, "delta")
            if thought := text(grown, "reasoning_content") or text(grown, "reasoning"):
                told += self._say("thinking", thought)
            if said := text(grown, "content") or text(grown, "refusal"):
                told += self._say("text", said)
            for piece in parts(grown, "tool_calls"):
                told += self._call(piece)
            if reason := text(choice, "finish_reason"):
                self.reason = REASONS.get(reason, "end_turn")
        return told

    def end(self) -> Iterator[Delta]:
        """Close what is open; a call that the length limit left incomplete stays open, and so is never run."""
        yield from self._hush()
        reason = self.reason or "end_turn"
        for call in self._calls:
            if call.number is not None and not call.closed and reason != "max_tokens":
                yield BlockEnded(call.number)
        yield Stopped("tool_use" if self._calls and reason == "end_turn" else reason)

    def _say(self, kind: Literal["text", "thinking"], said: str) -> list[Delta]:
        if self._speaking is not None and self._speaking[0] == kind:
            return [BlockGrew(self._speaking[1], kind, said)]
        ended, number = self._hush(), self._begun
        self._speaking = (kind, number)
        self._begun += 1
        return [*ended, BlockStarted(number, {"type": kind, kind: ""}), BlockGrew(number, kind, said)]

    def _hush(self) -> list[Delta]:
        if self._speaking is None:
            return []
        ended, self._speaking = BlockEnded(self._speaking[1]), None
        return [ended]

    def _call(self, piece: Mapping[str, Any]) -> Iterator[Delta]:
        function, index, id = part(piece, "function"), number(piece, "index"), text(piece, "id") or ""
        call = self._at.get(index)
        if call is None or (id and call.id and id != call.id):
            # Some servers give every call the same index: another id is another call.
            call = self._at[index] = Writing()
            self._calls.append(call)
        call.id = call.id or id
        call.name += function.get("name") or "" if call.number is None else ""
        said = function.get("arguments")
        grown = said if isinstance(said, str) else "" if said is None else dense_text(said)
        if call.number is None:
            if not call.name:
                return
            yield from self._hush()
            call.number, self._begun = self._begun, self._begun + 1
            block = {"type": "tool_use", "id": call.id or f"call_{call.number}", "name": call.name, "input": {}}
            yield BlockStarted(call.number, block)
        if grown and not call.closed:
            yield BlockGrew(call.number, "input", grown)
            if call.extent.feed(grown):
                call.closed = True
                yield BlockEnded(call.number)


class Writing:
    """A call that is being written: its block has a number once its name is known."""

    __slots__ = ("closed", "extent", "id", "name", "number")

    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.number: int | None = None
        self.extent = Extent()
        self.closed = False


def _usage(told: Mapping[str, Any]) -> Usage:
    cached = (told.get("prompt_tokens_details") or {}).get("cached_tokens") or told.get("prompt_cache_hit_tokens") or 0
    return Usage(
        input_tokens=max((told.get("prompt_tokens") or 0) - cached, 0),
        output_tokens=told.get("completion_tokens") or 0,
        cache_read_tokens=cached,
    )


URL = "https://api.openai.com/v1"
WIRE = "openai"
WINDOW = 128_000


class OpenAI:
    """One model behind a Chat Completions API."""

    name = "openai"
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
        headers = {"accept": "text/event-stream", "user-agent": "wieldy"}
        if key:
            headers["authorization"] = f"Bearer {key}"
        self._front = Front(front)
        self._http = Http(base_url or URL, headers, env=env, idle_seconds=idle_seconds)

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[Delta]]:
        """Send the request and give its deltas."""
        signs = None if request.stream_deltas else SIGNS
        sent = joined(self._front.of(request, self.model), request.messages)
        return streamed(self._http, "/chat/completions", sent, self.model, deltas, signs)

    def approach(self) -> Future[Any] | None:
        """Begin to connect."""
        return self._http.approach()

    async def aclose(self) -> None:
        """Close connections."""
        await self._http.aclose()


def body(request: Request, model: str) -> bytes:
    """The request as JSON, joined from messages that were encoded when they were new."""
    return joined(front(request, model), request.messages)


def front(request: Request, model: str) -> tuple[bytes, list[bytes]]:
    """What comes before the messages of a conversation, the prompt where it is one of them."""
    head: dict[str, Any] = {"model": model, "stream": True, "stream_options": {"include_usage": True}}
    if request.max_tokens is not None:
        reasons = model.startswith(("o1", "o3", "o4", "gpt-5", "gpt-6"))
        head["max_completion_tokens" if reasons else "max_tokens"] = request.max_tokens
    if request.stop_sequences:
        head["stop"] = list(request.stop_sequences)
    pieces = [dense(head)[:-1]]
    if request.tools:
        pieces += [b',"tools":[', b",".join(map(_tool, request.tools)), b"]"]
    prompt = [dense({"role": "system", "content": "\n\n".join(request.system)})] if request.system else []
    return b"".join([*pieces, b',"messages":[']), prompt


def joined(begun: tuple[bytes, list[bytes]], messages: History) -> bytes:
    """A whole request, of its front and its messages. Changes the list."""
    before, encoded = begun
    encoded += filter(None, encoded_all(messages, WIRE, _message))
    return listed(before, encoded, b"]}")


def _tool(tool: ToolOffer) -> bytes:
    found = tool.encoded.get(WIRE)
    if found is None:
        function = {
            "name": tool.name,
            "description": tool.description,
            "parameters": adapted(tool.input_schema, OPENAI),
        }
        found = tool.encoded[WIRE] = dense({"type": "function", "function": function})
    return found


def _message(message: Message) -> bytes:
    """One message is one or several here: each result is a message of its own. They are joined, ready for the list."""
    parts = _assistant(message) if message.role == "assistant" else _user(message)
    return b",".join(dense(part) for part in parts)


def _assistant(message: Message) -> Iterator[dict[str, Any]]:
    text = "".join(block["text"] for block in message.content if block["type"] == "text")
    # Thoughts that carry a signature are another house's; those without came over this wire, and some servers want them back.
    unsigned = [b for b in message.content if b["type"] == "thinking" and "signature" not in b]
    thoughts = "".join(block["thinking"] for block in unsigned)
    calls = [
        {
            "id": block["id"],
            "type": "function",
            "function": {"name": block["name"], "arguments": dense_text(block["input"])},
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
