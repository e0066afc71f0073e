"""One turn of the model: send a request, run tools while the answer streams in, until every call has its result.

A stream that breaks before any tool has started is requested again. Once one has, the blocks so far stand: their results are
kept and the model goes on from there, so that no tool ever runs twice. Text of a broken stream is always in the transcript;
it counts until another attempt has something to put in its place.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from wieldy.agent.lost_calls import RepeatAdviser
from wieldy.agent.records import AssistantBlock, AssistantMessageEnded, CallsWaiting, MessageDiscarded, ToolResultRecord
from wieldy.agent.seen_files import take_record
from wieldy.agent.toolbox_protocol import ToolboxProtocol
from wieldy.agent.transcript import UNKNOWN, Transcript
from wieldy.core.abort import Abort
from wieldy.core.call import ToolCall
from wieldy.core.errors import SessionError
from wieldy.core.events import ModelAnswered, ModelBlockDelta, ModelRequested, ModelTextDelta, Retried, ToolInputDelta
from wieldy.core.outcome import Failed, Refused, ToolResult, Waiting
from wieldy.core.provider import (
    BlockDelta,
    BlockEnded,
    BlockStarted,
    Delta,
    Provider,
    ProviderFailure,
    Request,
    Usage,
)
from wieldy.core.supervise import Aborted
from wieldy.engine.call_turn import CallTurn
from wieldy.engine.loop_breaker import LoopBreaker
from wieldy.engine.streamed_message import StreamedMessage, join_texts
from wieldy.models.catalog import cost

MAX_ATTEMPTS = 8
# A server that restarts is back soon; one that was never started is not worth a minute of waiting.
MAX_ATTEMPTS_IF_REFUSED = 4
MAX_BACKOFF_SECONDS = 60.0
MAX_RETRY_AFTER_SECONDS = 300.0  # a server that asks for more is not waited for

VISIBLE_TYPES = frozenset({"text", "tool_use", "server_tool_use"})
DELTA_TYPES = {"signature": "signature_delta", "citation": "citations_delta"}


class TurnResult(Struct, frozen=True):
    """The model's message and the results of its calls. `failure` is set where the stream broke after a call had started.

    `waiting`: some of the calls have not run, because questions are answered later.
    """

    content: tuple[dict[str, Any], ...]
    text: str
    stop_reason: str
    results: list[ToolResult]
    interrupted: bool = False
    failure: ProviderFailure | None = None
    looping: bool = False
    waiting: bool = False


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
                await self._wait(failure, attempt, abort)
                continue
            if result.failure is None:
                self._failures_in_a_row = 0
            else:
                self._failures_in_a_row += 1
                await self._wait(result.failure, self._failures_in_a_row, abort)
            return result
        raise AssertionError("unreachable")

    def keep_broken_text(self) -> None:
        """End the message of a stream that broke and is not requested again, with the text that had arrived."""
        if blocks := self.transcript.conversation.blocks:
            self.transcript.append(
                AssistantMessageEnded("broken", at=time.time()) if _is_visible(blocks.values()) else MessageDiscarded()
            )

    async def _attempt(self, request: Request, abort: Abort) -> TurnResult:
        started = time.monotonic()
        failure: ProviderFailure | None = None
        interrupted = False
        async with self.box.turn(on_start=self.transcript.record_start, loop_breaker=self.loop_breaker) as turn:
            attempt = TurnAttempt(turn, self.transcript, self.box)
            message = attempt.message
            try:
                await _run_until(abort, attempt.receive(self.provider, request))
                attempt.finish()
            except Aborted:
                interrupted = True
                attempt.finish_interrupted()
            except ProviderFailure as error:
                attempt.finish_broken()
                if not turn.calls:
                    raise
                failure = error
            reason = "interrupted" if interrupted else "broken" if failure else message.stop_reason or "end_turn"
            content = message.content()
            self._record_end(content, message.usage, reason, time.monotonic() - started)
            results = await turn.results() if turn.calls else []
        attempt.record_results(results)
        looping = await self._settle(turn, results)
        text = join_texts(content)
        is_waiting = any(isinstance(result.outcome, Waiting) for result in results)
        is_interrupted = interrupted or abort.aborted
        return TurnResult(content, text, reason, results, is_interrupted, failure, looping, is_waiting)

    async def run_calls(self, calls: Sequence[ToolCall], abort: Abort) -> TurnResult:
        """Run calls of an earlier message: their questions have been answered, or they are made again after a crash."""
        conversation = self.transcript.conversation
        ids = {call.id for call in calls}.difference(conversation.agents)
        repeated = {id: started for id, started in conversation.started.items() if id in ids}
        async with self.box.turn(on_start=self.transcript.record_start, loop_breaker=self.loop_breaker) as turn:
            if repeated:
                turn.add_adviser(RepeatAdviser(repeated))
            attempt = TurnAttempt(turn, self.transcript, self.box, frozenset(repeated))
            for call in calls:
                attempt.submit(call)
            results = await turn.results()
        attempt.record_results(results)
        looping = await self._settle(turn, results)
        is_waiting = any(isinstance(result.outcome, Waiting) for result in results)
        return TurnResult((), "", "tool_use", results, abort.aborted, None, looping, is_waiting)

    async def _settle(self, turn: CallTurn, results: Sequence[ToolResult]) -> bool:
        """Have the effects of a turn on disk before the model is told of them; whether the model runs in a loop."""
        waiting = [result.call_id for result in results if isinstance(result.outcome, Waiting)]
        if waiting:
            self.transcript.append(CallsWaiting(waiting))
        if turn.lasting_calls:
            await self.transcript.flush(results=True)
        looping = [
            self.loop_breaker.record(call, failed=result.is_error, changes=call.id in turn.lasting_calls)
            for call, result in zip(turn.calls, results, strict=True)
            if not isinstance(result.outcome, Waiting)
        ]
        return any(looping)

    def _record_end(self, content: tuple[dict[str, Any], ...], usage: Usage, reason: str, seconds: float) -> None:
        # An attempt that was interrupted before it had anything leaves the text of the one before it.
        blocks = self.transcript.conversation.blocks.values() if reason == "interrupted" else content
        if not _is_visible(blocks):
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

    def __init__(
        self, turn: CallTurn, transcript: Transcript, box: ToolboxProtocol, repeated: frozenset[str] = frozenset()
    ) -> None:
        self.message = StreamedMessage(transcript.conversation.ids)
        self._turn = turn
        self._transcript = transcript
        self._workspace = box.workspace
        self._events = box.events
        self._repeated = repeated
        self._recorded_blocks = 0
        self._recorded_results: set[str] = set()

    async def receive(self, provider: Provider, request: Request) -> None:
        """Receive the message and start its calls. Raises `ProviderFailure`."""
        message, events = self.message, self._events
        async with provider.stream(request) as deltas:
            try:
                async for delta in deltas:
                    call = message.add(delta)
                    if isinstance(delta, BlockStarted) and delta.block.get("name") == "Bash":
                        self._workspace.services.shells.warm_up()  # while the model writes the command
                    if events.stream_deltas:
                        self._emit(delta)
                    if len(message.blocks) > self._recorded_blocks:
                        self._record_blocks()
                    if call is not None:
                        self.submit(call)
            finally:
                await deltas.aclose()  # type: ignore[attr-defined]

    def finish(self) -> None:
        """Close the message. Calls that it left open are answered as cut off."""
        if self.message.open:
            calls = self.message.close_open_blocks()
            self._record_blocks()
            for call in calls:
                self.submit(call)
        if (last_call := self.message.take_undecided(cut_off=False)) is not None:
            self.submit(last_call)

    def finish_interrupted(self) -> None:
        """Close an interrupted message: keep text, which the user has seen, but no open thought or call."""
        open_blocks = self.message.open
        for index, block in list(open_blocks.items()):
            if block.start["type"] != "text" or not block.text("text").strip():
                del open_blocks[index]
        self.message.close_open_blocks()
        self._record_blocks()

    def finish_broken(self) -> None:
        """Close a message whose stream broke, as an interrupted one; a call that was not started is forgotten."""
        blocks = self.message.blocks
        if not self._turn.calls and any(block["type"] == "tool_use" for block in blocks.values()):
            self._transcript.append(MessageDiscarded())
            self._recorded_blocks = 0
            for index in [index for index, block in blocks.items() if block["type"] == "tool_use"]:
                del blocks[index]
        self.finish_interrupted()

    def record_results(self, results: Sequence[ToolResult]) -> None:
        """Record the results that are not recorded yet, and what the model knows of files by them."""
        for result in results:
            if result.call_id not in self._recorded_results and not isinstance(result.outcome, Waiting):
                stage = result.outcome.stage if isinstance(result.outcome, Refused) else None
                person = result.person_text if isinstance(result.outcome, Refused | Failed) else ""
                block = result.as_wire()
                if stage is not None and result.call_id in self._repeated:  # it was not made again
                    block["content"] = [{"type": "text", "text": UNKNOWN}, *block["content"]]
                self._transcript.append(ToolResultRecord(block, stage, person))
                self._recorded_results.add(result.call_id)
        if (seen := take_record(self._workspace)) is not None:
            self._transcript.append(seen)

    def submit(self, call: ToolCall) -> None:
        """Start a call; its result is recorded as soon as it is there."""
        self._turn.submit(call).add_done_callback(self._on_done)

    def _on_done(self, task: asyncio.Task[ToolResult]) -> None:
        """Record a result at once, so that a crash cannot lose what has been done."""
        if not task.cancelled() and task.exception() is None:
            with suppress(SessionError):  # the transcript cannot be written: the turn fails when it records all results
                self.record_results((task.result(),))

    def _record_blocks(self) -> None:
        blocks = self.message.blocks
        if blocks and not self._recorded_blocks and self._transcript.conversation.blocks:
            self._transcript.append(MessageDiscarded())  # of the attempt before this one
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


def _is_visible(blocks: Iterable[Mapping[str, Any]]) -> bool:
    return any(block["type"] in VISIBLE_TYPES and block.get("text", "x").strip() for block in blocks)


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
