"""One exchange: a request goes out, the answer streams in, its tools run meanwhile, every call gets its result.

A stream that breaks before any tool has started is asked for again. Once one has, what it said so far stands: its results are
kept and the model goes on from there, so that no tool ever runs twice.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence, Set
from itertools import islice
from typing import Any, Protocol

from msgspec import Struct

from wieldy.agent.streamed_message import StreamedMessage
from wieldy.agent.toolbox_protocol import ToolboxProtocol
from wieldy.core.abort import Abort
from wieldy.core.call import ToolCall
from wieldy.core.events import ModelAnswered, ModelBlockDelta, ModelRequested, ModelTextDelta, Retried, ToolInputDelta
from wieldy.core.outcome import Refused, ToolResult
from wieldy.core.provider import BlockDelta, BlockEnded, BlockStarted, Delta, Provider, ProviderFailure, Request, Usage
from wieldy.engine.events import Events
from wieldy.engine.loop_breaker import LoopBreaker
from wieldy.engine.supervise import Aborted
from wieldy.engine.turn import Turn
from wieldy.providers.models import cost

Record = Callable[[dict[str, Any]], None]

GREW = {"signature": "signature_delta", "citation": "citations_delta"}


class TurnAttempt:
    """Joins an answer, the turn its calls run in, and the transcript. Every block and every result is recorded once."""

    def __init__(self, turn: Turn, record: Record, events: Events, taken: Set[str]) -> None:
        self.answer = StreamedMessage(taken)
        self.turn = turn
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
                    if events.stream_deltas:
                        self._announce(delta)
                    if len(answer.blocks) > self._blocks_kept:
                        self.keep_blocks()
                    if call is not None:
                        self.submit(call)
            finally:
                await deltas.aclose()  # type: ignore[attr-defined]

    def submit(self, call: ToolCall) -> None:
        """Start a call."""
        self.turn.submit(call).add_done_callback(self._ended)

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
        if isinstance(delta, BlockDelta):
            index, piece = delta.index, delta.piece
            if delta.field in ("text", "thinking"):
                self._events.emit(ModelTextDelta(text=piece, thinking=delta.field == "thinking", index=index))
            elif delta.field == "input":
                start = self.answer.open[index].start
                self._events.emit(ToolInputDelta(call_id=start["id"], name=start["name"], piece=piece, index=index))
            else:
                self._events.emit(ModelBlockDelta(index=index, delta={"type": GREW[delta.field], delta.field: piece}))
        elif isinstance(delta, BlockEnded):
            self._events.emit(ModelBlockDelta(index=delta.index))
        elif isinstance(delta, BlockStarted):
            start = self.answer.open[delta.index].start
            self._events.emit(ModelBlockDelta(index=delta.index, start=start))
            if start["type"] != "tool_use":
                return
            self._events.emit(ToolInputDelta(call_id=start["id"], name=start["name"], index=delta.index))


MOST_ATTEMPTS = 8
# A server that comes up again needs a moment; one that was not started is not worth a minute of waiting.
MOST_WHEN_REFUSED = 4
LONGEST_BACKOFF = 60.0
LONGEST_WAIT = 300.0  # a server that asks for more than this is not waited for


def _at_random() -> float:
    import random

    return random.random()


def pause(
    failure: ProviderFailure, attempt: int, most: int = MOST_ATTEMPTS, jitter: Callable[[], float] = _at_random
) -> float | None:
    """Seconds to wait before the next attempt, or None when there should be none. What the server asks for is kept to."""
    if failure.kind == "refused":
        most = min(most, MOST_WHEN_REFUSED)
    if not failure.transient or attempt >= most:
        return None
    if failure.retry_after is not None:
        return failure.retry_after if failure.retry_after <= LONGEST_WAIT else None
    return min(2.0 ** (attempt - 1), LONGEST_BACKOFF) * (0.5 + jitter() / 2)


class Flush(Protocol):
    """Waits until what was recorded is on disk, or the results at least."""

    def __call__(self, *, results: bool = False) -> Awaitable[None]:
        """All of it, or the `results` among it."""
        ...


SPOKEN = frozenset({"text", "tool_use", "server_tool_use"})


class TurnResult(Struct, frozen=True):
    """What came of one request."""

    answer: StreamedMessage
    content: tuple[dict[str, Any], ...]
    results: list[ToolResult]
    interrupted: bool = False
    broken: ProviderFailure | None = None
    looping: bool = False


class ModelTurn:
    """Runs the exchanges of one session. `record` appends to the transcript, `durable` waits until that is on disk; `sleep` is
    the clock retries wait by."""

    def __init__(
        self,
        box: ToolboxProtocol,
        provider: Provider,
        loop_breaker: LoopBreaker,
        record: Record,
        durable: Flush | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.box = box
        self.provider = provider
        self.loop_breaker = loop_breaker
        self.record = record
        self.durable = durable
        self.sleep = sleep
        self.most_attempts = MOST_ATTEMPTS
        self.broken_in_a_row = 0

    async def exchange(self, request: Request, number: int, taken: Set[str], abort: Abort) -> TurnResult:
        """One request until it has an answer whose calls all have results. Raises `ProviderFailure` when it cannot be had."""
        for attempt in range(1, self.most_attempts + 1):
            _unless(abort)
            if self.box.events.has_subscribers:
                self.box.events.emit(ModelRequested(model=self.provider.model, turn=number))
            try:
                exchange = await self._once(request, taken, abort)
            except ProviderFailure as failure:
                self.record({"type": "dropped"})
                await self._wait(failure, attempt, abort)
                continue
            if exchange.broken is None:
                self.broken_in_a_row = 0
            else:
                self.broken_in_a_row += 1
                await self._wait(exchange.broken, self.broken_in_a_row, abort)
            return exchange
        raise AssertionError("unreachable")

    async def _once(self, request: Request, taken: Set[str], abort: Abort) -> TurnResult:
        started = time.monotonic()
        broken: ProviderFailure | None = None
        interrupted = False
        async with self.box.turn() as turn:
            turn.flush, turn.loop_breaker = self.durable, self.loop_breaker
            attempt = TurnAttempt(turn, self.record, self.box.events, taken)
            try:
                await _until(abort, attempt.listen(self.provider, request))
                attempt.finish()
            except Aborted:
                interrupted = True
                attempt.keep_spoken()
            except ProviderFailure as failure:
                if not turn.calls:
                    raise
                broken = failure
                attempt.answer.drop_open()
            reason = "interrupted" if interrupted else "broken" if broken else attempt.answer.stop_reason or "end_turn"
            content = self._answered(attempt.answer, reason, time.monotonic() - started)
            results = await turn.results() if turn.calls else []
            attempt.keep_results(results)
            if turn.has_lasting_effects and self.durable is not None:
                await self.durable(results=True)  # what was done is on disk before the model hears of it
        calls = turn.calls
        stops = [
            self.loop_breaker.record(call, failed=result.is_error) for call, result in zip(calls, results, strict=True)
        ]
        return TurnResult(attempt.answer, content, results, interrupted or abort.aborted, broken, True in stops)

    def _answered(self, answer: StreamedMessage, reason: str, seconds: float) -> tuple[dict[str, Any], ...]:
        """Record that the answer is over; returns what it came to."""
        content = answer.content()
        if SPOKEN.isdisjoint([block["type"] for block in content]):
            self.record({"type": "dropped"})
        usage = answer.usage
        spent = cost(self.provider.model, usage)
        self.record(
            {"type": "answered", "stop_reason": reason, "usage": _counts(usage), "cost": spent, "at": time.time()}
        )
        if self.box.events.has_subscribers:
            self.box.events.emit(
                ModelAnswered(content=content, stop_reason=reason, usage=usage, seconds=seconds, cost=spent)
            )
        return content

    async def _wait(self, failure: ProviderFailure, attempt: int, abort: Abort) -> None:
        """Wait before the next attempt. Raises the failure when there should be none."""
        seconds = pause(failure, attempt, self.most_attempts)
        if seconds is None:
            raise failure
        self.box.events.emit(
            Retried(attempt=attempt, most=self.most_attempts, seconds=seconds, why=str(failure), status=failure.status)
        )
        _unless(abort)
        await self.box.supervisor.run(_slept(self.sleep, seconds), abort)


def _unless(abort: Abort) -> None:
    if abort.aborted:
        raise Aborted(abort.reason)


async def _until(abort: Abort, work: Coroutine[Any, Any, None]) -> None:
    """Do some work here, in this very task, unless the person interrupts. Raises `Aborted`.

    A task of its own for every request would cost more than all the rest of listening.
    """
    task = asyncio.current_task()
    assert task is not None
    key = abort.listen(task.cancel)  # type: ignore[arg-type]
    try:
        await work
        if abort.aborted:
            await asyncio.sleep(0)  # the interrupt came with the last word: take it here, not at a later await
            task.uncancel()
    except asyncio.CancelledError:
        if not abort.aborted or task.uncancel() > 0:
            raise
        raise Aborted(abort.reason) from None
    finally:
        abort.forget(key)


async def _slept(sleep: Callable[[float], Awaitable[None]], seconds: float) -> None:
    await sleep(seconds)


def _counts(usage: Usage) -> dict[str, int]:
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cache_read_tokens": usage.cache_read_tokens,
        "cache_write_tokens": usage.cache_write_tokens,
    }
