"""The agent loop: request an answer, run its tools, request again, until there are no more calls or a limit is reached.

A turn runs tools while the answer streams in, until every call has its result. A stream that breaks before any tool has started
is requested again. Once one has, the blocks so far stand: their results are kept and the model continues from there, so that no
tool ever runs twice. Text of a broken stream is always in the transcript; it counts until another attempt replaces it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from wieldy.agent.conversation import UNKNOWN
from wieldy.agent.records import (
    AssistantBlock,
    AssistantMessageEnded,
    CallStarted,
    CallsWaiting,
    HistoryReplaced,
    MessageDiscarded,
    ModelChanged,
    ToolResultRecord,
    UserMessage,
    clean_texts,
)
from wieldy.agent.resume import RepeatAdviser, calls_to_repeat, describe_changes, restore, take_record
from wieldy.agent.session_hooks import PromptBlocked, SessionHooks
from wieldy.agent.system_prompt import InstructionScope, RequestPrefix
from wieldy.agent.transcript import Transcript
from wieldy.core.call import ToolCall
from wieldy.core.errors import SessionError
from wieldy.core.events import (
    ModelAnswered,
    ModelBlockDelta,
    ModelRequested,
    ModelTextDelta,
    Notice,
    Retried,
    Steered,
    ToolInputDelta,
)
from wieldy.core.logs import log
from wieldy.core.option_checks import require_amount, require_count
from wieldy.core.outcome import Failed, Refused, ToolResult, Waiting
from wieldy.core.provider import BlockDelta, BlockEnded, BlockStarted, Delta, Provider, ProviderFailure, Request, Usage
from wieldy.core.supervise import Abort, Aborted
from wieldy.core.text import plural
from wieldy.core.threads import in_thread_uncancellable
from wieldy.core.tool import Replay
from wieldy.core.workspace import Workspace
from wieldy.engine.events import Events
from wieldy.engine.results import clean
from wieldy.engine.services import CallServices, prepare_commands
from wieldy.engine.turn import LoopBreaker, Turn, TurnObserver, join_texts
from wieldy.models.catalog import cost, unpriced

if TYPE_CHECKING:
    from wieldy.agent.compaction import Compactor
    from wieldy.agent.subagents import SubagentToolbox
    from wieldy.engine.toolbox import Toolbox

    AnyToolbox: TypeAlias = Toolbox | SubagentToolbox


Prompt: TypeAlias = str | Sequence[Mapping[str, Any]]


def prompt_content(prompt: Prompt) -> list[dict[str, Any]]:
    """The content blocks of a prompt. Raises `SessionError` for one that says nothing."""
    if isinstance(prompt, Mapping) or not isinstance(prompt, str | Iterable):
        raise SessionError(f"a prompt is text, or a list of content blocks, not {prompt!r:.200}")
    blocks = [{"type": "text", "text": clean(prompt)}] if isinstance(prompt, str) else clean_texts(list(prompt))
    content: list[dict[str, Any]] = blocks
    if not all(isinstance(block, Mapping) and isinstance(block.get("type"), str) for block in content):
        raise SessionError("a prompt is text, or a list of content blocks, each with its `type`")
    if not any(block["type"] != "text" or block["text"].strip() for block in content):
        raise SessionError("the prompt is empty")
    return content


def initial_history(messages: Sequence[Mapping[str, Any]], *, resumes: bool) -> HistoryReplaced | None:
    """A history for a session to start from. Raises `ValueError` for what is no message, or a session that has one."""
    if not messages:
        return None
    if resumes:
        raise ValueError("give `messages` or `resume`, not both")
    if isinstance(messages, str | Mapping):
        raise ValueError(f"`messages` must be a list of messages, not {messages!r:.200}")
    for message in messages:
        content = message.get("content") if isinstance(message, Mapping) else None
        is_blocks = isinstance(content, list | tuple) and all(
            isinstance(block, Mapping) and isinstance(block.get("type"), str) for block in content
        )
        if (
            content is None
            or message.get("role") not in ("user", "assistant")
            or not (isinstance(content, str) or is_blocks)
        ):
            form = "{'role': 'user' or 'assistant', 'content': text or a list of blocks}"
            raise ValueError(f"{message!r:.200} is no message: give {form}")
    plain = [{"role": each["role"], "content": msgspec.to_builtins(each["content"])} for each in messages]
    return HistoryReplaced(clean_texts(plain), "given", prompts=[])


def prompt_text(content: Sequence[Mapping[str, Any]]) -> str:
    return "\n".join([block["text"] for block in content if block["type"] == "text"])


class SteeringQueue:
    """What the person says during a run. It is sent with the next request of that run."""

    def __init__(self) -> None:
        self._contents: list[list[dict[str, Any]]] = []
        self._added = asyncio.Event()

    def add(self, prompt: Prompt) -> None:
        """Raises `SessionError` for a prompt that says nothing."""
        self._contents.append(prompt_content(prompt))
        self._added.set()

    async def wait(self) -> None:
        """Wait until there is something to take."""
        await self._added.wait()

    def take(self) -> list[list[dict[str, Any]]]:
        """Remove and return all contents, oldest first."""
        contents, self._contents = self._contents, []
        self._added.clear()
        return contents

    def __bool__(self) -> bool:
        return bool(self._contents)


COMPACT_AT = 0.85  # of the context window


class RunLimits(Struct, frozen=True):
    """What a run may not exceed: turns in one run, dollars in the lifetime of the session object."""

    turns: int | None = None
    cost: float | None = None

    def checked(self) -> RunLimits:
        """These limits. Raises `ValueError` for one that cannot be meant."""
        require_count("max_turns", self.turns)
        require_amount("max_cost", self.cost)
        return self

    def reached(self, turns: int, dollars: float) -> RunEnd | None:
        if self.turns is not None and turns >= self.turns:
            return RunEnd("max_turns", f"stopped after {plural(turns, 'turn')}")
        if self.cost is not None and dollars >= self.cost:
            return RunEnd("max_cost", f"stopped at a cost of ${dollars:.4f}")
        return None


class RequestOptions(Struct, frozen=True):
    """Options of every request: tokens for thinking, tools that the provider's servers run, which instruction files count."""

    thinking_budget: int | None = None
    server_tools: tuple[Mapping[str, Any], ...] = ()
    instruction_scope: InstructionScope = "all"


