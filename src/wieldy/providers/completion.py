"""Chunks of a Chat Completions stream → deltas.

The wire has no end of a block: text ends when a call begins, a call ends when its JSON is complete, so that its tool can start.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any, Literal

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
from wieldy.providers.decoded import decoded, number, part, parts, text
from wieldy.providers.extent import Extent
from wieldy.providers.http import HttpFailure, Response
from wieldy.providers.leisure import Signs
from wieldy.providers.refusal import reported
from wieldy.schema.dense import dense_text
from wieldy.schema.pattern import pattern

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

_CHUNK = pattern(rb'data:[^\n]*?"delta": ?(\{(?:[^"{}]|"(?:[^"\\]|\\.)*")+\})[^\n]*\n\n')
_SAYS = pattern(rb'"(?:content|reasoning(?:_content)?|refusal)": ?"[^"]')
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
