"""OpenAI-compatible Chat Completions: the conversation in the form of that API."""

from __future__ import annotations

from asyncio import Future
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

from wieldy.core.message import ContentBlock, History, Message, encoded_all, listed
from wieldy.core.provider import Delta, Request, ToolOffer
from wieldy.providers.completion import SIGNS, deltas
from wieldy.providers.front import Front
from wieldy.providers.http import IDLE_SECONDS, Http
from wieldy.providers.models import known
from wieldy.providers.stream import streamed
from wieldy.schema.dense import dense, dense_text
from wieldy.schema.dialect import OPENAI, adapted

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
        signs = None if request.closely else SIGNS
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
