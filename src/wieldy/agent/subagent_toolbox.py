"""The tools of a sub-agent: its parent's, narrowed; a place of its own to stand in; the same rules, hooks, journal and person."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict, replace

from wieldy.agent.session_hooks import MOST_STOPS, SessionHooks
from wieldy.agent.toolbox_protocol import ToolboxProtocol
from wieldy.approval import ObservedApprover
from wieldy.core.abort import Abort
from wieldy.core.call import PlannedCall
from wieldy.core.catalog import Catalog
from wieldy.core.decision import STRICTNESS, Adviser, Answer, Approver, Decision, Judge, Opinion, Question, Reason
from wieldy.core.events import AgentEvent, Event, ModelAnswered, ToolFailed, ToolProgress, ToolStarted
from wieldy.core.outcome import Refused
from wieldy.core.tool import Tool
from wieldy.core.truncate import truncate
from wieldy.core.workspace import ChildWorkspace, Workspace
from wieldy.engine.events import Events
from wieldy.engine.results import Spill
from wieldy.engine.services import Services
from wieldy.engine.supervise import Supervisor
from wieldy.engine.turn import Turn
from wieldy.files.apply_edit import Rehearsals
from wieldy.files.editing.read_state import ReadState
from wieldy.files.reading.read_file import RecentReads
from wieldy.hooks.dispatch import HookApprover, HookReviewer, Hooks
from wieldy.permissions.advisers import CleanTreeAdviser
from wieldy.permissions.decide import Policy, RuleMatcher
from wieldy.permissions.modes import find_mode
from wieldy.subagents.tasks import SubagentAccess, SubagentTask
from wieldy.toolbox import offered
from wieldy.tools.todo_write import TodoList
from wieldy.toolset.toolset import ActivatingCatalog, Activations, OfferedTools, Toolset

# From the strictest on: which of several modes a person is told of.
WIDTH = ("plan", "dontAsk", "default", "acceptEdits", "bypassPermissions")


class StrictestPolicy:
    """The strictest of what the parent's judge decides and what each of `modes` makes of the same rules.

    `policy` is the one of the session, whose mode and rules may change at any time; `given` is a judge that stands in for it.
    """

    def __init__(
        self, policy: Policy, cwd: Callable[[], str], modes: Sequence[str] = (), given: Judge | None = None
    ) -> None:
        self._policy = policy
        self._cwd = cwd
        self._modes = tuple(find_mode(mode).name for mode in modes)
        self._given = given
        self._seen: tuple[object, object] = (None, None)
        self._made: dict[str, Policy] = {}

    def derive(self, cwd: Callable[[], str], mode: str | None) -> StrictestPolicy:
        """The judge of somebody further down: nothing that holds here is lost on the way."""
        return StrictestPolicy(self._policy, cwd, (*self._modes, *([mode] if mode else ())), self._given)

    @property
    def mode(self) -> str:
        """The mode in force, the narrowest where there are several."""
        return min((self._policy.mode, *self._modes), key=WIDTH.index)

    def decide(self, plan: PlannedCall, opinions: Sequence[Opinion] = ()) -> Decision:
        """What is decided about a call, as strict as the strictest says."""
        first = self.standing() if self._given is None else self._given
        decisions = [first.decide(plan, opinions)]
        decisions += [self._in(mode).decide(plan, opinions) for mode in dict.fromkeys(self._modes)]
        return max(decisions, key=lambda decision: STRICTNESS[decision.behavior])

    def standing(self) -> Policy:
        """The session's policy, seen from where the sub-agent stands."""
        return self._in(self._policy.mode)

    def removal_reason(self, tool_name: str) -> Reason | None:
        """Why a tool is not to be offered at all; None where it may be."""
        return self._policy.removal_reason(tool_name)

    def hides(self, path: str) -> bool:
        """Whether searches and listings are to leave a path out."""
        return self._policy.hides(path)

    @property
    def hides_anything(self) -> bool:
        """Whether `hides` can be true for any path."""
        return self._policy.hides_anything

    def _in(self, mode: str) -> Policy:
        """The session's policy in some mode, made anew when its rules or folders have changed."""
        seen = (self._policy.rules, self._policy.paths)
        if seen[0] is not self._seen[0] or seen[1] is not self._seen[1]:
            self._seen, self._made = seen, {}
        made = self._made.get(mode)
        if made is None:
            made = self._made[mode] = self._policy.derive(self._cwd, mode)
        return made


