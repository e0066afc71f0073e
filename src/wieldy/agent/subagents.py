"""Subagents: each gets a model, a narrower toolbox and a transcript of its own, and reports to its parent."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct
from msgspec.structs import asdict, replace

from wieldy.agent.conversation import Conversation
from wieldy.agent.deferred import deferred_question
from wieldy.agent.loop import AgentLoop, RequestOptions, RunEnd, RunLimits
from wieldy.agent.models import SubagentModels
from wieldy.agent.records import (
    VERSION,
    ApprovalRequested,
    AssistantMessageEnded,
    CallStarted,
    HistoryReplaced,
    ModelChanged,
    QuestionSettled,
    SessionHeader,
    SideRequestMade,
    SubagentEnded,
    SubagentStarted,
    ToolResultRecord,
    ToolsActivated,
    TranscriptRecord,
    clean_texts,
)
from wieldy.agent.resume import settle_lost
from wieldy.agent.runs import run_end
from wieldy.agent.session_hooks import SubagentHooks
from wieldy.agent.system_prompt import RequestPrefix
from wieldy.agent.transcript import SUBAGENT_FOLDER, Transcript
from wieldy.core.call import PlannedCall
from wieldy.core.catalog import Catalog
from wieldy.core.decision import STRICTNESS, Answer, Approver, Decision, Judge, Opinion, Question, Reason
from wieldy.core.effects import Runs
from wieldy.core.errors import Deferred, SessionError, ToolFailure
from wieldy.core.events import AgentEvent, AnyEvent, Event, ModelAnswered, Notice, ToolFailed, ToolProgress, ToolStarted
from wieldy.core.git import without_location
from wieldy.core.logs import log
from wieldy.core.outcome import Refused
from wieldy.core.provider import Provider, ProviderFailure
from wieldy.core.supervise import Abort, Aborted
from wieldy.core.text import truncate_line
from wieldy.core.threads import in_thread, in_thread_uncancellable
from wieldy.core.tool import Tool, ToolContext
from wieldy.core.workspace import ChildWorkspace, CopiedRoot, Workspace
from wieldy.engine.events import Events
from wieldy.engine.results import Spill
from wieldy.engine.services import CallServices, build_toolset, new_queue
from wieldy.engine.turn import Turn, TurnObserver
from wieldy.engine.workspace_services import HostServices, WorkspaceServices
from wieldy.files.working_copies import (
    CopyChanges,
    IsolationError,
    WorkingTree,
    copies_folder,
    finish_working_tree,
    make_working_tree,
    remove_old_copies,
)
from wieldy.policy.hooks.dispatch import Hooks
from wieldy.policy.permissions.decide import Policy, RuleMatcher
from wieldy.policy.permissions.guarded_files import GuardedFiles
from wieldy.policy.permissions.modes import find_mode
from wieldy.policy.permissions.paths import is_below
from wieldy.policy.permissions.protected import Protection
from wieldy.policy.settings.load import Settings
from wieldy.tools.subagents import SubagentHandle, SubagentRegistry, SubagentReport, SubagentTask
from wieldy.tools.toolset import OfferedTools

if TYPE_CHECKING:
    from wieldy.agent.loop import AnyToolbox
    from wieldy.engine.toolbox import Toolbox
    from wieldy.tools.subagents import AgentDefinition


# Permission modes, the strictest first.
MODES_BY_STRICTNESS = ("plan", "dontAsk", "default", "acceptEdits", "bypassPermissions")
# Tools that talk to the user: a subagent reports to its parent instead.
MAX_STEPS = 1_000
MAX_DENIED = 20
MAX_LINE_CHARS = 200


class StrictestPolicy:
    """Takes the strictest of what the session's policy decides and what the same rules decide in each of `modes`.

    The mode and rules of the session's policy may change at any time. A `judge` decides in place of that policy. With `trees`
    the subagent works in the last of them, a copy: rules hold there as in the original, and the original must not be written.
    """

    def __init__(
        self,
        policy: Policy,
        modes: Sequence[str] = (),
        judge: Judge | None = None,
        trees: tuple[WorkingTree, ...] = (),
    ) -> None:
        self._policy = policy
        self._modes = tuple(find_mode(mode).name for mode in modes)
        self._judge = judge
        self._trees = trees
        self._derived_from: tuple[object, object] = (None, None)
        self._derived: dict[tuple[str, bool], Policy] = {}

    def derive(self, mode: str | None, tree: WorkingTree | None = None) -> StrictestPolicy:
        """The policy of a nested subagent, at least as strict as this one."""
        modes = (*self._modes, *([mode] if mode else ()))
        trees = (*self._trees, *([tree] if tree else ()))
        return StrictestPolicy(self._policy, modes, self._judge, trees)

    @property
    def mode(self) -> str:
        return min((self._policy.mode, *self._modes), key=MODES_BY_STRICTNESS.index)

    def decide(self, plan: PlannedCall, opinions: Sequence[Opinion] = ()) -> Decision:
        first = self.session_policy() if self._judge is None else self._judge
        decisions = [first.decide(plan, opinions)]
        decisions += [self._in_mode(mode).decide(plan, opinions) for mode in dict.fromkeys(self._modes)]
        if self._trees:
            decisions += [Decision("deny", (reason,), ()) for reason in self._isolation_reasons(plan, opinions)]
        return max(decisions, key=lambda decision: STRICTNESS[decision.behavior])

    def _isolation_reasons(self, plan: PlannedCall, opinions: Sequence[Opinion]) -> Iterator[Reason]:
        """Why a call must not leave the copy: it would write to the original, or a rule denies what it does there."""
        own = self._trees[-1]
        for path in self.session_policy().written_paths(plan):
            if not is_below(path, own.root) and any(is_below(path, root) for root in self._live_roots()):
                yield Reason("guard", "deny", f"{path} is in the original; this agent works in its copy, {own.root}")
        for effect in plan.effects:
            if isinstance(effect, Runs) and effect.opaque and (root := self._named_root(effect.command)) is not None:
                text = f"the command names the original, {root}; this agent works in its copy, {own.root}"
                yield Reason("guard", "deny", text)
        original = self._in_mode(self._policy.mode, copied=False).decide(plan, opinions)
        yield from (reason for reason in original.reasons if reason.kind == "rule" and reason.behavior == "deny")

    def _live_roots(self) -> Iterator[str]:
        for tree in self._trees:
            yield from (tree.live_top, *tree.live_roots)

    def _named_root(self, command: str) -> str | None:
        """The original, where a command names it beside any path in the copy."""
        rest = command.replace(self._trees[-1].root, "")
        return next((root for root in self._live_roots() if root != "/" and root in rest), None)

    def session_policy(self) -> Policy:
        """The session's policy, with the folders of the copy."""
        return self._in_mode(self._policy.mode)

    def removal_reason(self, tool_name: str) -> Reason | None:
        """Why a tool must not be offered; None where it may be."""
        return self._policy.removal_reason(tool_name)

    def hides(self, path: str) -> bool:
        """Whether searches and listings leave a path out."""
        return self._policy.hides(path) or (bool(self._trees) and self.session_policy().hides(path))

    @property
    def hides_anything(self) -> bool:
        """Whether `hides` can be true for any path."""
        return self._policy.hides_anything

    def guarded_files(self, also_writable: Sequence[str] = ()) -> GuardedFiles:
        """What a sandbox must keep from programs."""
        return (self.session_policy() if self._trees else self._policy).guarded_files(also_writable)

    def denied_paths(self) -> tuple[str, ...]:
        """The files and folders that rules deny to read by name."""
        return (self.session_policy() if self._trees else self._policy).denied_paths()

    def protection_of(self, path: str) -> Protection | None:
        """Why writing a real path asks in every mode."""
        return self.session_policy().protection_of(path)

    def _in_mode(self, mode: str, *, copied: bool = True) -> Policy:
        """The session's policy in some mode, derived again when its rules or folders have changed; for the copy or not."""
        rules, paths = self._policy.rules, self._policy.paths
        if rules is not self._derived_from[0] or paths is not self._derived_from[1]:
            self._derived_from, self._derived = (rules, paths), {}
        policy = self._derived.get((mode, copied))
        if policy is None:
            for tree in self._trees if copied else ():
                paths = paths.for_copy(tree.root, tree.map_path(paths.project))
            policy = self._derived[mode, copied] = self._policy.derive(mode, paths)
        return policy


