"""Chunks of a Chat Completions stream → deltas.

The wire has no end of a block: text ends when a call begins, a call ends when its JSON is complete, so that its tool can start.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any, Literal

import msgspec

from wieldy.core.provider import (
    BlockEnded,
    BlockGrew,
    BlockStarted,
    Delta,
    Field,
    Metered,
    ProviderFailure,
    Stopped,
    StopReason,
    Usage,
)
from wieldy.providers.decoded import decoded
from wieldy.providers.extent import Extent
from wieldy.providers.http import HttpFailure, Response
from wieldy.providers.refusal import reported


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
    refusal: str | None = None
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


async def deltas(
    events: AsyncIterator[bytes], model: str = "", response: Response | None = None
) -> AsyncIterator[Delta]:
    """The stream's events as deltas. Raises `ProviderFailure` when it ends before the answer does."""
    answer = Blocks()
    try:
        async for data in events:
            if data == b"[DONE]":
                if response is not None:
                    response.whole = True
                break
            chunk = decoded(data, Chunk, decode)
            if chunk.error:
                raise reported(chunk.error, model)
            for delta in answer.take(chunk):
                yield delta
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

    def take(self, chunk: Chunk) -> Iterator[Delta]:
        """The deltas of one chunk."""
        if chunk.usage:
            yield Metered(_usage(chunk.usage))
        for choice in chunk.choices[:1]:
            grown = choice.delta
            if thought := grown.reasoning_content or grown.reasoning:
                yield from self._say("thinking", thought)
            if text := grown.content or grown.refusal:
                yield from self._say("text", text)
            for piece in grown.tool_calls or ():
                yield from self._call(piece)
            if choice.finish_reason:
                self.reason = REASONS.get(choice.finish_reason, "end_turn")

    def end(self) -> Iterator[Delta]:
        """Close what is open; a call that the length limit left incomplete stays open, and so is never run."""
        yield from self._hush()
        reason = self.reason or "end_turn"
        for call in self._calls:
            if call.number is not None and not call.closed and reason != "max_tokens":
                yield BlockEnded(call.number)
        yield Stopped("tool_use" if self._calls and reason == "end_turn" else reason)

    def _say(self, kind: Literal["text", "thinking"], text: str) -> Iterator[Delta]:
        if self._speaking is None or self._speaking[0] != kind:
            yield from self._hush()
            self._speaking = (kind, self._begun)
            yield BlockStarted(self._begun, {"type": kind, kind: ""})
            self._begun += 1
        yield BlockGrew(self._speaking[1], kind, text)

    def _hush(self) -> Iterator[Delta]:
        if self._speaking is not None:
            yield BlockEnded(self._speaking[1])
            self._speaking = None

    def _call(self, piece: Piece) -> Iterator[Delta]:
        function = piece.function or {}
        call = self._at.get(piece.index)
        if call is None or (piece.id and call.id and piece.id != call.id):
            # Some servers give every call the same index: another id is another call.
            call = self._at[piece.index] = Writing()
            self._calls.append(call)
        call.id = call.id or piece.id or ""
        call.name += function.get("name") or "" if call.number is None else ""
        said = function.get("arguments")
        text = said if isinstance(said, str) else "" if said is None else msgspec.json.encode(said).decode()
        if call.number is None:
            if not call.name:
                return
            yield from self._hush()
            call.number, self._begun = self._begun, self._begun + 1
            id = call.id or f"call_{call.number}"
            yield BlockStarted(call.number, {"type": "tool_use", "id": id, "name": call.name, "input": {}})
        if text and not call.closed:
            yield BlockGrew(call.number, "input", text)
            if call.extent.feed(text):
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