class SubagentHookDispatch(Hooks):
    """The hooks of the session, which hold inside a sub-agent as outside. They are told which one it is."""

    def __init__(
        self,
        above: Hooks,
        workspace: Workspace,
        judge: StrictestPolicy,
        halt: Callable[[str], None],
        *,
        agent_id: str,
        agent_type: str,
    ) -> None:
        super().__init__(
            above.hooks,
            workspace,
            mode=lambda: judge.mode,
            rule_matches=RuleMatcher(judge.standing()),
            halt=halt,
        )
        self._above = above
        self._agent = {"agent_id": agent_id, "agent_type": agent_type}

    def common_fields(self) -> dict[str, Any]:
        """What every moment is told: the session's own, but where this agent stands, and who it is."""
        here = {"cwd": self._workspace.cwd, "permission_mode": self._mode()}
        return {**self._above.common_fields(), **here, **self._agent}


class SubagentHooks(SessionHooks):
    """A sub-agent's moments. Its task is no prompt of the person's, so that no hook is told of one."""

    def __init__(self, hooks: Hooks, transcript: str) -> None:
        super().__init__(hooks)
        self._transcript = transcript

    async def started(self, source: str, model: str) -> tuple[str, ...]:
        """Tell of the start; returns what hooks add to what the agent knows."""
        if not self.hooks.has("SubagentStart"):
            return ()
        from wieldy.hooks.events import SubagentStart

        return (await self.hooks.fire(SubagentStart(**self._common()))).context

    async def prompted(self, prompt: str) -> tuple[str, ...]:
        """Nothing: the task comes from an agent."""
        self.sent_on = 0
        return ()

    async def stopping(self, last_words: str) -> str | None:
        """Tell that the agent wants to stop; returns why it is to go on, or None."""
        if not self.hooks.has("SubagentStop") or self.sent_on >= MOST_STOPS:
            return None
        from wieldy.hooks.events import SubagentStop

        said = await self.hooks.fire(
            SubagentStop(
                **self._common(),
                agent_transcript_path=self._transcript,
                stop_hook_active=self.sent_on > 0,
                last_assistant_message=last_words,
            )
        )
        if said.blocked is None or said.halt is not None:
            return None
        self.sent_on += 1
        return said.blocked


MOST_STEPS = 1_000
MOST_DENIED = 20
LONGEST_LINE = 200


class SubagentIdentity(Struct, frozen=True):
    """Which sub-agent it is: its id, its kind, and the call of its parent that it works for."""

    id: str
    type: str
    call_id: str


class SubagentEvents(Events):
    """The events of a sub-agent. Each goes on to the parent's with the agent's name on it; the rest is a tally."""

    def __init__(self, above: Events, agent: SubagentIdentity, find: Callable[[str], Tool | None]) -> None:
        super().__init__()
        self.has_subscribers = True
        self.stream_deltas = above.stream_deltas
        self._above = above
        self._agent = agent
        self._find = find
        self.steps: list[str] = []
        self.denied: list[str] = []
        self.usage: dict[str, int] = {}
        self.turns = 0
        self.said = ""

    def emit(self, event: Event) -> None:
        """Take an event into account, and pass it on."""
        inner = event.event if isinstance(event, AgentEvent) else event
        self._count(inner, own=inner is event)
        if self._above.has_subscribers:
            self._above.emit(event if isinstance(event, AgentEvent) else self._named(event))

    def _named(self, event: Event) -> AgentEvent:
        agent = self._agent
        return AgentEvent(call_id=agent.call_id, agent_id=agent.id, agent_type=agent.type, event=event)

    def _count(self, event: Event, *, own: bool) -> None:
        match event:
            case ModelAnswered():
                for name, number in asdict(event.usage).items():
                    self.usage[name] = self.usage.get(name, 0) + number
                if own:
                    self.turns += 1
                    self.said = _words(event) or self.said
            case ToolFailed() if isinstance(event.result.outcome, Refused):
                if event.result.outcome.stage in ("permission", "hook") and len(self.denied) < MOST_DENIED:
                    self.denied.append(_one_line(event.result.text))
            case ToolStarted() if own:
                self._step(_one_line(self._shown(event.name, event.input)))

    def _step(self, step: str) -> None:
        if len(self.steps) < MOST_STEPS:
            self.steps.append(step)
        if self._above.has_subscribers:
            text = f"{self._agent.type}: {step}"
            self._above.emit(ToolProgress(call_id=self._agent.call_id, name="Agent", text=text))

    def _shown(self, name: str, input: Mapping[str, Any]) -> str:
        tool = self._find(name)
        return tool.show_use(input) if tool is not None else name


def _words(event: ModelAnswered) -> str:
    return "\n".join(block["text"] for block in event.content if block["type"] == "text").strip()


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return truncate(line, LONGEST_LINE)


# What one model has seen, loaded, planned and sent: no other one has.
ISOLATED = (ReadState, RecentReads, Rehearsals, Activations, Toolset, TodoList, SubagentAccess)
# The person speaks with the session's own model; a sub-agent reports to its parent.
NEVER = frozenset({"AskUser", "ExitPlan", "StickerRequest"})
SENDERS = frozenset({"Agent", "Architect"})