class SubagentHookDispatch(Hooks):
    """The session's hooks inside a subagent. Their input says which agent it is."""

    def __init__(
        self,
        parent: Hooks,
        workspace: Workspace,
        policy: StrictestPolicy,
        halt: Callable[[str], None],
        identity: SubagentIdentity,
    ) -> None:
        matcher = RuleMatcher(policy.session_policy())
        super().__init__(parent.hooks, workspace, mode=lambda: policy.mode, rule_matches=matcher, halt=halt)
        self._parent = parent
        self._identity = identity

    def common_fields(self) -> dict[str, Any]:
        """The session's fields, with this agent's working directory, mode, id and type."""
        return {
            **self._parent.common_fields(),
            "cwd": self._workspace.cwd,
            "permission_mode": self._mode(),
            "agent_id": self._identity.id,
            "agent_type": self._identity.type,
        }


class SubagentIdentity(Struct, frozen=True):
    """The id and type of a subagent, and the call of its parent that it works for."""

    id: str
    type: str
    call_id: str


class SubagentEvents(Events):
    """The events of a subagent: counts them and forwards them to the parent, wrapped in `AgentEvent`."""

    def __init__(self, parent: Events, identity: SubagentIdentity, find_tool: Callable[[str], Tool | None]) -> None:
        super().__init__()
        self.has_subscribers = True
        self.stream_deltas = parent.stream_deltas
        self._parent = parent
        self._identity = identity
        self._find_tool = find_tool
        self.steps: list[str] = []
        self.denied: list[str] = []
        self.usage: dict[str, int] = {}
        self.turns = 0
        self.last_text = ""

    def emit(self, event: Event) -> None:
        is_nested = isinstance(event, AgentEvent)
        self._count(event.event if isinstance(event, AgentEvent) else event, own=not is_nested)
        if self._parent.has_subscribers:
            identity = self._identity
            self._parent.emit(
                event
                if is_nested
                else AgentEvent(
                    call_id=identity.call_id,
                    agent_id=identity.id,
                    agent_type=identity.type,
                    event=cast(AnyEvent, event),
                )
            )

    def _count(self, event: Event, *, own: bool) -> None:
        match event:
            case ModelAnswered():
                for name, number in asdict(event.usage).items():
                    self.usage[name] = self.usage.get(name, 0) + number
                if own:
                    self.turns += 1
                    texts = [block["text"] for block in event.content if block["type"] == "text"]
                    self.last_text = "\n".join(texts).strip() or self.last_text
            case ToolFailed() if isinstance(event.result.outcome, Refused):
                if event.result.outcome.stage in ("permission", "hook") and len(self.denied) < MAX_DENIED:
                    self.denied.append(truncate_line(event.result.text, MAX_LINE_CHARS))
            case ToolStarted() if own:
                tool = self._find_tool(event.name)
                self._add_step(
                    truncate_line(tool.show_use(event.input) if tool is not None else event.name, MAX_LINE_CHARS)
                )

    def _add_step(self, step: str) -> None:
        if len(self.steps) < MAX_STEPS:
            self.steps.append(step)
        if self._parent.has_subscribers:
            text = f"{self._identity.type}: {step}"
            self._parent.emit(ToolProgress(call_id=self._identity.call_id, name="Agent", text=text))