class RunEnd(Struct, frozen=True):
    """How a run ended: a word, a line, the last text of the model, and the kind of the provider's failure."""

    why: str
    detail: str = ""
    text: str = ""
    failure: str = ""
    value: Any = None
    data: Any = None


class PendingReports(Protocol):
    """Reports of background subagents."""

    def ready(self) -> list[str]:
        """The reports that have come in by now."""
        ...

    async def next(self) -> str | None:
        """Wait for a report; None when no subagent is running."""
        ...


class AgentLoop:
    """Runs the turns of one session. Everything that happens becomes a record, and the records make the conversation."""

    def __init__(
        self,
        box: AnyToolbox,
        provider: Provider,
        transcript: Transcript,
        prefix: RequestPrefix,
        hooks: SessionHooks,
        *,
        limits: RunLimits,
        options: RequestOptions,
        steering: SteeringQueue | None = None,
    ) -> None:
        self.box = box
        self.provider = provider
        self.transcript = transcript
        self.hooks = hooks
        self.options = options
        self.reports: PendingReports | None = None
        self._steering = SteeringQueue() if steering is None else steering
        self._prefix = prefix
        self._limits = limits
        self._cost_before = transcript.conversation.cost
        self._unpriced_before = transcript.conversation.unpriced.copy()
        self._turns = TurnRunner(box, provider, transcript)
        restore(box.workspace, transcript.conversation.seen.values())
        self._compactor: Compactor | None = None
        self._next_provider: tuple[Provider, ModelChanged] | None = None

    async def run(self, content: Sequence[dict[str, Any]], context: Sequence[str], abort: Abort) -> RunEnd:
        """Send a user message, with `context` from hooks, and run turns until the end.

        Raises `Aborted`, `ProviderFailure` or `SessionError`.
        """
        self._turns.loop_breaker.reset()
        if (end := await self._repeat_lost(abort)) is not None:
            self._steering.add(content)  # it was not sent, and the end of the run says so
            return end
        context = (*context, *await self._prompt_context(content))
        self._record_prompt(UserMessage([*content, *map(_text_block, context)], at=time.time()))
        return await self._run_turns(abort)

    async def _prompt_context(self, content: Sequence[dict[str, Any]]) -> tuple[str, ...]:
        """What is added to a message of the person: by hooks, and about files that have changed. Raises `PromptBlocked`."""
        added = await self.hooks.on_prompt(prompt_text(content))
        return (*added, *await describe_changes(self.box.workspace))

    def _record_prompt(self, message: UserMessage) -> None:
        self.transcript.append(message)
        if (seen := take_record(self.box.workspace)) is not None:
            self.transcript.append(seen)

    async def resume(self, context: Sequence[str], abort: Abort) -> RunEnd:
        """Run the calls that waited for answers, then turns until the end. `context` from hooks comes after their results.

        Raises `Aborted`, `ProviderFailure` or `SessionError`.
        """
        if (end := await self._repeat_lost(abort)) is not None:
            return end
        calls = self.transcript.conversation.waiting_calls()
        if calls:
            result = await self._turns.run_calls(calls, abort)
            if (end := _run_end(result, abort, "")) is not None:
                return end
        if context:
            self.transcript.append(UserMessage([*map(_text_block, context)]))
        return await self._run_turns(abort)

    async def _repeat_lost(self, abort: Abort) -> RunEnd | None:
        """Make lost calls again whose tools say that they may be; how the run has ended if it goes no further."""
        calls = calls_to_repeat(self.transcript)
        if not calls:
            return None
        self.transcript.conversation.lost.clear()
        return _run_end(await self._turns.run_calls(calls, abort), abort, "")

    async def await_report(self, context: Sequence[str], abort: Abort) -> RunEnd:
        """Wait for the report of a background subagent that continues, then run turns until the end.

        Raises `Aborted`, `ProviderFailure` or `SessionError`.
        """
        report = await self._next_report()
        if report is None:
            return self._end_without_calls("")
        self.transcript.append(UserMessage([*map(_text_block, (report, *context))]))
        return await self._run_turns(abort)

    def _end_without_calls(self, text: str) -> RunEnd:
        """How a run ends whose model has nothing more to call: it may have subagents with open questions."""
        if self.transcript.conversation.background_agents():
            return RunEnd("waiting", "questions of a subagent are to be answered", text)
        return RunEnd("done", "", text)

    async def correct(self, text: str, abort: Abort) -> RunEnd:
        """Tell the model what is wrong with its answer, and run turns until the end."""
        self.transcript.append(UserMessage([_text_block(text)]))
        return await self._run_turns(abort)

    async def _run_turns(self, abort: Abort) -> RunEnd:
        turns, text = 0, ""
        while True:
            if abort.aborted:
                raise Aborted(abort.reason)
            if (limit := self.limit_reached(turns)) is not None:
                return RunEnd(limit.why, limit.detail, text)
            for report in self.reports.ready() if self.reports is not None else ():
                self.transcript.append(UserMessage([_text_block(report)]))
            if self._steering:
                await self._steer()
            turns += 1
            result = await self._turn(turns, abort)
            text = result.text or text
            end = _run_end(result, abort, text)
            if end is not None and (end.why != "done" or not await self._continues(text)):
                return end if end.why != "done" else self._end_without_calls(text)
            if not result.results:
                await asyncio.sleep(0)  # a model that never waits must not starve other tasks

    def switch(self, provider: Provider, record: ModelChanged) -> None:
        """Use another model from the next request on, and record that."""
        self._next_provider = provider, record

    def limit_reached(self, turns: int = 0) -> RunEnd | None:
        """The limit that is reached after so many turns of a run, or None. Raises `SessionError` for one that cannot be kept."""
        if self._limits.cost is not None and (model := self._unpriced_model()):
            raise SessionError(
                f"the price of {model} is unknown, so no budget can be kept; give it in your settings, in dollars per "
                f'million tokens: {{"prices": {{"{model}": {{"input": 3, "output": 15}}}}}}'
            )
        return self._limits.reached(turns, self.transcript.conversation.cost - self._cost_before)

    def _unpriced_model(self) -> str:
        """A model without a known price that this session uses; empty if there is none."""
        used = self.transcript.conversation.unpriced - self._unpriced_before
        return unpriced(self.provider.model, self.box.workspace.settings.get("prices")) or next(iter(used), "")

    def compactor(self) -> Compactor:
        """The compactor of this conversation, loaded when it is first needed."""
        if self._compactor is None:
            from wieldy.agent.compaction import Compactor

            self._compactor = Compactor(self.box, self.provider, self.transcript, self.hooks)
        return self._compactor

    async def _turn(self, number: int, abort: Abort) -> TurnResult:
        """Run one turn; compact the conversation where it is too long for the provider."""
        if self._next_provider is not None:
            await self._use(*self._next_provider)
        if not self._prefix.is_current:
            await self._prefix.refresh()
        conversation = self.transcript.conversation
        if conversation.tokens > COMPACT_AT * self.provider.context_window:
            await self.compactor().compact("auto", abort)
        while True:
            request = Request(
                system=self._prefix.system,
                messages=conversation.settle(),
                tools=self._prefix.offers,
                breaks=self._prefix.breaks,
                server_tools=self.options.server_tools,
                thinking_budget=self.options.thinking_budget,
            )
            try:
                result = await self._turns.run(request, number, abort)
            except (ProviderFailure, Aborted) as error:
                if not isinstance(error, ProviderFailure) or not await self.compactor().handle(error, abort):
                    self._turns.keep_broken_text()
                    raise
            else:
                if self._compactor is not None:
                    self._compactor.steps_tried = 0
                return result

    async def _use(self, provider: Provider, record: ModelChanged) -> None:
        self._next_provider = None
        if provider.model != self.provider.model:
            self.transcript.append(record)
        self.provider = self._turns.provider = provider
        self._compactor = None
        await self._prefix.prepare(provider, self.transcript.conversation.activated)

    async def _continues(self, text: str) -> bool:
        """Whether the model is to continue: the person said something, a subagent reports, or a stop hook has a reason."""
        if self._steering:
            return await self._steer()
        reason = await self._next_report()
        if self._steering and reason is None:
            return await self._steer()
        if reason is None and not self.transcript.conversation.background_agents():
            reason = await self.hooks.on_stop(text)
        if reason is not None:
            self.transcript.append(UserMessage([_text_block(reason)]))
        return reason is not None or (bool(self._steering) and await self._steer())

    async def _next_report(self) -> str | None:
        """Wait for a report of a subagent; None where none is running, or the person says something first."""
        if self.reports is None:
            return None
        report = asyncio.create_task(self.reports.next())
        steered = asyncio.create_task(self._steering.wait())
        try:
            await asyncio.wait((report, steered), return_when=asyncio.FIRST_COMPLETED)
            return report.result() if report.done() else None
        finally:
            for task in (report, steered):
                task.cancel()
            await asyncio.wait((report, steered))

    async def _steer(self) -> bool:
        """Put what the person said meanwhile into the conversation; whether any of it was sent."""
        was_sent = False
        for content in self._steering.take():
            try:
                context = await self._prompt_context(content)
            except PromptBlocked as blocked:
                self.box.events.emit(Notice(text=f"{blocked}; it was not sent: {prompt_text(content)}"))
                continue
            self._record_prompt(UserMessage([*content, *map(_text_block, context)]))
            self.box.events.emit(Steered(text=prompt_text(content)))
            was_sent = True
        return was_sent


