"""One turn of the model: send a request, run tools while the answer streams in, until every call has its result.

A stream that breaks before any tool has started is requested again. Once one has, the blocks so far stand: their results are
kept and the model goes on from there, so that no tool ever runs twice.
"""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence, Set
from contextlib import suppress
from itertools import islice
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from wieldy.agent.records import AssistantBlock, AssistantMessageEnded, MessageDiscarded, ToolResultRecord
from wieldy.agent.toolbox_protocol import ToolboxProtocol
from wieldy.agent.transcript import Transcript
from wieldy.core.abort import Abort
from wieldy.core.call import ToolCall
from wieldy.core.errors import SessionError
from wieldy.core.events import ModelAnswered, ModelBlockDelta, ModelRequested, ModelTextDelta, Retried, ToolInputDelta
from wieldy.core.outcome import Refused, ToolResult
from wieldy.core.provider import (
    BlockDelta,
    BlockEnded,
    BlockStarted,
    Delta,
    Provider,
    ProviderFailure,
    Request,
    StopReason,
    Usage,
    UsageReported,
)
from wieldy.engine.events import Events
from wieldy.engine.loop_breaker import LoopBreaker
from wieldy.engine.supervise import Aborted
from wieldy.engine.turn import Turn
from wieldy.providers.models import cost
from wieldy.schema.json_repair import UnreadableJson, read_object

MAX_ATTEMPTS = 8
# A server that restarts is back soon; one that was never started is not worth a minute of waiting.
MAX_ATTEMPTS_IF_REFUSED = 4
MAX_BACKOFF_SECONDS = 60.0
MAX_RETRY_AFTER_SECONDS = 300.0  # a server that asks for more is not waited for

_SURROGATE = re.compile("[\ud800-\udfff]")

VISIBLE_TYPES = frozenset({"text", "tool_use", "server_tool_use"})
DELTA_TYPES = {"signature": "signature_delta", "citation": "citations_delta"}


class TurnResult(Struct, frozen=True):
    """The model's message and the results of its calls. `failure` is set where the stream broke after a call had started."""

    content: tuple[dict[str, Any], ...]
    text: str
    stop_reason: str
    results: list[ToolResult]
    interrupted: bool = False
    failure: ProviderFailure | None = None
    looping: bool = False