class FilteredCatalog(Catalog):
    """The tools of another catalog that a subagent has. The others do not exist for it."""

    def __init__(self, catalog: Catalog, task: SubagentTask, *, may_start: bool) -> None:
        self._catalog = catalog
        self._task = task
        self._missing = {"person"} if may_start else {"person", "agents"}

    @property
    def changes(self) -> int:  # type: ignore[override]
        return self._catalog.changes

    def find(self, name: str) -> Tool | None:
        tool = self._catalog.find(name) if _allows(self._task, name) else None
        if tool is None or tool.group in self._missing or (self._task.definition.mode == "plan" and not tool.read_only):
            return None
        return tool

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._catalog if name in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.find(name) is not None


def _allows(task: SubagentTask, name: str) -> bool:
    """Whether the definition of a subagent and its task allow it a tool."""
    definition = task.definition
    allowed = [patterns for patterns in (definition.tools, task.tools) if patterns is not None]
    return all(_matches(name, patterns) for patterns in allowed) and not _matches(name, definition.disallowed_tools)


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


class SubagentApprover:
    """Asks the user in the name of an agent; for nested agents, of the innermost.

    `on_deferred` receives questions that are answered later, its own and those of its subagents.
    """

    def __init__(self, approver: Approver, identity: SubagentIdentity, on_deferred: Callable[[Question], None]) -> None:
        self._approver = approver
        self._identity = identity
        self._on_deferred = on_deferred

    async def ask(self, question: Question) -> Answer:
        identity = self._identity
        name = question.agent or f"{identity.type} agent {identity.id}"
        try:
            return await self._approver.ask(
                replace(question, agent=name, agent_calls=(identity.call_id, *question.agent_calls))
            )
        except Deferred:
            self._on_deferred(question)
            raise


