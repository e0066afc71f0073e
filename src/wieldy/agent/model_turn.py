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
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from wieldy.agent.lost_calls import RepeatAdviser
from wieldy.agent.records import (
    AssistantBlock,
    AssistantMessageEnded,
    CallStarted,
    CallsWaiting,
    MessageDiscarded,
    ToolResultRecord,
)
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
from wieldy.core.tool import Replay
from wieldy.core.workspace import Workspace
from wieldy.engine.events import Events
from wieldy.engine.turn import LoopBreaker, Turn, TurnObserver, join_texts
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


class TurnRunner:
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
        recorder = TurnRecorder(self.transcript, self.box.workspace, self.loop_breaker)
        async with self.box.turn(observer=recorder) as turn:
            try:
                await _run_until(abort, self._receive(request, turn))
                turn.finish()
            except Aborted:
                interrupted = True
                turn.break_off()
            except ProviderFailure as error:
                turn.break_off(is_broken=True)
                if not turn.calls:
                    raise
                failure = error
            message = turn.message
            reason = "interrupted" if interrupted else "broken" if failure else message.stop_reason or "end_turn"
            content = message.content()
            self._record_end(content, message.usage, reason, time.monotonic() - started)
            results = await turn.results() if turn.calls else []
        looping, waiting = await self._settle(turn, recorder, results)
        text = join_texts(content)
        return TurnResult(content, text, reason, results, interrupted or abort.aborted, failure, looping, waiting)

    async def _receive(self, request: Request, turn: Turn) -> None:
        """Receive the message; its calls start while it streams in. Raises `ProviderFailure`."""
        events = self.box.events
        async with self.provider.stream(request) as deltas:
            try:
                async for delta in deltas:
                    if isinstance(delta, BlockStarted) and delta.block.get("name") == "Bash":
                        self.box.workspace.services.shells.warm_up()  # while the model writes the command
                    turn.add(delta)
                    if events.stream_deltas:
                        _emit_delta(delta, turn, events)
            finally:
                await deltas.aclose()  # type: ignore[attr-defined]

    async def run_calls(self, calls: Sequence[ToolCall], abort: Abort) -> TurnResult:
        """Run calls of an earlier message: their questions have been answered, or they are made again after a crash."""
        conversation = self.transcript.conversation
        ids = {call.id for call in calls}.difference(conversation.agents)
        repeated = {id: started for id, started in conversation.started.items() if id in ids}
        recorder = TurnRecorder(self.transcript, self.box.workspace, self.loop_breaker, frozenset(repeated))
        async with self.box.turn(observer=recorder) as turn:
            if repeated:
                turn.add_adviser(RepeatAdviser(repeated))
            for call in calls:
                turn.submit(call)
            results = await turn.results()
        looping, waiting = await self._settle(turn, recorder, results)
        return TurnResult((), "", "tool_use", results, abort.aborted, None, looping, waiting)

    async def _settle(self, turn: Turn, recorder: TurnRecorder, results: Sequence[ToolResult]) -> tuple[bool, bool]:
        """Have the effects of a turn on disk before the model reads of them; whether the model runs in a loop, or calls wait."""
        recorder.record_results(results)
        waiting = [result.call_id for result in results if isinstance(result.outcome, Waiting)]
        if waiting:
            self.transcript.append(CallsWaiting(waiting))
        if turn.lasting_calls:
            await self.transcript.flush(results=True)
        calls = {call.id: call for call in turn.calls}
        looping = [
            self.loop_breaker.record(calls[id], failed=result.is_error, changes=id in turn.lasting_calls)
            for result in results
            if (id := result.call_id) not in waiting
        ]
        return any(looping), bool(waiting)

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


class TurnRecorder(TurnObserver):
    """Puts a turn into the transcript as it happens: blocks, the start of calls, results. `repeated` calls are made again."""

    def __init__(
        self,
        transcript: Transcript,
        workspace: Workspace,
        loop_breaker: LoopBreaker,
        repeated: frozenset[str] = frozenset(),
    ) -> None:
        self.loop_breaker = loop_breaker
        self.used_ids = transcript.conversation.ids
        self._transcript = transcript
        self._workspace = workspace
        self._repeated = repeated
        self._has_blocks = False
        self._recorded_results: set[str] = set()

    async def on_start(self, call_id: str, replay: Replay, lasts: bool) -> None:
        """Record the start; on disk where the effects last. Raises `SessionError`."""
        self._transcript.append(CallStarted(call_id, replay))
        if lasts:
            await self._transcript.flush()

    def on_block(self, index: int, block: dict[str, Any]) -> None:
        if not self._has_blocks and self._transcript.conversation.blocks:
            self._transcript.append(MessageDiscarded())  # of the attempt before this one
        self._has_blocks = True
        self._transcript.append(AssistantBlock(block, index))

    def on_discarded(self) -> None:
        self._transcript.append(MessageDiscarded())
        self._has_blocks = False

    def on_result(self, result: ToolResult) -> None:
        """Record a result at once, so that a crash cannot lose what has been done."""
        with suppress(SessionError):  # the transcript cannot be written: the turn fails when it records all results
            self.record_results((result,))

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


def _emit_delta(delta: Delta, turn: Turn, events: Events) -> None:
    emit, open_blocks = events.emit, turn.message.open
    if isinstance(delta, BlockDelta):
        index, piece = delta.index, delta.piece
        if delta.field in ("text", "thinking"):
            emit(ModelTextDelta(text=piece, thinking=delta.field == "thinking", index=index))
        elif delta.field == "input":
            start = open_blocks[index].start
            emit(ToolInputDelta(call_id=start["id"], name=start["name"], piece=piece, index=index))
        elif delta.field in DELTA_TYPES:
            emit(ModelBlockDelta(index=index, delta={"type": DELTA_TYPES[delta.field], delta.field: piece}))
    elif isinstance(delta, BlockEnded):
        emit(ModelBlockDelta(index=delta.index))
    elif isinstance(delta, BlockStarted):
        start = open_blocks[delta.index].start
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
