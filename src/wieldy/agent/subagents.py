"""Runs subagents: each gets a model, a narrower toolbox and a transcript of its own, and reports to its parent."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from wieldy.agent.deferred import deferred_question
from wieldy.agent.loop import AgentLoop, RequestOptions, RequestPrefix, RunEnd, RunLimits
from wieldy.agent.lost_calls import settle_lost
from wieldy.agent.models import SubagentModels
from wieldy.agent.records import (
    VERSION,
    ApprovalRequested,
    CallStarted,
    ModelChanged,
    QuestionSettled,
    SessionHeader,
    SideRequestMade,
    SubagentEnded,
    SubagentStarted,
    ToolResultRecord,
    ToolsActivated,
    TranscriptRecord,
)
from wieldy.agent.runs import run_end
from wieldy.agent.session_hooks import SubagentHooks
from wieldy.agent.subagent_toolbox import StrictestPolicy, SubagentIdentity, SubagentToolbox
from wieldy.agent.toolbox_protocol import ToolboxProtocol
from wieldy.agent.transcript import SUBAGENT_FOLDER, Conversation, Transcript, clean_texts
from wieldy.core.abort import Abort
from wieldy.core.errors import SessionError, ToolFailure
from wieldy.core.events import Notice
from wieldy.core.logs import log
from wieldy.core.provider import Provider, ProviderFailure
from wieldy.core.supervise import Aborted
from wieldy.core.threads import in_thread, in_thread_uncancellable
from wieldy.core.tool import ToolContext
from wieldy.engine.workspace_services import HostServices
from wieldy.files.working_copies import IsolationError
from wieldy.tools.subagents.isolation import (
    CopyChanges,
    WorkingTree,
    copies_folder,
    finish_working_tree,
    make_working_tree,
    remove_old_copies,
)
from wieldy.tools.subagents.tasks import SubagentHandle, SubagentRegistry, SubagentReport, SubagentTask

if TYPE_CHECKING:
    from wieldy.engine.toolbox import Toolbox
    from wieldy.tools.subagents.definitions import AgentDefinition

_ID = re.compile(r"agent_[0-9a-f]{8}")


class ParentContext(Struct, frozen=True):
    """What a session, or a subagent, shares with the subagents it starts."""

    id: str
    box: ToolboxProtocol
    policy: StrictestPolicy
    provider: Provider
    transcript: Transcript
    loop: Callable[[], AgentLoop | None]
    pick_model: Callable[[AgentDefinition], Provider | None]
    halt: Callable[[str], None]
    depth: int = 0


def session_context(box: Toolbox, loop: AgentLoop, model_name_and_url: tuple[str | None, str | None]) -> ParentContext:
    """The context that a session gives to its subagents."""
    judge = None if box.services.judge is box.policy else box.services.judge
    return ParentContext(
        box.id,
        box,
        StrictestPolicy(box.policy, judge=judge),
        loop.provider,
        loop.transcript,
        lambda: loop,
        SubagentModels(model_name_and_url, box).pick,
        box.abort,
    )


class SubagentLimits(RunLimits, frozen=True):
    """The limits of a subagent: its own turns, and those of its parents."""

    parent_limit: Callable[[], RunEnd | None] = lambda: None

    def reached(self, turns: int, dollars: float) -> RunEnd | None:
        return super().reached(turns, dollars) or self.parent_limit()


class BackgroundReports:
    """The reports of background subagents, for the loop of the session."""

    def __init__(self, registry: SubagentRegistry) -> None:
        self._registry = registry

    def ready(self) -> list[str]:
        return [_report_text(handle) for handle in self._registry.unread()]

    async def next(self) -> str | None:
        return "\n\n".join(map(_report_text, await self._registry.wait_unread())) or None


def _report_text(handle: SubagentHandle) -> str:
    handle.was_read = True
    report = handle.current_report().as_text()
    return f"The agent {handle.id}, which you had sent into the background, is over. It reports:\n\n{report}"


class SubagentStarter:
    """Starts the subagents of a session or of a subagent."""

    def __init__(self, parent: ParentContext) -> None:
        self._parent = parent
        self._registry = parent.box.workspace.services.subagent_registry
        self._unwritten: dict[str, Conversation] = {}  # without persistence: conversations that may be resumed
        self.reports = BackgroundReports(self._registry)

    async def start(self, task: SubagentTask, ctx: ToolContext) -> SubagentHandle:
        """Start a subagent for a call; go on with the one it has, where that waited for answers. Raises `ToolFailure`."""
        earlier = self._parent.transcript.conversation.agents.get(ctx.call_id)
        id = earlier.id if earlier is not None else task.resumes or f"agent_{os.urandom(4).hex()}"
        identity = SubagentIdentity(id, task.definition.name, ctx.call_id)
        return await self._start(task, identity, ctx.message_id, ctx.abort, goes_on=earlier is not None)

    async def go_on(self, calls: Iterable[str], abort: Abort) -> tuple[dict[str, SubagentHandle], dict[str, str]]:
        """Go on with subagents for which no call of the model waits, by the calls that started them; and why others cannot.

        One that can never go on has ended; one that cannot do so now keeps its questions.
        """
        handles, failures = {}, {}
        for call in calls:
            earlier = self._parent.transcript.conversation.agents[call]
            types = self._parent.box.workspace.services.agent_types
            definition = types.definitions.get(earlier.agent) or (await in_thread(types.refresh)).get(earlier.agent)
            try:
                if definition is None:
                    raise SubagentGone(f"There is no agent type `{earlier.agent}` any more.")
                task = SubagentTask(definition, "", earlier.description, background=earlier.background)
                identity = SubagentIdentity(earlier.id, definition.name, call)
                handles[call] = await self._start(task, identity, None, abort, goes_on=True)
            except ToolFailure as failure:
                failures[call] = f"{earlier.id} cannot go on: {failure.person}"
                if isinstance(failure, SubagentGone):
                    self._parent.transcript.append(SubagentEnded(earlier.id, call, "error"))
                self._parent.box.events.emit(Notice(text=failures[call]))
        return handles, failures

    async def _start(
        self, task: SubagentTask, identity: SubagentIdentity, turn_id: str | None, abort: Abort, *, goes_on: bool
    ) -> SubagentHandle:
        """Start a run. Raises `ToolFailure`."""
        with self._registry.claim(identity.id):
            conversation = Conversation()
            if goes_on or task.resumes:
                conversation = await self._earlier_conversation(identity)
                task = _continued(task, conversation)
            tree = await self._make_tree(task, identity.id, conversation)
            if self._parent.transcript.path is None:
                self._unwritten[identity.id] = conversation
            run = SubagentRun(
                self._parent,
                task,
                identity,
                self._folder(identity.id),
                conversation,
                turn_id,
                self._limits(task),
                goes_on=goes_on,
                tree=tree,
            )
            handle = SubagentHandle(identity.id, task, run.abort, run.report)
            self._registry.start(handle, run.run(), abort)
        return handle

    async def _make_tree(self, task: SubagentTask, id: str, conversation: Conversation) -> WorkingTree | None:
        """The copy of the project for an agent that is to have one, or had one. Raises `ToolFailure` if none can be made."""
        workspace = self._parent.box.workspace
        scratch = copies_folder(workspace) / id
        header = conversation.header
        had_one = header is not None and Path(header.root).is_relative_to(os.path.realpath(scratch))
        if not task.definition.isolation and not had_one:
            return None
        try:
            if workspace.backend is not None:
                raise IsolationError(f"the project is on {workspace.backend.id}")
            await in_thread(remove_old_copies, scratch.parent)
            return await in_thread_uncancellable(make_working_tree, scratch, workspace.root, workspace.roots)
        except IsolationError as error:
            raise ToolFailure(
                f"The agent was not started: it works in a copy of the project, and none can be made: {error}.",
                "Do the task yourself, or send an agent that works in the project itself.",
            ) from None

    def _limits(self, task: SubagentTask) -> RunLimits:
        max_turns = task.definition.max_turns or self._parent.box.workspace.setting("agents.maxTurns")
        loop = self._parent.loop()
        return SubagentLimits(max_turns, parent_limit=loop.limit_reached if loop is not None else lambda: None)

    def _folder(self, agent_id: str) -> Path:
        return self._parent.box.workspace.session_dir / SUBAGENT_FOLDER / agent_id

    async def _earlier_conversation(self, identity: SubagentIdentity) -> Conversation:
        id = identity.id
        conversation = self._unwritten.get(id)
        if conversation is None and _ID.fullmatch(id):
            try:
                conversation = await self._parent.transcript.read_subagent(id, self._folder(id))
            except SessionError as error:
                raise ToolFailure(f"{error}.", "Send a new agent, with all it needs to know.") from None
        if conversation is None:
            raise SubagentGone(f"There is no agent `{id}` to go on with.", "Send a new one, with all it needs to know.")
        agent_type = conversation.header.agent if conversation.header is not None else None
        if agent_type != identity.type:
            raise ToolFailure(f"{id} is a `{agent_type}` agent.", "Send `agent_type` as that, or a new agent.")
        return conversation


class SubagentGone(ToolFailure):
    """A subagent that can never go on."""


def _continued(task: SubagentTask, conversation: Conversation) -> SubagentTask:
    """The task of an agent that goes on: it keeps the tools that it was narrowed to, and its prompt where there is no other."""
    header = conversation.header
    if task.tools is None and header is not None and header.tools is not None:
        task = replace(task, tools=tuple(header.tools))
    if not task.prompt and conversation.prompts:
        task = replace(task, prompt=conversation.prompts[0].text)
    return task


class SubagentRun:
    """Works on one task; with `goes_on`, from where its questions had to wait for answers."""

    def __init__(  # noqa: PLR0913 - everything that a run shares with its parent
        self,
        parent: ParentContext,
        task: SubagentTask,
        identity: SubagentIdentity,
        folder: Path,
        conversation: Conversation,
        turn_id: str | None,
        limits: RunLimits,
        *,
        goes_on: bool = False,
        tree: WorkingTree | None = None,
    ) -> None:
        self.abort = Abort()
        self.transcript = parent.transcript.for_subagent(identity.id, folder, conversation, self._forward)
        self._goes_on = goes_on
        self._parent = parent
        self._task = task
        self._identity = identity
        self._limits = limits
        self._tree = tree
        self._changes: CopyChanges | None = None
        self._provider, self._owns_provider = self._pick_provider()
        self._loop: AgentLoop | None = None
        self._started = time.monotonic()
        self._cost_before = conversation.cost
        self._end: RunEnd | None = None
        self._prefix: RequestPrefix | None = None
        self._subagents: SubagentStarter | None = None
        depth = parent.depth + 1
        may_start = depth < parent.box.workspace.services.subagent_access.max_depth
        # All agents share one set: a call id must be unique in the whole session.
        parent.transcript.conversation.ids.update(conversation.ids, (identity.call_id,))
        conversation.ids = parent.transcript.conversation.ids
        self.box = SubagentToolbox(
            parent.box,
            task,
            identity,
            policy=parent.policy,
            abort=self.abort,
            folder=folder,
            turn_id=turn_id,
            host=HostServices(
                start_subagent=self._start_subagent if may_start else None,
                subagent_depth=depth,
                on_activated=self._on_activated,
            ),
            halt=parent.halt,
            on_asked=lambda call_id: self.transcript.append(ApprovalRequested(call_id)),
            on_deferred=lambda question: self.transcript.append(deferred_question(question)),
            model=self._provider.model,
            tree=tree,
        )

    def context(self) -> ParentContext:
        """The context that this agent gives to its own subagents."""
        return replace(
            self._parent,
            id=self._identity.id,
            box=self.box,
            policy=self.box.policy,
            provider=self._provider,
            transcript=self.transcript,
            loop=lambda: self._loop,
            depth=self._parent.depth + 1,
        )

    def _forward(self, record: TranscriptRecord) -> None:
        """Record in the parent's transcript what it must know: costs, and questions that are settled."""
        parent = self._parent.transcript
        if cost := getattr(record, "cost", None):
            parent.append(SideRequestMade(cost, agent=self._identity.id))
        if isinstance(record, QuestionSettled):
            parent.append(record)
        elif isinstance(record, ToolResultRecord | CallStarted):
            id = record.id if isinstance(record, CallStarted) else record.block.get("tool_use_id")
            if id in self.transcript.conversation.pending:
                parent.append(QuestionSettled(str(id)))

    async def _start_subagent(self, task: SubagentTask, ctx: ToolContext) -> SubagentHandle:
        if self._subagents is None:
            self._subagents = SubagentStarter(self.context())
        return await self._subagents.start(task, ctx)

    def _on_activated(self, names: tuple[str, ...]) -> None:
        if self._prefix is not None:
            self._prefix.on_activated(names)

    async def run(self) -> SubagentReport:
        """Work until the end and report. Raises nothing but cancellation."""
        identity = self._identity
        try:
            task = self._task
            self._parent.transcript.append(
                SubagentStarted(
                    identity.id,
                    identity.type,
                    identity.call_id,
                    self._transcript_path(),
                    task.background,
                    task.description,
                )
            )
            self._end = await self._run_loop()
        except (Aborted, ProviderFailure, SessionError) as error:
            self._end = run_end(error)
        except Exception as bug:
            log.error("subagent %s failed", identity.id, exc_info=bug)
            self._end = RunEnd("error", f"it crashed: {type(bug).__name__}: {bug}")
        finally:
            await self._close()
        return self._record_report()

    def report(self) -> SubagentReport:
        """The report as it stands; final once the agent has ended."""
        end = self._end
        if end is None:
            end = RunEnd("interrupted", self.abort.reason) if self.abort.aborted else RunEnd("running", "it is at work")
        events = self.box.events
        return SubagentReport(
            self._identity.id,
            self._identity.type,
            end.why,
            end.detail,
            end.text or events.last_text,
            events.turns,
            tuple(events.steps),
            tuple(events.denied),
            dict(events.usage),
            self.transcript.conversation.cost - self._cost_before,
            time.monotonic() - self._started,
            self._transcript_path(),
            self._changes,
        )

    async def _run_loop(self) -> RunEnd:
        box, task, model = self.box, self._task, self._provider.model
        conversation, record = self.transcript.conversation, self.transcript.append
        parent_loop = self._parent.loop()
        parent_options = parent_loop.options if parent_loop is not None else RequestOptions()
        prefix = self._prefix = RequestPrefix(
            box,
            role=task.definition.prompt if self._tree is None else f"{task.definition.prompt}\n\n{self._tree.prompt()}",
            instruction_scope=parent_options.instruction_scope,
            record_activated=lambda names: record(ToolsActivated(names)),
        )
        await prefix.prepare(self._provider, conversation.activated)
        await settle_lost(box, self.transcript)
        self._report_missing_tools()
        if conversation.header is None:
            record(self._header())
        elif conversation.header.model != model:
            record(ModelChanged(model))
        hooks = SubagentHooks(box.hooks, self._transcript_path() or "")
        options = replace(parent_options, server_tools=())  # server tools are the session's alone
        self._loop = AgentLoop(
            box, self._provider, self.transcript, prefix, hooks, limits=self._limits, options=options
        )
        context = await hooks.on_start("resume" if task.resumes or self._goes_on else "startup", model)
        if self._goes_on:
            return await self._loop.resume(context, self.abort)
        return await self._loop.run([{"type": "text", "text": clean_texts(task.prompt)}], context, self.abort)

    def _header(self) -> SessionHeader:
        identity = self._identity
        return SessionHeader(
            VERSION,
            identity.id,
            self.box.workspace.root,
            self._provider.model,
            time.time(),
            agent=identity.type,
            parent=self._parent.id,
            parent_call=identity.call_id,
            tools=None if self._task.tools is None else list(self._task.tools),
        )

    def _record_report(self) -> SubagentReport:
        report = self.report()
        record = SubagentEnded(
            report.agent_id, self._identity.call_id, report.why, report.turns, dict(report.usage), report.cost
        )
        try:
            self._parent.transcript.append(record)
        except SessionError as failure:
            log.error("the end of subagent %s could not be recorded: %s", report.agent_id, failure)
        return report

    def _report_missing_tools(self) -> None:
        """Notify the user of tools that the agent's file names and that do not exist here."""
        definition = self._task.definition
        missing = [name for name in definition.tools or () if "*" not in name and name not in self.box.catalog]
        if missing and definition.origin != "built-in":
            text = f"The agent {self._identity.type} asks for tools that it cannot have: {', '.join(missing)}"
            self.box.events.emit(Notice(text=text))

    def _pick_provider(self) -> tuple[Provider, bool]:
        """The model of the agent, and whether it must be closed with it."""
        definition, parent_provider = self._task.definition, self._parent.provider
        if (delegated := getattr(parent_provider, "delegated", None)) is not None:
            return delegated(definition.name, self._task.prompt), True
        own = self._parent.pick_model(definition)
        return (parent_provider, False) if own is None else (own, True)

    def _transcript_path(self) -> str | None:
        return str(self.transcript.path) if self.transcript.path is not None else None

    async def _close(self) -> None:
        """Release everything, whatever fails, and find out what has changed in the copy."""
        for close in (self.box.aclose, self.transcript.aclose, self._close_provider, self._finish_tree):
            try:
                await close()
            except SessionError as failure:
                self._end = RunEnd("error", str(failure), self._end.text if self._end is not None else "")
            except Exception as error:
                log.error("subagent %s was not closed properly", self._identity.id, exc_info=error)

    async def _close_provider(self) -> None:
        if self._owns_provider:
            await self._provider.aclose()

    async def _finish_tree(self) -> None:
        if self._tree is not None:
            self._changes = await in_thread(finish_working_tree, self._tree, self.box.workspace.session_dir)
