"""One attempt at an answer: what the model says is taken down as it comes, and its tools start while it still speaks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence, Set
from itertools import islice
from typing import Any

from wieldy.core.call import ToolCall
from wieldy.core.content import Text
from wieldy.core.event import ModelBlock, ModelCalls, ModelSaid
from wieldy.core.outcome import Refused
from wieldy.core.provider import BlockEnded, BlockGrew, BlockStarted, Delta, Provider, Request
from wieldy.core.result import ToolResult
from wieldy.engine.events import Events
from wieldy.engine.turn import Turn
from wieldy.session.assemble import Answer
from wieldy.session.breaker import Breaker

Record = Callable[[dict[str, Any]], None]

GREW = {"signature": "signature_delta", "citation": "citations_delta"}


class Attempt:
    """Joins an answer, the turn its calls run in, and the transcript. Every block and every result is recorded once."""

    def __init__(self, turn: Turn, breaker: Breaker, record: Record, events: Events, taken: Set[str]) -> None:
        self.answer = Answer(taken)
        self.turn = turn
        self._breaker = breaker
        self._record = record
        self._events = events
        self._blocks_kept = 0
        self._results_kept: set[str] = set()

    async def listen(self, provider: Provider, request: Request) -> None:
        """Hear the model out. Raises `ProviderFailure`."""
        answer, events = self.answer, self._events
        async with provider.stream(request) as deltas:
            try:
                async for delta in deltas:
                    call = answer.take(delta)
                    if events.closely:
                        self._announce(delta)
                    if len(answer.blocks) > self._blocks_kept:
                        self.keep_blocks()
                    if call is not None:
                        self.submit(call)
            finally:
                await deltas.aclose()  # type: ignore[attr-defined]

    def submit(self, call: ToolCall) -> None:
        """Start a call, unless it has failed too often already."""
        refusal = self._breaker.refusal(call.name, call.input)
        if refusal is None:
            running = self.turn.submit(call)
            if isinstance(running, ToolResult):
                self.keep_result(running)
            else:
                running.add_done_callback(self._ended)
            return
        result = ToolResult(call.id, call.name, (Text(refusal),), None, True, Refused("check", refusal))
        self.turn.answer(call, result)
        self.keep_result(result)

    def keep_blocks(self) -> None:
        """Record the blocks that have closed since the last time."""
        blocks = self.answer.blocks
        for index, block in islice(blocks.items(), self._blocks_kept, None):
            self._record({"type": "block", "index": index, "block": block})
        self._blocks_kept = len(blocks)

    def keep_result(self, result: ToolResult) -> None:
        """Record a result, once, with what was decided about its call where that was not to allow it."""
        if result.call_id in self._results_kept:
            return
        record: dict[str, Any] = {"type": "result", "block": result.as_wire()}
        if isinstance(result.outcome, Refused):
            record["refused"] = result.outcome.stage
        self._record(record)
        self._results_kept.add(result.call_id)

    def keep_results(self, results: Sequence[ToolResult]) -> None:
        """Record those that are not recorded yet."""
        if len(self._results_kept) < len(results):
            for result in results:
                self.keep_result(result)

    def keep_spoken(self) -> None:
        """What the person has already read of an interrupted answer stays; half a thought or half a call does not."""
        answer = self.answer
        for index, block in list(answer.open.items()):
            if block.start["type"] != "text" or not block.text("text").strip():
                del answer.open[index]
        answer.cut_off()
        self.keep_blocks()

    def finish(self) -> None:
        """The stream ended as it should: calls that it left open are answered as cut off."""
        if self.answer.open:
            for cut in self.answer.cut_off():
                self.keep_blocks()
                self.submit(cut)
            self.keep_blocks()
        if (waiting := self.answer.doubtful) is not None:
            self.answer.doubtful = None
            self.submit(waiting)

    def _ended(self, task: asyncio.Task[ToolResult]) -> None:
        """Written down as soon as there is a result, so that a crash cannot forget what has been done."""
        if not task.cancelled() and task.exception() is None:
            self.keep_result(task.result())

    def _announce(self, delta: Delta) -> None:
        if isinstance(delta, BlockGrew):
            index, piece = delta.index, delta.piece
            if delta.field in ("text", "thinking"):
                self._events.emit(ModelSaid(text=piece, thinking=delta.field == "thinking", index=index))
            elif delta.field == "input":
                start = self.answer.open[index].start
                self._events.emit(ModelCalls(call_id=start["id"], name=start["name"], piece=piece, index=index))
            else:
                self._events.emit(ModelBlock(index=index, grew={"type": GREW[delta.field], delta.field: piece}))
        elif isinstance(delta, BlockEnded):
            self._events.emit(ModelBlock(index=delta.index))
        elif isinstance(delta, BlockStarted):
            start = self.answer.open[delta.index].start
            self._events.emit(ModelBlock(index=delta.index, start=start))
            if start["type"] != "tool_use":
                return
            self._events.emit(ModelCalls(call_id=start["id"], name=start["name"], index=delta.index))
