"""The agent loop: request an answer, run its tools, request again, until there are no more calls or a limit is reached."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from wieldy.agent.lost_calls import calls_to_repeat
from wieldy.agent.model_turn import TurnResult, TurnRunner
from wieldy.agent.prompts import SteeringQueue, prompt_text
from wieldy.agent.records import ModelChanged, UserMessage
from wieldy.agent.seen_files import describe_changes, restore, take_record
from wieldy.agent.session_hooks import PromptBlocked, SessionHooks
from wieldy.agent.system_prompt import ROLE, InstructionScope, environment, instructions, system_prompt
from wieldy.agent.toolbox_protocol import ToolboxProtocol
from wieldy.agent.transcript import Transcript
from wieldy.core.abort import Abort
from wieldy.core.call import ToolCall
from wieldy.core.errors import Refusal
from wieldy.core.events import Notice, Steered
from wieldy.core.filesystem import look
from wieldy.core.option_checks import require_amount, require_count
from wieldy.core.provider import Provider, ProviderFailure, Request, ToolSpec
from wieldy.core.supervise import Aborted
from wieldy.core.text import plural
from wieldy.core.workspace import Workspace
from wieldy.engine.pipeline import bind, normalize

if TYPE_CHECKING:
    from wieldy.agent.compaction import Compactor

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


class RequestPrefix:
    """The cacheable prefix of one session's requests: the system prompt and the tools offered.

    It is rebuilt when the mode or the catalog of tools changes. Tools that are activated later are appended, so that
    a provider's cache of the prefix stays valid.
    """

    def __init__(
        self,
        box: ToolboxProtocol,
        extra: str = "",
        role: str = ROLE,
        *,
        instruction_scope: InstructionScope = "all",
        describes_environment: bool = True,
        record_activated: Callable[[list[str]], None] = lambda names: None,
    ) -> None:
        self._box = box
        self._extra = extra
        self._role = role
        self._instruction_scope = instruction_scope
        self._describes_environment = describes_environment
        self._context_window: int | None = None
        self._model = ""
        self._mode = ""
        self._catalog_changes = -1
        self._has_new_activations = False
        self._record_activated = record_activated
        self._prepared = False
        self.system: tuple[str, ...] = ()
        self.offers: tuple[ToolSpec, ...] = ()
        self.breaks: tuple[int, ...] = ()

    async def prepare(self, provider: Provider, active: Iterable[str] = ()) -> None:
        """Build the prefix for a provider, with the tools that were activated in an earlier run."""
        self._context_window, self._model, self._mode = provider.context_window, provider.model, ""
        self._box.workspace.services.activations.restore(active)
        self._prepared = True
        await self.refresh()

    def on_activated(self, names: tuple[str, ...]) -> None:
        """Send these tools in full from the next request on, and record that."""
        if self._prepared:
            self._has_new_activations = True
            self._record_activated(list(names))

    @property
    def is_current(self) -> bool:
        """Whether nothing has changed since the prefix was built."""
        box = self._box
        unchanged = box.policy.mode == self._mode and box.catalog.changes == self._catalog_changes
        return unchanged and not self._has_new_activations

    async def refresh(self) -> None:
        """Offer the tools that are available now; rebuild the system prompt if the mode or the catalog has changed."""
        workspace, mode, changes = self._box.workspace, self._box.policy.mode, self._box.catalog.changes
        unchanged = mode == self._mode and changes == self._catalog_changes
        self._has_new_activations = False
        offering = await self._box.offering(self._context_window)
        self.offers, self.breaks = offering.definitions, offering.breaks
        if unchanged:
            return
        self._mode, self._catalog_changes = mode, changes
        names = {offer.name for offer in self.offers}
        parts = (
            system_prompt(offering.tools, mode=mode, extra=self._extra, role=self._role),
            offering.listing,
            workspace.services.skills.prompt_section() if "Skill" in names else "",
            workspace.services.agent_types.prompt_section() if "Agent" in names else "",
            *await look(workspace.files, self._describe_project, workspace),
        )
        self.system = tuple(part for part in parts if part)

    def _describe_project(self, workspace: Workspace) -> tuple[str, str]:
        """The instructions of the project and the user, and the environment."""
        root, files = workspace.root, workspace.files
        return (
            instructions(root, workspace.env, self._read_refusal, self._instruction_scope, files),
            environment(workspace.cwd, root, model=self._model, files=files) if self._describes_environment else "",
        )

    def _read_refusal(self, path: str, folder: str) -> str | None:
        """Why the policy does not let an instruction file in `folder` quote a file; None if it does.

        Nobody is asked: what would be asked is refused. Only that a file is outside the project does not matter where it is
        beside or below the instruction file, which is outside too.
        """
        from wieldy.tools.read import read

        try:
            plan = normalize(bind(ToolCall("instructions", read.name, {"file_path": path}), read), self._box.workspace)
        except Refusal as refusal:
            return str(refusal)
        decision = self._box.services.judge.decide(plan, ())
        if decision.behavior == "allow":
            return None
        # A mode only says what becomes of a question.
        obstacles = [reason for reason in decision.reasons if reason.behavior != "allow" and reason.kind != "mode"]
        is_outside_only = obstacles and all(one.kind == "path" and one.behavior == "ask" for one in obstacles)
        realpath = self._box.workspace.files.realpath
        if is_outside_only and Path(realpath(path)).is_relative_to(realpath(folder)):
            return None
        return str(obstacles[0]) if obstacles else decision.why


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

    def __init__(  # noqa: PLR0913 - what a run needs, each by name
        self,
        box: ToolboxProtocol,
        provider: Provider,
        transcript: Transcript,
        prefix: RequestPrefix,
        hooks: SessionHooks,
        *,
        limits: RunLimits,
        options: RequestOptions,
        reports: Callable[[], PendingReports | None] = lambda: None,
        steering: SteeringQueue | None = None,
    ) -> None:
        self.box = box
        self.provider = provider
        self.transcript = transcript
        self.hooks = hooks
        self.options = options
        self._reports = reports
        self._steering = SteeringQueue() if steering is None else steering
        self._prefix = prefix
        self._limits = limits
        self._cost_before = transcript.conversation.cost
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
        """Wait for the report of a background subagent that goes on, then run turns until the end.

        Raises `Aborted`, `ProviderFailure` or `SessionError`.
        """
        reports = self._reports()
        report = None if reports is None else await self._next_report(reports)
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
            for report in reports.ready() if (reports := self._reports()) is not None else ():
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
        """The limit that is reached after so many turns of a run, or None."""
        return self._limits.reached(turns, self.transcript.conversation.cost - self._cost_before)

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
        """Whether the model is to go on: the person said something, a subagent reports, or a stop hook has a reason."""
        if self._steering:
            return await self._steer()
        reports = self._reports()
        reason = await self._next_report(reports) if reports is not None else None
        if self._steering and reason is None:
            return await self._steer()
        if reason is None and not self.transcript.conversation.background_agents():
            reason = await self.hooks.on_stop(text)
        if reason is not None:
            self.transcript.append(UserMessage([_text_block(reason)]))
        return reason is not None or (bool(self._steering) and await self._steer())

    async def _next_report(self, reports: PendingReports) -> str | None:
        """Wait for a report of a subagent; None where none is running, or the person says something first."""
        report = asyncio.create_task(reports.next())
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