def _copied_root(tree: WorkingTree, parent: Workspace) -> CopiedRoot:
    # git must find neither the repository of the original nor one around the copy.
    env = {**without_location(parent.env), "GIT_CEILING_DIRECTORIES": str(tree.top.parent)}
    return CopiedRoot(tree.root, tree.map_path(parent.cwd), tree.scratch / "state", env)


class SubagentToolbox:
    """The toolbox of one subagent. Its calls belong to the turn `turn_id` of its parent, and are undone with it.

    With `tree` it works in a copy of the project, which has a journal, shells and a queue of its own.
    """

    settings: Settings
    catalog: Catalog
    events: SubagentEvents
    workspace: Workspace
    services: CallServices

    def __init__(  # noqa: PLR0913 - everything that a subagent shares or has of its own
        self,
        parent: AnyToolbox,
        task: SubagentTask,
        identity: SubagentIdentity,
        *,
        policy: StrictestPolicy,
        abort: Abort,
        folder: Path,
        turn_id: str | None,
        host: HostServices,
        halt: Callable[[str], None],
        on_asked: Callable[[str], None],
        on_deferred: Callable[[Question], None],
        model: str,
        tree: WorkingTree | None = None,
    ) -> None:
        self.settings = parent.settings
        may_start = host.start_subagent is not None
        self.catalog = FilteredCatalog(parent.catalog, task, may_start=may_start)
        self.events = SubagentEvents(parent.events, identity, parent.catalog.find)
        self.workspace = ChildWorkspace(
            parent.workspace,
            session_dir=folder,
            emit=self.events.emit,
            services=lambda workspace: WorkspaceServices(
                workspace,
                host,
                parent=parent.workspace.services,
                has_own_root=tree is not None,
                make_toolset=lambda *given: build_toolset(self.catalog, self.services, *given),
            ),
            copy=None if tree is None else _copied_root(tree, parent.workspace),
        )
        self.policy = policy.derive(task.definition.mode, tree)
        self.hooks: Hooks = SubagentHookDispatch(parent.hooks, self.workspace, self.policy, halt, identity)
        self._turn_id = turn_id
        shared = parent.services
        self.services = replace(
            shared,
            catalog=self.catalog,
            workspace=self.workspace,
            # In a copy no call of the parent can get in the way.
            queue=shared.queue if tree is None else new_queue(self.workspace.env, shared.supervisor),
            events=self.events,
            spill=Spill(folder / "tool-results"),
            policy=self.policy.session_policy(),
            judge=self.policy,
            mode=lambda: self.policy.mode,
            person=SubagentApprover(shared.person, identity, on_deferred),
            hooks=lambda: self.hooks,
            on_question=on_asked,
            options=lambda: replace(shared.options(), model=model),
        )
        self.services = self.services.activating().configured(self.settings, abort)

    def turn(self, *, observer: TurnObserver | None = None) -> Turn:
        return Turn(self.services, self._turn_id, observer=observer)

    async def offering(self, window: int | None = None) -> OfferedTools:
        return await self.workspace.services.toolset.offering(window)

    async def aclose(self) -> None:
        await self.workspace.aclose()