def _text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _run_end(result: TurnResult, abort: Abort, text: str) -> RunEnd | None:
    """How the run has ended, or None when the model is to be asked again."""
    if result.interrupted:
        return RunEnd("interrupted", abort.reason, text)
    if result.waiting:
        return RunEnd("waiting", "questions are to be answered", text)
    if result.looping:
        return RunEnd("looping", "the model kept making the same failing call", text)
    if result.results or result.failure is not None:
        return None
    match result.stop_reason:
        case "pause_turn" if result.content:
            return None
        case "max_tokens":
            return RunEnd("max_tokens", "the answer was cut off at the length limit", text)
        case "refusal":
            return RunEnd("refusal", "the model refused", text)
    return RunEnd("done", "", text)


MAX_ATTEMPTS = 8
PREPARE_AFTER_SECONDS = 0.02  # what answers sooner than that must not compete with the preparation
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
        box: AnyToolbox,
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
        self._is_prepared = False

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
        async with self._preparing(request) as timer, self.provider.stream(request) as deltas:
            is_first = True
            try:
                async for delta in deltas:
                    if is_first and timer is not None:
                        timer.cancel()
                    is_first = False
                    if isinstance(delta, BlockStarted) and delta.block.get("name") == "Bash":
                        self.box.workspace.services.shells.warm_up()  # while the model writes the command
                    turn.add(delta)
                    if events.stream_deltas:
                        _emit_delta(delta, turn, events)
            finally:
                await deltas.aclose()  # type: ignore[attr-defined]

    @asynccontextmanager
    async def _preparing(self, request: Request) -> AsyncIterator[asyncio.TimerHandle | None]:
        """Prepare the first command while the model thinks about its first answer; the timer starts that."""
        if self._is_prepared or not any(tool.name == "Bash" for tool in request.tools):
            yield None
            return
        self._is_prepared = True
        tasks: list[asyncio.Task[None]] = []

        def start() -> None:
            tasks.append(asyncio.create_task(_prepare_commands(self.box.services)))

        timer = asyncio.get_running_loop().call_later(PREPARE_AFTER_SECONDS, start)
        try:
            yield timer
        finally:
            timer.cancel()
            if tasks:
                await asyncio.wait(tasks)

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
        model, prices = self.provider.model, self.box.workspace.settings.get("prices")
        dollars = cost(model, usage, prices)
        ended = AssistantMessageEnded(reason, asdict(usage), dollars, time.time(), unpriced(model, prices))
        self.transcript.append(ended)
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


