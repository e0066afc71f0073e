"""Answers of a model as the bytes of any wire, in any interleaving, cut off at any byte; and a model that sends them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import cycle
from typing import Any, Literal, TypeAlias

from tests.unit.agent.oracle import check_history, check_request

from wieldy.core.provider import Delta, FailureKind, ProviderFailure, Request
from wieldy.models import anthropic, openai_responses
from wieldy.models import openai_chat as completion
from wieldy.models.http import SseDecoder, StreamParser, parse_events

WireName: TypeAlias = Literal["messages", "completions", "responses"]


@dataclass(frozen=True)
class Said:
    """A piece of text."""

    text: str


@dataclass(frozen=True)
class Called:
    """A call of a tool, its input as JSON."""

    id: str
    name: str
    input: str


@dataclass(frozen=True)
class Habits:
    """How a server sends the pieces of a call: what it repeats, what it leaves out, and what it sends that says nothing."""

    repeats_id: bool = False
    repeats_name: bool = False
    empty_before: int = 0
    empty_after: int = 0
    placeholder: bool = False
    index: Literal["given", "zero", "null", "absent"] = "given"
    with_ids: bool = True

    def split(self, text: str, size: int) -> list[str]:
        """The arguments in pieces; an empty object stands for nothing but itself, or for what is still to come."""
        placeholder = ["{}"] if self.placeholder else []
        return [*[""] * self.empty_before, *placeholder, *_pieces(text, size), *[""] * self.empty_after]

    def piece(self, number: int, call: Called, arguments: str, *, is_first: bool) -> dict[str, Any]:
        """One piece of a call over Chat Completions."""
        piece: dict[str, Any] = {"function": {"arguments": arguments}}
        if self.index != "absent":
            piece["index"] = {"given": number, "zero": 0, "null": None}[self.index]
        if self.with_ids and (is_first or self.repeats_id):
            piece |= {"id": call.id, "type": "function"}
        if is_first or self.repeats_name:
            piece["function"]["name"] = call.name
        return piece


@dataclass(frozen=True)
class Reply:
    """What the model does when it is asked: blocks interleaved as `order` says, in pieces, up to a share of the bytes."""

    blocks: tuple[Said | Called, ...] = (Said("well"),)
    order: tuple[int, ...] = (0,)
    piece: int = 4
    share: float | None = None
    wire: WireName = "messages"
    failure: FailureKind | None = None
    habits: Habits = Habits()

    def data(self) -> bytes:
        """The bytes that come over the wire."""
        events = WIRES[self.wire](self)
        whole = b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)
        whole += b"data: [DONE]\n\n" if self.wire == "completions" else b""
        return whole if self.share is None else whole[: round(self.share * len(whole))]


def _pieces(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


def _interleaved(strands: Sequence[list[Any]], order: Sequence[int]) -> Iterator[Any]:
    """Every strand in its own order, each begun after the one before it; `order` says whose turn it is."""
    begun, left = 1, [list(strand) for strand in strands]
    for choice in cycle(order or (0,)):
        if not any(left):
            return
        if begun < len(left) and (choice % 2 or not any(left[:begun])):
            begun += 1
            yield left[begun - 1].pop(0)
            continue
        open_ones = [strand for strand in left[:begun] if strand]
        if open_ones:
            yield open_ones[choice % len(open_ones)].pop(0)


def _messages(reply: Reply) -> Iterator[dict[str, Any]]:
    yield {"type": "message_start", "message": {"usage": {"input_tokens": 3}}}
    strands = []
    for index, block in enumerate(reply.blocks):
        if isinstance(block, Said):
            start: dict[str, Any] = {"type": "text", "text": ""}
            grown = [{"type": "text_delta", "text": piece} for piece in _pieces(block.text, reply.piece)]
        else:
            start = {"type": "tool_use", "id": block.id, "name": block.name, "input": {}}
            inputs = reply.habits.split(block.input, reply.piece)
            grown = [{"type": "input_json_delta", "partial_json": p} for p in inputs]
        strands.append(
            [
                {"type": "content_block_start", "index": index, "content_block": start},
                *({"type": "content_block_delta", "index": index, "delta": delta} for delta in grown),
                {"type": "content_block_stop", "index": index},
            ]
        )
    yield from _interleaved(strands, reply.order)
    reason = "tool_use" if any(isinstance(block, Called) for block in reply.blocks) else "end_turn"
    yield {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 5}}
    yield {"type": "message_stop"}


def _completions(reply: Reply) -> Iterator[dict[str, Any]]:
    strands: list[list[dict[str, Any]]] = []
    number = 0
    for block in reply.blocks:
        if isinstance(block, Said):
            strands.append([{"content": piece} for piece in _pieces(block.text, reply.piece)])
            continue
        inputs = ["", *reply.habits.split(block.input, reply.piece)]
        pieces = [reply.habits.piece(number, block, p, is_first=at == 0) for at, p in enumerate(inputs)]
        strands.append([{"tool_calls": [piece]} for piece in pieces])
        number += 1
    for delta in _interleaved(strands, reply.order):
        yield {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    yield {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls" if number else "stop"}]}


def _responses(reply: Reply) -> Iterator[dict[str, Any]]:
    strands: list[list[dict[str, Any]]] = []
    for index, block in enumerate(reply.blocks):
        at = {"output_index": index}
        if isinstance(block, Said):
            item: dict[str, Any] = {"type": "message", "content": [{"type": "output_text", "text": block.text}]}
            begun, kind, text = {**item, "content": []}, "output_text", block.text
        else:
            item = {"type": "function_call", "call_id": block.id, "name": block.name, "arguments": block.input}
            begun, kind, text = {**item, "arguments": ""}, "function_call_arguments", block.input
        is_call = isinstance(block, Called)
        pieces = (reply.habits.split if is_call else _pieces)(text, reply.piece)
        grown = [{"type": f"response.{kind}.delta", "delta": piece, **at} for piece in pieces]
        late = [{"type": f"response.{kind}.delta", "delta": "", **at}] * (is_call * reply.habits.empty_after)
        added = {"type": "response.output_item.added", "item": begun, **at}
        strands.append([added, *grown, {"type": "response.output_item.done", "item": item, **at}, *late])
    yield from _interleaved(strands, reply.order)
    yield {"type": "response.completed", "response": {"usage": {"input_tokens": 3, "output_tokens": 5}}}


WIRES: dict[str, Callable[[Reply], Iterator[dict[str, Any]]]] = {
    "messages": _messages,
    "completions": _completions,
    "responses": _responses,
}
PARSERS: dict[str, Callable[[], StreamParser]] = {
    "messages": anthropic.MessageParser,
    "completions": completion.CompletionParser,
    "responses": openai_responses.ResponseParser,
}


class Wire:
    """A model that sends the replies it was given, then goes on saying that it is done. Every request is held to the rules."""

    name = "wire"
    model = "wire"
    context_window = 200_000

    def __init__(self) -> None:
        self.replies: list[Reply] = []
        self.asked = 0

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[AsyncIterator[Delta]]:
        """The next reply."""
        self.asked += 1
        messages = [message.as_dict() for message in request.messages]
        (check_history if messages[-1]["role"] == "assistant" else check_request)(messages)
        reply = self.replies.pop(0) if self.replies else Reply((Said("done"),))
        if reply.failure is not None:
            raise ProviderFailure(reply.failure, f"the server says: {reply.failure}", retry_after=0)
        yield self._deltas(reply)

    async def aclose(self) -> None:
        """Nothing to let go of."""

    async def _deltas(self, reply: Reply) -> AsyncIterator[Delta]:
        parser = PARSERS[reply.wire]()
        try:
            async for delta in parse_events(_events(reply.data(), reply.piece * 7), parser):
                yield delta
        except ProviderFailure as failure:
            failure.retry_after = 0
            raise


async def _events(data: bytes, size: int) -> AsyncIterator[list[bytes]]:
    import asyncio

    decoder = SseDecoder()
    for at in range(0, len(data), size):
        yield decoder.feed(data[at : at + size])
        if at % (size * 3) == 0:
            await asyncio.sleep(0)
