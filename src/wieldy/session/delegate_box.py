"""The tools of a sub-agent: its parent's, narrowed; a place of its own to stand in; the same rules, hooks, journal and person."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path

from wieldy.agents.errand import Errand
from wieldy.agents.roster import Delegation
from wieldy.approval import Witnessed
from wieldy.core.abort import Abort
from wieldy.core.annex import Annex
from wieldy.core.catalog import Catalog
from wieldy.core.decision import Adviser, Answer, Approver, Question
from wieldy.core.record import changed
from wieldy.core.tool import Tool
from wieldy.edit.readstate import ReadState
from wieldy.edit.rehearsal import Rehearsals
from wieldy.engine.bench import Bench
from wieldy.engine.leash import Leash
from wieldy.engine.spill import Spill
from wieldy.engine.turn import Turn
from wieldy.hooks.hooks import Hooks
from wieldy.hooks.request import HookedApprover
from wieldy.hooks.review import Review
from wieldy.permissions.clean_tree import CleanTree
from wieldy.pool.activations import Activations
from wieldy.pool.called import Called
from wieldy.pool.pool import Offering, Pool
from wieldy.reading.repeats import Repeats
from wieldy.session.delegate_judge import Narrowed
from wieldy.session.delegate_moments import AgentHooks
from wieldy.session.delegate_watch import Identity, Watch
from wieldy.session.equipment import Equipment
from wieldy.toolbox import offered
from wieldy.tools.todo_write import TodoList

# What one model has seen, loaded, planned and sent: no other one has.
OWN = (ReadState, Repeats, Rehearsals, Activations, Pool, TodoList, Delegation)
# The person speaks with the session's own model; a sub-agent reports to its parent.
NEVER = frozenset({"AskUser", "ExitPlan", "StickerRequest"})
SENDERS = frozenset({"Agent", "Architect"})


class Selected(Catalog):
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

    def shown(self, name: str) -> Tool | None:
        """The tool as a model is shown it, if the agent has it."""
        return self._catalog.shown(name) if self._has(name) else None

    def __iter__(self) -> Iterator[str]:
        return filter(self._has, self._catalog)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, name: str) -> bool:
        return self._has(name) and name in self._catalog


class Named:
    """The person, told which agent asks; the innermost is the one that wants it."""

    def __init__(self, person: Approver, name: str) -> None:
        self._person = person
        self._name = name

    async def ask(self, question: Question) -> Answer:
        """Put the question in the agent's name."""
        return await self._person.ask(question if question.agent else changed(question, agent=self._name))


class NarrowBox:
    """The equipment of one sub-agent. `turn_id` is its parent's turn: undoing that takes back what the agent did."""

    def __init__(  # noqa: PLR0913 - everything that a sub-agent shares or has of its own
        self,
        above: Equipment,
        errand: Errand,
        agent: Identity,
        *,
        judge: Narrowed,
        person: Approver,
        abort: Abort,
        folder: Path,
        turn_id: str | None,
        may_send: bool,
        halt: Callable[[str], None],
        asked: Callable[[str], None],
    ) -> None:
        self.settings = above.settings
        self.catalog = Selected(above.catalog, lambda name: has(name, errand, may_send=may_send))
        self.events = Watch(above.events, agent, above.catalog.find)
        self.workspace = Annex(above.workspace, session_dir=folder, own=OWN, emit=self.events.emit)
        self.policy = judge.beside(lambda: self.workspace.cwd, errand.definition.mode)
        self.hooks: Hooks = AgentHooks(
            above.hooks, self.workspace, self.policy, halt, agent_id=agent.id, agent_type=agent.type
        )
        self.person = Named(person, f"{agent.type} agent {agent.id}")
        self._turn_id = turn_id
        self.bench = self._bench(above.bench, abort, asked)

    def _bench(self, above: Bench, abort: Abort, asked: Callable[[str], None]) -> Bench:
        pool, theirs = self.workspace.resident(Pool), above.workspace.resident(Pool)
        pool.refresh, pool.starting, pool.settled = self.offering, theirs.starting, theirs.settled
        return changed(
            above,
            catalog=Called(self.catalog, pool),
            workspace=self.workspace,
            judge=self.policy,
            approver=Witnessed(HookedApprover(self.hooks, self.person), asked),
            events=self.events,
            spill=Spill(self.workspace.session_dir / "tool-results"),
            advisers=tuple(map(self._adviser, above.advisers)),
            reviewers=tuple(Review(self.hooks) if isinstance(one, Review) else one for one in above.reviewers),
            abort=abort,
        )

    def _adviser(self, adviser: Adviser) -> Adviser:
        """The same adviser, seeing what this agent sees."""
        if isinstance(adviser, Hooks):
            return self.hooks
        if isinstance(adviser, CleanTree):
            return CleanTree(self.policy.standing(), lambda: self.workspace.cwd)
        return adviser

    @property
    def leash(self) -> Leash:
        """What foreign code runs on: the session's own."""
        return self.bench.leash

    def turn(self) -> Turn:
        """Calls of the agent belong to the turn that sent it."""
        return Turn(self.bench, self._turn_id)

    async def offering(self, window: int | None = None) -> Offering:
        """What a request carries of this agent's tools."""
        return await offered(self.catalog, self.bench, self.settings, self.policy.mode, window)

    async def aclose(self) -> None:
        """Let go of what is this agent's own."""
        await self.workspace.aclose()


def has(name: str, errand: Errand, *, may_send: bool) -> bool:
    """Whether a sub-agent has a tool: its kind names it, the errand does not leave it out, and it is one for sub-agents."""
    if name in NEVER or (name in SENDERS and not may_send):
        return False
    definition = errand.definition
    lists = [wanted for wanted in (definition.tools, errand.tools) if wanted is not None]
    return all(_named(name, wanted) for wanted in lists) and not _named(name, definition.without)


def _named(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