_ID = re.compile(r"agent_[0-9a-f]{8}")


class ParentContext(Struct, frozen=True):
    """What a session, or a subagent, shares with the subagents it starts."""

    id: str
    box: AnyToolbox
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
        """Start a subagent for a call; continue the one it has, where that waited for answers. Raises `ToolFailure`."""
        earlier = self._parent.transcript.conversation.agents.get(ctx.call_id)
        id = earlier.id if earlier is not None else task.resumes or f"agent_{os.urandom(4).hex()}"
        identity = SubagentIdentity(id, task.definition.name, ctx.call_id)
        return await self._start(task, identity, ctx.message_id, ctx.abort, continues=earlier is not None)

    async def resume(self, calls: Iterable[str], abort: Abort) -> tuple[dict[str, SubagentHandle], dict[str, str]]:
        """Continue subagents for which no call of the model waits, by the calls that started them; and why others cannot.

        One that can never continue has ended; one that cannot do so now keeps its questions.
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
                handles[call] = await self._start(task, identity, None, abort, continues=True)
            except ToolFailure as failure:
                failures[call] = f"{earlier.id} cannot continue: {failure.person}"
                if isinstance(failure, SubagentGone):
                    self._parent.transcript.append(SubagentEnded(earlier.id, call, "error"))
                self._parent.box.events.emit(Notice(text=failures[call]))
        return handles, failures

    async def _start(
        self, task: SubagentTask, identity: SubagentIdentity, turn_id: str | None, abort: Abort, *, continues: bool
    ) -> SubagentHandle:
        """Start a run. Raises `ToolFailure`."""
        with self._registry.claim(identity.id):
            conversation = Conversation()
            if continues or task.resumes:
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
                continues=continues,
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
            if not workspace.files.is_local:
                raise IsolationError(f"the project is on {workspace.files.place}")
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
            raise SubagentGone(f"There is no agent `{id}` to continue.", "Send a new one, with all it needs to know.")
        agent_type = conversation.header.agent if conversation.header is not None else None
        if agent_type != identity.type:
            raise ToolFailure(f"{id} is a `{agent_type}` agent.", "Send `agent_type` as that, or a new agent.")
        return conversation


class SubagentGone(ToolFailure):
    """A subagent that can never continue."""


def _continued(task: SubagentTask, conversation: Conversation) -> SubagentTask:
    """The task of an agent that continues: it keeps the tools that it was narrowed to, and its prompt where there is no other."""
    header = conversation.header
    if task.tools is None and header is not None and header.tools is not None:
        task = replace(task, tools=tuple(header.tools))
    if not task.prompt and conversation.prompts:
        task = replace(task, prompt=conversation.prompts[0].text)
    return task


class SubagentRun:
    """Works on one task; with `continues`, from where its questions had to wait for answers."""

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
        continues: bool = False,
        tree: WorkingTree | None = None,
    ) -> None:
        self.abort = Abort()
        self.transcript = parent.transcript.for_subagent(identity.id, folder, conversation, self._forward)
        self._continues = continues
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
        if isinstance(record, AssistantMessageEnded | HistoryReplaced | SideRequestMade) and (
            record.cost or record.unpriced
        ):
            parent.append(SideRequestMade(record.cost, agent=self._identity.id, unpriced=record.unpriced))
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
        context = await hooks.on_start("resume" if task.resumes or self._continues else "startup", model)
        if self._continues:
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