async def _prepare_commands(services: CallServices) -> None:
    """Load the grammar and the policy of commands, and start what runs them."""
    try:
        await in_thread_uncancellable(prepare_commands, services)
    except Exception:
        log.exception("the first command could not be prepared")


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
        has_new = False
        for result in results:
            if result.call_id not in self._recorded_results and not isinstance(result.outcome, Waiting):
                stage = result.outcome.stage if isinstance(result.outcome, Refused) else None
                person = result.person_text if isinstance(result.outcome, Refused | Failed) else ""
                block = result.as_wire()
                if stage is not None and result.call_id in self._repeated:  # it was not made again
                    block["content"] = [{"type": "text", "text": UNKNOWN}, *block["content"]]
                self._transcript.append(ToolResultRecord(block, stage, person))
                self._recorded_results.add(result.call_id)
                has_new = True
        if has_new and (seen := take_record(self._workspace)) is not None:
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
    jitter: Callable[[], float] | None = None,
) -> float | None:
    """Seconds to wait before the next attempt, as the server asks or by backoff; None when there should be none."""
    if not failure.transient or attempt >= max_attempts:
        return None
    if failure.retry_after is not None:
        return failure.retry_after if failure.retry_after <= MAX_RETRY_AFTER_SECONDS else None
    if jitter is None:
        import random

        jitter = random.random
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
