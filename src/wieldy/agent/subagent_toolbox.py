"""The toolbox of a subagent: its parent's, with fewer tools, a stricter policy and state of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, cast

from msgspec import Struct
from msgspec.structs import asdict, replace

from wieldy.agent.toolbox_protocol import ToolboxProtocol
from wieldy.core.abort import Abort
from wieldy.core.call import PlannedCall
from wieldy.core.catalog import Catalog
from wieldy.core.decision import STRICTNESS, Answer, Approver, Decision, Judge, Opinion, Question, Reason
from wieldy.core.effects import Runs
from wieldy.core.errors import Deferred
from wieldy.core.events import AgentEvent, AnyEvent, Event, ModelAnswered, ToolFailed, ToolProgress, ToolStarted
from wieldy.core.outcome import Refused
from wieldy.core.text import truncate_line
from wieldy.core.tool import Tool
from wieldy.core.workspace import ChildWorkspace, CopiedRoot, Workspace
from wieldy.engine.events import Events
from wieldy.engine.results import Spill
from wieldy.engine.services import build_toolset, new_queue
from wieldy.engine.turn import Turn, TurnObserver
from wieldy.engine.workspace_services import HostServices, WorkspaceServices
from wieldy.files.working_copies import without_location
from wieldy.policy.hooks.dispatch import Hooks
from wieldy.policy.permissions.decide import Policy, RuleMatcher
from wieldy.policy.permissions.guarded_files import GuardedFiles
from wieldy.policy.permissions.modes import find_mode
from wieldy.policy.permissions.paths import is_below
from wieldy.policy.permissions.protected import Protection
from wieldy.tools.subagents.isolation import WorkingTree
from wieldy.tools.subagents.tasks import SubagentTask
from wieldy.tools.toolset.toolset import OfferedTools

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
        """The strictest mode in force."""
        return min((self._policy.mode, *self._modes), key=MODES_BY_STRICTNESS.index)

    def decide(self, plan: PlannedCall, opinions: Sequence[Opinion] = ()) -> Decision:
        """Decide about a call."""
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
        """Count an event and forward it."""
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

    `on_deferred` hears of questions that are answered later, its own and those of its subagents.
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

    def __init__(  # noqa: PLR0913 - everything that a subagent shares or has of its own
        self,
        parent: ToolboxProtocol,
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
