"""All wires as bytes, and a server on loopback that sends them: chunked, in any pieces, with anything that can go wrong."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from wieldy.core.messages import Message
from wieldy.core.provider import Delta, Provider, ProviderFailure, Request
from wieldy.engine.turn import StreamedMessage
from wieldy.models.anthropic import Anthropic
from wieldy.models.http import HttpModel
from wieldy.models.openai_chat import OpenAIChat
from wieldy.models.openai_responses import OpenAIResponses

Step = tuple[str, ...]  # ("text", words) · ("think", words) · ("call", id, name, json)


def sse(event: dict[str, Any]) -> bytes:
    return f"event: {event.get('type', 'chunk')}\ndata: {json.dumps(event)}\n\n".encode()


def pieces(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)] if size else [text]


def anthropic_stream(steps: Sequence[Step], size: int = 0, stop: str | None = None) -> bytes:
    """A Messages stream that says these steps, in pieces of `size` characters."""
    usage = {"input_tokens": 10, "cache_read_input_tokens": 4, "cache_creation_input_tokens": 2, "output_tokens": 1}
    message = {"id": "m", "type": "message", "role": "assistant", "model": "some-model", "content": [], "usage": usage}
    out = [sse({"type": "message_start", "message": message}), sse({"type": "ping"})]
    for index, (kind, *rest) in enumerate(steps):
        if kind == "call":
            start = {"type": "tool_use", "id": rest[0], "name": rest[1], "input": {}}
            grown = [{"type": "input_json_delta", "partial_json": p} for p in ["", *pieces(rest[2], size)]]
        elif kind == "think":
            start = {"type": "thinking", "thinking": "", "signature": ""}
            grown = [{"type": "thinking_delta", "thinking": p} for p in pieces(rest[0], size)]
            grown.append({"type": "signature_delta", "signature": "signed"})
        else:
            start = {"type": "text", "text": ""}
            grown = [{"type": "text_delta", "text": p} for p in pieces(rest[0], size)]
        out.append(sse({"type": "content_block_start", "index": index, "content_block": start}))
        out += [sse({"type": "content_block_delta", "index": index, "delta": delta}) for delta in grown]
        out.append(sse({"type": "content_block_stop", "index": index}))
    reason = stop or ("tool_use" if any(step[0] == "call" for step in steps) else "end_turn")
    out.append(sse({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 42}}))
    out.append(sse({"type": "message_stop"}))
    return b"".join(out)


FRAME = {"id": "m", "object": "chat.completion.chunk", "created": 0, "model": "some-model"}


def openai_stream(steps: Sequence[Step], size: int = 0, stop: str | None = None, interleave: bool = False) -> bytes:
    """A Chat Completions stream that says these steps; with `interleave`, the pieces of all calls come in turns."""

    def chunk(delta: dict[str, Any], reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        return b"data: " + json.dumps({**FRAME, "choices": [choice]}).encode() + b"\n\n"

    out = [chunk({"role": "assistant", "content": ""})]
    calls: list[list[bytes]] = []
    for kind, *rest in steps:
        if kind == "call":
            index = len(calls)
            first = {"index": index, "id": rest[0], "type": "function", "function": {"name": rest[1], "arguments": ""}}
            more = [{"index": index, "function": {"arguments": p}} for p in pieces(rest[2], size)]
            calls.append([chunk({"tool_calls": [piece]}) for piece in [first, *more]])
            if not interleave:
                out += calls[-1]
        else:
            out += [chunk({"reasoning_content" if kind == "think" else "content": p}) for p in pieces(rest[0], size)]
    if interleave:
        out += [row[n] for n in range(max(map(len, calls), default=0)) for row in calls if n < len(row)]
    out.append(chunk({}, stop or ("tool_calls" if calls else "stop")))
    usage = {"prompt_tokens": 16, "completion_tokens": 42, "prompt_tokens_details": {"cached_tokens": 4}}
    out.append(b"data: " + json.dumps({**FRAME, "choices": [], "usage": usage}).encode() + b"\n\n")
    return b"".join([*out, b"data: [DONE]\n\n"])


def responses_stream(steps: Sequence[Step], size: int = 0, stop: str | None = None, interleave: bool = False) -> bytes:
    """A Responses stream that says these steps; with `interleave`, the events of all items come in turns."""
    rows: list[list[dict[str, Any]]] = []
    for index, (kind, *rest) in enumerate(steps):
        at = {"output_index": index, "item_id": f"item_{index}"}
        done: dict[str, Any] = {
            "id": f"item_{index}",
            "status": "incomplete" if stop and kind == "call" else "completed",
        }
        if kind == "call":
            done |= {"type": "function_call", "call_id": rest[0], "name": rest[1], "arguments": rest[2]}
            grown = [
                {"type": "response.function_call_arguments.delta", "delta": p, **at} for p in pieces(rest[2], size)
            ]
            begun = {**done, "arguments": ""}
        elif kind == "think":
            summary = [{"type": "summary_text", "text": rest[0]}]
            done |= {"type": "reasoning", "summary": summary, "encrypted_content": f"secret {rest[0]}"}
            grown = [
                {"type": "response.reasoning_summary_text.delta", "summary_index": 0, "delta": p, **at}
                for p in pieces(rest[0], size)
            ]
            begun = {**done, "summary": []}
        else:
            part = {"type": "output_text", "text": rest[0], "annotations": []}
            done |= {"type": "message", "role": "assistant", "content": [part]}
            empty = {**part, "text": ""}
            grown = [
                {"type": "response.content_part.added", "content_index": 0, "part": empty, **at},
                *(
                    {"type": "response.output_text.delta", "content_index": 0, "delta": p, "logprobs": [], **at}
                    for p in pieces(rest[0], size)
                ),
                {"type": "response.output_text.done", "content_index": 0, "text": rest[0], "logprobs": [], **at},
                {"type": "response.content_part.done", "content_index": 0, "part": part, **at},
            ]
            begun = {**done, "content": []}
        first = {"type": "response.output_item.added", "item": begun, **at}
        rows.append([first, *grown, {"type": "response.output_item.done", "item": done, **at}])
    if interleave:
        events = [row[n] for n in range(max(map(len, rows), default=0)) for row in rows if n < len(row)]
    else:
        events = [event for row in rows for event in row]
    usage = {"input_tokens": 16, "output_tokens": 42, "input_tokens_details": {"cached_tokens": 4}}
    response: dict[str, Any] = {"id": "r", "status": "incomplete" if stop else "completed", "usage": usage}
    response["output"] = [row[-1]["item"] for row in rows]
    if stop:
        response["incomplete_details"] = {"reason": stop}
    last = {"type": "response.incomplete" if stop else "response.completed", "response": response}
    started = {"type": "response.created", "response": {"id": "r", "status": "in_progress", "output": []}}
    return b"".join(map(sse, [started, *events, last]))


STREAMS: dict[str, Callable[..., bytes]] = {
    "anthropic": anthropic_stream,
    "openai": openai_stream,
    "responses": responses_stream,
}
MODELS: dict[str, type[HttpModel]] = {"anthropic": Anthropic, "openai": OpenAIChat, "responses": OpenAIResponses}


def provider(wire: str, url: str | None, env: dict[str, str] | None = None, **options: Any) -> HttpModel:
    """The adapter of a wire, pointed at a server."""
    return MODELS[wire]("some-model", **{"api_key": "key", "base_url": url, "env": env or {}, **options})


@dataclass
class ReceivedRequest:
    """A request as the server saw it."""

    line: str
    headers: dict[str, str]
    body: Any


Reply = Callable[[ReceivedRequest, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Loopback:
    """A server that answers each request with the next reply, the last one for ever."""

    replies: list[Reply]
    url: str = ""
    received: list[ReceivedRequest] = field(default_factory=list)
    connections: int = 0
    _writers: list[asyncio.StreamWriter] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.append(writer)
        try:
            while True:
                received = await read_request(reader)
                self.received.append(received)
                reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
                await reply(received, writer)
                if writer.is_closing():
                    return
        except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
            return
        finally:
            writer.close()


async def read_request(reader: asyncio.StreamReader) -> ReceivedRequest:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    headers = {k.strip().lower(): v.strip() for k, _, v in (line.partition(":") for line in head[1:] if line)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return ReceivedRequest(head[0], headers, json.loads(body) if body else None)


@asynccontextmanager
async def loopback(
    *replies: Reply, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1"
) -> AsyncIterator[Loopback]:
    """A server on loopback, gone with the block."""
    there = Loopback(list(replies))
    server = await asyncio.start_server(there.serve, "127.0.0.1", 0, ssl=tls)
    port = server.sockets[0].getsockname()[1]
    there.url = f"{'https' if tls else 'http'}://{host}:{port}"
    try:
        yield there
    finally:
        server.close()
        for writer in there._writers:
            writer.transport.abort()
        await asyncio.sleep(0.01)


def stream(data: bytes, size: int = 0, cut: int | None = None) -> Reply:
    """Answer with an event stream, in chunks of `size` bytes; `cut` drops the connection after that many."""

    async def reply(received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        sent = data if cut is None else data[:cut]
        for at in range(0, len(sent), size or max(len(sent), 1)):
            piece = sent[at : at + (size or len(sent))]
            writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            if size:
                await writer.drain()
        if cut is None:
            writer.write(b"0\r\n\r\n")
            await writer.drain()
        else:
            await writer.drain()
            writer.close()

    return reply


def status(code: int, body: str | dict[str, Any], **headers: str) -> Reply:
    """Answer with an error."""
    text = body if isinstance(body, str) else json.dumps(body)
    kind = "text/html" if isinstance(body, str) else "application/json"

    async def reply(received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        named = {"content-type": kind, **{k.replace("_", "-"): v for k, v in headers.items()}}
        lines = [
            f"HTTP/1.1 {code} X",
            *(f"{k}: {v}" for k, v in named.items()),
            f"content-length: {len(text.encode())}",
        ]
        writer.write("\r\n".join([*lines, "", ""]).encode() + text.encode())
        await writer.drain()

    return reply


def request(*messages: Message, **more: Any) -> Request:
    return Request(("Be brief.",), messages or (Message.user("hi"),), **more)


async def receive(model: Provider, received: Request | None = None, *, keep: bool = False) -> StreamedMessage:
    """What a model answers; its connections are closed unless they are to be kept."""
    answer = StreamedMessage()
    try:
        async with model.stream(received or request()) as deltas:
            async for delta in deltas:
                answer.add(delta)
    finally:
        if not keep:
            await model.aclose()
    return answer


async def failure_of(model: Provider) -> ProviderFailure:
    """How a model fails."""
    try:
        await receive(model)
    except ProviderFailure as failure:
        return failure
    raise AssertionError("it did not fail")


async def each(deltas: AsyncIterator[Delta]) -> list[Delta]:
    return [delta async for delta in deltas]