class FilteredCatalog(Catalog):
    """Those tools of another catalog that a sub-agent has. The others do not exist for it."""

    def __init__(self, catalog: Catalog, has: Callable[[str], bool]) -> None:
        self._catalog = catalog
        self._has = has

    @property
    def changes(self) -> int:  # type: ignore[override]
        """How often a tool has come or gone in the other catalog."""
        return self._catalog.changes

    def find(self, name: str) -> Tool | None:
        """The tool of exactly this name, if the agent has it."""
        return self._catalog.find(name) if self._has(name) else None

    def __iter__(self) -> Iterator[str]:
        return filter(self._has, self._catalog)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, name: str) -> bool:
        return self._has(name) and name in self._catalog


class SubagentApprover:
    """The person, told which agent asks; the innermost is the one that wants it."""

    def __init__(self, person: Approver, name: str) -> None:
        self._person = person
        self._name = name

    async def ask(self, question: Question) -> Answer:
        """Put the question in the agent's name."""
        return await self._person.ask(question if question.agent else replace(question, agent=self._name))


class SubagentToolbox:
    """The equipment of one sub-agent. `turn_id` is its parent's turn: undoing that takes back what the agent did."""

    def __init__(  # noqa: PLR0913 - everything that a sub-agent shares or has of its own
        self,
        above: ToolboxProtocol,
        task: SubagentTask,
        agent: SubagentIdentity,
        *,
        judge: StrictestPolicy,
        person: Approver,
        abort: Abort,
        folder: Path,
        turn_id: str | None,
        may_start: bool,
        halt: Callable[[str], None],
        asked: Callable[[str], None],
    ) -> None:
        self.settings = above.settings
        self.catalog = FilteredCatalog(above.catalog, lambda name: has(name, task, may_start=may_start))
        self.events = SubagentEvents(above.events, agent, above.catalog.find)
        self.workspace = ChildWorkspace(above.workspace, session_dir=folder, isolated=ISOLATED, emit=self.events.emit)
        self.policy = judge.derive(lambda: self.workspace.cwd, task.definition.mode)
        self.hooks: Hooks = SubagentHookDispatch(
            above.hooks, self.workspace, self.policy, halt, agent_id=agent.id, agent_type=agent.type
        )
        self.person = SubagentApprover(person, f"{agent.type} agent {agent.id}")
        self._turn_id = turn_id
        self.services = self._services(above.services, abort, asked)

    def _services(self, above: Services, abort: Abort, asked: Callable[[str], None]) -> Services:
        pool, theirs = self.workspace.service(Toolset), above.workspace.service(Toolset)
        pool.refresh, pool.starting, pool.settled = self.offering, theirs.starting, theirs.settled
        return replace(
            above,
            catalog=ActivatingCatalog(self.catalog, pool),
            workspace=self.workspace,
            judge=self.policy,
            approver=ObservedApprover(HookApprover(self.hooks, self.person), asked),
            events=self.events,
            spill=Spill(self.workspace.session_dir / "tool-results"),
            advisers=tuple(map(self._adviser, above.advisers)),
            reviewers=tuple(
                HookReviewer(self.hooks) if isinstance(one, HookReviewer) else one for one in above.reviewers
            ),
            abort=abort,
        )

    def _adviser(self, adviser: Adviser) -> Adviser:
        """The same adviser, seeing what this agent sees."""
        if isinstance(adviser, Hooks):
            return self.hooks
        if isinstance(adviser, CleanTreeAdviser):
            return CleanTreeAdviser(self.policy.standing(), lambda: self.workspace.cwd)
        return adviser

    @property
    def supervisor(self) -> Supervisor:
        """What foreign code runs on: the session's own."""
        return self.services.supervisor

    def turn(self) -> Turn:
        """Calls of the agent belong to the turn that sent it."""
        return Turn(self.services, self._turn_id)

    async def offering(self, window: int | None = None) -> OfferedTools:
        """What a request carries of this agent's tools."""
        return await offered(self.catalog, self.services, self.settings, self.policy.mode, window)

    async def aclose(self) -> None:
        """Let go of what is this agent's own."""
        await self.workspace.aclose()


def has(name: str, task: SubagentTask, *, may_start: bool) -> bool:
    """Whether a sub-agent has a tool: its kind names it, the errand does not leave it out, and it is one for sub-agents."""
    if name in NEVER or (name in SENDERS and not may_start):
        return False
    definition = task.definition
    lists = [wanted for wanted in (definition.tools, task.tools) if wanted is not None]
    return all(_named(name, wanted) for wanted in lists) and not _named(name, definition.without)


def _named(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
