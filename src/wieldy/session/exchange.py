"""One exchange: a request goes out, the answer streams in, its tools run meanwhile, every call gets its result.

A stream that breaks before any tool has started is asked for again. Once one has, what it said so far stands: its results are
kept and the model goes on from there, so that no tool ever runs twice.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from wieldy.core.abort import Abort
from wieldy.core.call import ToolCall
from wieldy.core.content import Text
from wieldy.core.event import ModelAnswered, ModelCalls, ModelRequested, ModelSaid, Retried
from wieldy.core.outcome import Refused
from wieldy.core.provider import BlockGrew, BlockStarted, Delta, Provider, ProviderFailure, Request
from wieldy.core.result import ToolResult
from wieldy.engine.leash import Aborted
from wieldy.engine.turn import Turn
from wieldy.session.assemble import Answer
from wieldy.session.breaker import Breaker
from wieldy.toolbox import Toolbox

MOST_ATTEMPTS = 8
LONGEST_WAIT = 60.0


@dataclass(slots=True)
class Exchange:
    """What came of one request."""

    answer: Answer
    results: list[ToolResult]
    interrupted: bool = False
    broken: ProviderFailure | None = None
    looping: bool = False


@dataclass(slots=True)
class Exchanger:
    """Runs exchanges of one session. `record` appends to the transcript; `sleep` is the clock retries wait by."""

    box: Toolbox
    provider: Provider
    breaker: Breaker
    record: Callable[[dict[str, Any]], None]
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    most_attempts: int = MOST_ATTEMPTS

    async def exchange(self, request: Request, number: int, taken: set[str], abort: Abort) -> Exchange:
        """One request until it has an answer whose calls all have results. Raises `ProviderFailure` when it cannot be had."""
        for attempt in range(1, self.most_attempts + 1):
            self.box.events.emit(ModelRequested(model=self.provider.model, turn=number))
            try:
                return await self._once(request, taken, abort)
            except ProviderFailure as failure:
                self.record({"type": "dropped"})
                if not failure.transient or attempt == self.most_attempts:
                    raise
                await self._wait(failure, attempt, abort)
        raise AssertionError("unreachable")

    async def _once(self, request: Request, taken: set[str], abort: Abort) -> Exchange:
        started = time.monotonic()
        answer = Answer(taken=taken)
        broken: ProviderFailure | None = None
        interrupted = False
        async with self.box.turn() as turn:
            listening = self._listen(request, answer, turn)
            try:
                await self.box.leash.hold(listening, abort)
            except Aborted:
                interrupted = True
                self._keep_text(answer)
            except ProviderFailure as failure:
                if not turn.submitted:
                    raise
                broken = failure
                answer.drop_open()
            if not interrupted and broken is None:
                for cut in answer.cut_off():
                    self._record_block(answer, cut.id)
                    self._submit(turn, cut)
            self._answered(answer, time.monotonic() - started, interrupted=interrupted, broken=broken)
            results = await turn.results()
        looping = self._note(turn.submitted, results)
        return Exchange(answer, results, interrupted or abort.aborted, broken, looping)

    async def _listen(self, request: Request, answer: Answer, turn: Turn) -> None:
        known = 0
        async with self.provider.stream(request) as deltas:
            async for delta in deltas:
                call = answer.take(delta)
                if self.box.events.heard:
                    self._announce(delta, answer)
                if len(answer.blocks) > known:
                    known = len(answer.blocks)
                    index, block = next(reversed(answer.blocks.items()))
                    self.record({"type": "block", "index": index, "block": block})
                if call is not None:
                    self._submit(turn, call)

    def _submit(self, turn: Turn, call: ToolCall) -> None:
        refusal = self.breaker.refusal(call.name, call.input)
        if refusal is None:
            turn.submit(call).add_done_callback(self._record_result)
            return
        result = ToolResult(call.id, call.name, (Text(refusal),), None, True, Refused("check", refusal))
        turn.answer(call, result)
        self.record({"type": "result", "block": result.as_wire()})

    def _record_result(self, task: asyncio.Task[ToolResult]) -> None:
        """Written down as soon as there is one, so that a crash cannot forget what has been done."""
        if not task.cancelled() and task.exception() is None:
            self.record({"type": "result", "block": task.result().as_wire()})

    def _note(self, calls: list[ToolCall], results: list[ToolResult]) -> bool:
        stops = [
            self.breaker.note(call.name, call.input, failed=result.is_error)
            for call, result in zip(calls, results, strict=True)
        ]
        return any(stops)

    def _record_block(self, answer: Answer, call_id: str) -> None:
        for index, block in answer.blocks.items():
            if block.get("id") == call_id:
                self.record({"type": "block", "index": index, "block": block})

    def _keep_text(self, answer: Answer) -> None:
        """What the person has already read of an interrupted answer stays; half a thought or half a call does not."""
        for index, block in list(answer.open.items()):
            if block.start["type"] != "text" or not block.text("text").strip():
                del answer.open[index]
        answer.cut_off()
        for index, kept in answer.blocks.items():
            self.record({"type": "block", "index": index, "block": kept})

    def _answered(self, answer: Answer, seconds: float, *, interrupted: bool, broken: ProviderFailure | None) -> None:
        reason = "interrupted" if interrupted else "broken" if broken else answer.stop_reason or "end_turn"
        content = answer.content()
        if not any(block["type"] in ("text", "tool_use", "server_tool_use") for block in content):
            self.record({"type": "dropped"})
        self.record({"type": "answered", "stop_reason": reason, "usage": _usage(answer)})
        self.box.events.emit(ModelAnswered(content=content, stop_reason=reason, usage=answer.usage, seconds=seconds))

    def _announce(self, delta: Delta, answer: Answer) -> None:
        if isinstance(delta, BlockGrew) and delta.field in ("text", "thinking"):
            self.box.events.emit(ModelSaid(text=delta.piece, thinking=delta.field == "thinking"))
        elif isinstance(delta, BlockGrew) and delta.field == "input":
            start = answer.open[delta.index].start
            self.box.events.emit(ModelCalls(call_id=start["id"], name=start["name"], piece=delta.piece))
        elif isinstance(delta, BlockStarted) and delta.block["type"] == "tool_use":
            start = answer.open[delta.index].start
            self.box.events.emit(ModelCalls(call_id=start["id"], name=start["name"]))

    async def _wait(self, failure: ProviderFailure, attempt: int, abort: Abort) -> None:
        backoff = min(2.0 ** (attempt - 1), LONGEST_WAIT) * random.uniform(0.5, 1.0)
        seconds = backoff if failure.retry_after is None else min(failure.retry_after, LONGEST_WAIT)
        self.box.events.emit(
            Retried(attempt=attempt, most=self.most_attempts, seconds=seconds, why=str(failure), status=failure.status)
        )
        await self.box.leash.hold(_slept(self.sleep, seconds), abort)


async def _slept(sleep: Callable[[float], Awaitable[None]], seconds: float) -> None:
    await sleep(seconds)


def _usage(answer: Answer) -> dict[str, int]:
    usage = answer.usage
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cache_read_tokens": usage.cache_read_tokens,
        "cache_write_tokens": usage.cache_write_tokens,
    }