class ModelTurn:
    """Runs the turns of one session. `sleep` is the clock that retries wait by."""

    def __init__(
        self,
        box: ToolboxProtocol,
        provider: Provider,
        transcript: Transcript,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.box = box
        self.provider = provider
        self.transcript = transcript
        self.sleep = sleep
        self.loop_breaker = LoopBreaker()
        self.max_attempts = MAX_ATTEMPTS
        self._failures_in_a_row = 0

    async def run(self, request: Request, number: int, abort: Abort) -> TurnResult:
        """Send a request until it has an answer whose calls all have results. Raises `ProviderFailure` or `Aborted`."""
        for attempt in range(1, self.max_attempts + 1):
            _raise_if(abort)
            if self.box.events.has_subscribers:
                self.box.events.emit(ModelRequested(model=self.provider.model, turn=number))
            try:
                result = await self._attempt(request, abort)
            except ProviderFailure as failure:
                self.transcript.append(MessageDiscarded())
                await self._wait(failure, attempt, abort)
                continue
            if result.failure is None:
                self._failures_in_a_row = 0
            else:
                self._failures_in_a_row += 1
                await self._wait(result.failure, self._failures_in_a_row, abort)
            return result
        raise AssertionError("unreachable")

    async def _attempt(self, request: Request, abort: Abort) -> TurnResult:
        started = time.monotonic()
        failure: ProviderFailure | None = None
        interrupted = False
        async with self.box.turn(flush=self.transcript.flush, loop_breaker=self.loop_breaker) as turn:
            attempt = TurnAttempt(turn, self.transcript, self.box.events)
            message = attempt.message
            try:
                await _run_until(abort, attempt.receive(self.provider, request))
                attempt.finish()
            except Aborted:
                interrupted = True
                attempt.finish_interrupted()
            except ProviderFailure as error:
                if not turn.calls:
                    raise
                failure = error
                message.open.clear()
            reason = "interrupted" if interrupted else "broken" if failure else message.stop_reason or "end_turn"
            content = message.content()
            self._record_end(content, message.usage, reason, time.monotonic() - started)
            results = await turn.results() if turn.calls else []
        attempt.record_results(results)
        if turn.has_lasting_effects:
            await self.transcript.flush(results=True)  # effects are on disk before the model is told of them
        looping = [
            self.loop_breaker.record(call, failed=result.is_error)
            for call, result in zip(turn.calls, results, strict=True)
        ]
        text = _join_texts(content)
        return TurnResult(content, text, reason, results, interrupted or abort.aborted, failure, any(looping))

    def _record_end(self, content: tuple[dict[str, Any], ...], usage: Usage, reason: str, seconds: float) -> None:
        if VISIBLE_TYPES.isdisjoint([block["type"] for block in content]):
            self.transcript.append(MessageDiscarded())
        dollars = cost(self.provider.model, usage)
        self.transcript.append(AssistantMessageEnded(reason, asdict(usage), dollars, time.time()))
        if self.box.events.has_subscribers:
            self.box.events.emit(
                ModelAnswered(content=content, stop_reason=reason, usage=usage, seconds=seconds, cost=dollars)
            )

    async def _wait(self, failure: ProviderFailure, attempt: int, abort: Abort) -> None:
        """Wait before the next attempt. Raises the failure when there should be none."""
        most = min(self.max_attempts, MAX_ATTEMPTS_IF_REFUSED) if failure.kind == "refused" else self.max_attempts
        seconds = retry_delay(failure, attempt, most)
        if seconds is None:
            raise failure
        self.box.events.emit(
            Retried(attempt=attempt, most=most, seconds=seconds, why=str(failure), status=failure.status)
        )
        _raise_if(abort)
        await self.box.services.supervisor.run(_awaited(self.sleep(seconds)), abort)


class TurnAttempt:
    """Joins a streamed message, the turn its calls run in, and the transcript. Blocks and results are recorded once."""

    def __init__(self, turn: Turn, transcript: Transcript, events: Events) -> None:
        self.message = StreamedMessage(transcript.conversation.ids)
        self._turn = turn
        self._transcript = transcript
        self._events = events
        self._recorded_blocks = 0
        self._recorded_results: set[str] = set()

    async def receive(self, provider: Provider, request: Request) -> None:
        """Receive the message and start its calls. Raises `ProviderFailure`."""
        message, events = self.message, self._events
        async with provider.stream(request) as deltas:
            try:
                async for delta in deltas:
                    call = message.add(delta)
                    if events.stream_deltas:
                        self._emit(delta)
                    if len(message.blocks) > self._recorded_blocks:
                        self._record_blocks()
                    if call is not None:
                        self._submit(call)
            finally:
                await deltas.aclose()  # type: ignore[attr-defined]

    def finish(self) -> None:
        """Close the message. Calls that it left open are answered as cut off."""
        if self.message.open:
            calls = self.message.close_open_blocks()
            self._record_blocks()
            for call in calls:
                self._submit(call)
        if (last_call := self.message.take_undecided(cut_off=False)) is not None:
            self._submit(last_call)

    def finish_interrupted(self) -> None:
        """Close an interrupted message: keep text, which the user has seen, but no open thought or call."""
        open_blocks = self.message.open
        for index, block in list(open_blocks.items()):
            if block.start["type"] != "text" or not block.text("text").strip():
                del open_blocks[index]
        self.message.close_open_blocks()
        self._record_blocks()

    def record_results(self, results: Sequence[ToolResult]) -> None:
        """Record the results that are not recorded yet."""
        for result in results:
            if result.call_id not in self._recorded_results:
                stage = result.outcome.stage if isinstance(result.outcome, Refused) else None
                self._transcript.append(ToolResultRecord(result.as_wire(), stage))
                self._recorded_results.add(result.call_id)

    def _submit(self, call: ToolCall) -> None:
        self._turn.submit(call).add_done_callback(self._on_done)

    def _on_done(self, task: asyncio.Task[ToolResult]) -> None:
        """Record a result at once, so that a crash cannot lose what has been done."""
        if not task.cancelled() and task.exception() is None:
            with suppress(SessionError):  # the transcript cannot be written: the turn fails when it records all results
                self.record_results((task.result(),))

    def _record_blocks(self) -> None:
        blocks = self.message.blocks
        for index, block in islice(blocks.items(), self._recorded_blocks, None):
            self._transcript.append(AssistantBlock(block, index))
        self._recorded_blocks = len(blocks)

    def _emit(self, delta: Delta) -> None:
        emit = self._events.emit
        if isinstance(delta, BlockDelta):
            index, piece = delta.index, delta.piece
            if delta.field in ("text", "thinking"):
                emit(ModelTextDelta(text=piece, thinking=delta.field == "thinking", index=index))
            elif delta.field == "input":
                start = self.message.open[index].start
                emit(ToolInputDelta(call_id=start["id"], name=start["name"], piece=piece, index=index))
            elif delta.field in DELTA_TYPES:
                emit(ModelBlockDelta(index=index, delta={"type": DELTA_TYPES[delta.field], delta.field: piece}))
        elif isinstance(delta, BlockEnded):
            emit(ModelBlockDelta(index=delta.index))
        elif isinstance(delta, BlockStarted):
            start = self.message.open[delta.index].start
            emit(ModelBlockDelta(index=delta.index, start=start))
            if start["type"] == "tool_use":
                emit(ToolInputDelta(call_id=start["id"], name=start["name"], index=delta.index))


class StreamedMessage:
    """A message of the model as far as it has arrived. Blocks keep the order in which the model began them.

    `used_ids` are the ids of earlier calls: an id that the model repeats is made unique.
    """

    __slots__ = ("_ids", "_undecided", "_used_ids", "blocks", "open", "stop_reason", "usage")

    def __init__(self, used_ids: Set[str] = frozenset()) -> None:
        self.blocks: dict[int, dict[str, Any]] = {}
        self.open: dict[int, OpenBlock] = {}
        self.usage = Usage()
        self.stop_reason: StopReason | None = None
        self._used_ids = used_ids
        self._ids: set[str] = set()
        self._undecided: ToolCall | None = None

    def add(self, delta: Delta) -> ToolCall | None:
        """Add a delta; returns the call that can start now. Raises `ProviderFailure` for an inconsistent stream."""
        match delta:
            case BlockDelta():
                if (block := self.open.get(delta.index)) is None:
                    raise _inconsistent(f"block {delta.index} grows without having begun")
                block.pieces.setdefault(delta.field, []).append(delta.piece)
            case BlockStarted():
                return self._start_block(delta.index, delta.block)
            case BlockEnded():
                if delta.index not in self.open:
                    raise _inconsistent(f"block {delta.index} ends without having begun")
                return self._close_block(delta.index)
            case UsageReported():
                self.usage = delta.usage
            case _:
                self.stop_reason = delta.reason
                return self.take_undecided(cut_off=delta.reason == "max_tokens")
        return None

    def content(self) -> tuple[dict[str, Any], ...]:
        """The closed blocks in order, without blank texts."""
        blocks = [block for _, block in sorted(self.blocks.items())]
        return tuple([block for block in blocks if block["type"] != "text" or block["text"].strip()])

    def text(self) -> str:
        """The text blocks, joined."""
        return _join_texts(self.content())

    def close_open_blocks(self) -> list[ToolCall]:
        """Close the blocks that the end of the message left open; returns their calls, which are incomplete."""
        calls = []
        for index in sorted(self.open):
            self._close_block(index, cut_off=True)
            block = self.blocks[index]
            if block["type"] == "tool_use":
                calls.append(ToolCall(block["id"], block["name"], {}, complete=False))
        return calls

    def take_undecided(self, *, cut_off: bool) -> ToolCall | None:
        """Return the last call if it had an empty input, now that it is known whether that was cut off."""
        call, self._undecided = self._undecided, None
        if call is None or not cut_off:
            return call
        return ToolCall(call.id, call.name, {}, complete=False)

    def _start_block(self, index: int, block: Mapping[str, Any]) -> ToolCall | None:
        if index in self.blocks or index in self.open:
            raise _inconsistent(f"block {index} begins twice")
        if not isinstance(block.get("type"), str):
            raise _inconsistent(f"block {index} has no type")
        self.open[index] = OpenBlock(self._with_unique_id(block) if block["type"] == "tool_use" else block)
        return self.take_undecided(cut_off=False)

    def _close_block(self, index: int, *, cut_off: bool = False) -> ToolCall | None:
        opened = self.open.pop(index)
        start = opened.start
        match start["type"]:
            case "tool_use":
                return self._close_call(index, opened, cut_off=cut_off)
            case "text":
                block = {**start, "text": start.get("text", "") + opened.text("text")}
                if citations := opened.pieces.get("citation"):
                    block["citations"] = [*start.get("citations", ()), *citations]
            case "thinking":
                block = {**start, "thinking": start.get("thinking", "") + opened.text("thinking")}
                if signature := opened.text("signature"):
                    block["signature"] = signature
                if items := opened.pieces.get("item"):
                    block["item"] = items[-1]
            case "server_tool_use":
                raw = opened.text("input")
                block = {**start, "input": _parse_input(raw)[0] if raw else start.get("input") or {}}
            case _:
                block = dict(start)
        self.blocks[index] = block
        return None

    def _close_call(self, index: int, opened: OpenBlock, *, cut_off: bool) -> ToolCall | None:
        start = opened.start
        raw = opened.text("input")
        value, is_valid = _parse_input(raw) if raw else (start.get("input") or {}, True)
        self.blocks[index] = {**start, "input": value}
        call = ToolCall(start["id"], start["name"], value if is_valid else raw)
        if raw or value or cut_off:
            return call
        # An empty input is either complete or was cut off before it began: the next delta tells.
        previous = self.take_undecided(cut_off=False)
        self._undecided = call
        return previous

    def _with_unique_id(self, block: Mapping[str, Any]) -> Mapping[str, Any]:
        id = unique = block.get("id") or "call"
        count = 1
        while unique in self._used_ids or unique in self._ids:
            count += 1
            unique = f"{id}-{count}"
        self._ids.add(unique)
        if unique == block.get("id") and isinstance(block.get("name"), str):
            return block
        return {**block, "id": unique, "name": str(block.get("name") or "")}


class OpenBlock:
    """A block that is still arriving: the block as announced, and the pieces of its fields."""

    __slots__ = ("pieces", "start")

    def __init__(self, start: Mapping[str, Any]) -> None:
        self.start = start
        self.pieces: dict[str, list[Any]] = {}

    def text(self, field: str) -> str:
        text = "".join(self.pieces.get(field, ()))
        # The halves of a surrogate pair may come in two pieces; one that stays alone is replaced.
        if text.isascii() or not _SURROGATE.search(text):
            return text
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _parse_input(raw: str) -> tuple[dict[str, Any], bool]:
    """The input for the history, an object in any case, and whether the model wrote valid JSON."""
    try:
        parsed = read_object(raw)
    except UnreadableJson:
        return {}, False
    return parsed.value, not parsed.notes


def _join_texts(content: Sequence[Mapping[str, Any]]) -> str:
    return "\n".join([block["text"] for block in content if block["type"] == "text"])


def _inconsistent(what: str) -> ProviderFailure:
    return ProviderFailure("protocol", f"the stream makes no sense: {what}")


def retry_delay(
    failure: ProviderFailure,
    attempt: int,
    max_attempts: int = MAX_ATTEMPTS,
    jitter: Callable[[], float] = random.random,
) -> float | None:
    """Seconds to wait before the next attempt, as the server asks or by backoff; None when there should be none."""
    if not failure.transient or attempt >= max_attempts:
        return None
    if failure.retry_after is not None:
        return failure.retry_after if failure.retry_after <= MAX_RETRY_AFTER_SECONDS else None
    return min(2.0 ** (attempt - 1), MAX_BACKOFF_SECONDS) * (0.5 + jitter() / 2)


def _raise_if(abort: Abort) -> None:
    if abort.aborted:
        raise Aborted(abort.reason)


async def _run_until(abort: Abort, work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine in this task and cancel it when the user interrupts. Raises `Aborted`."""
    task = asyncio.current_task()
    assert task is not None
    key = abort.listen(task.cancel)  # type: ignore[arg-type]
    try:
        await work
        if abort.aborted:
            await asyncio.sleep(
                0
            )  # the interrupt came at the very end: take the cancellation here, not at a later await
            task.uncancel()
    except asyncio.CancelledError:
        if not abort.aborted or task.uncancel() > 0:
            raise
        raise Aborted(abort.reason) from None
    finally:
        abort.forget(key)


async def _awaited(work: Awaitable[None]) -> None:
    await work
