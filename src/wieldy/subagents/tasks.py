"""Sub-agents under way: who sends them, how they are found by id, waited for and stopped, and never more than agreed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct, field

from wieldy.core.abort import Abort
from wieldy.core.errors import ToolFailure
from wieldy.core.events import Notice
from wieldy.core.workspace import Workspace
from wieldy.subagents.definitions import AgentDefinition

if TYPE_CHECKING:
    from wieldy.core.tool import ToolContext


LAST_STEPS = 20


class SubagentTask(Struct, frozen=True):
    """A task for one sub-agent. `tools` narrows what its kind may use; `resumes` names an earlier one to go on with."""

    definition: AgentDefinition
    prompt: str
    description: str = ""
    tools: tuple[str, ...] | None = None
    resumes: str | None = None

    @property
    def title(self) -> str:
        """A few words for a person."""
        return self.description or " ".join(self.prompt.split())[:60]


class SubagentReport(Struct, frozen=True):
    """How an errand ended, or how far it is: `why` is a word, `text` the agent's last words."""

    agent_id: str
    agent_type: str
    why: str
    detail: str = ""
    text: str = ""
    turns: int = 0
    steps: tuple[str, ...] = ()
    denied: tuple[str, ...] = ()
    usage: Mapping[str, int] = field(default_factory=dict)
    cost: float = 0.0
    seconds: float = 0.0
    transcript: str | None = None

    @property
    def done(self) -> bool:
        """Whether the agent came to an end of its own."""
        return self.why == "done"

    def told(self) -> str:
        """What its parent reads."""
        if self.done:
            parts = [self.text or f"(the {self.agent_type} agent ended without a word)"]
        else:
            parts = [f"The {self.agent_type} agent did not finish: {self.detail or self.why}."]
            parts += [f"Its last words:\n{self.text}"] if self.text else []
            parts += [self._done_so_far()]
        if self.denied:
            parts.append("It was not permitted:\n" + "\n".join(f"- {line}" for line in self.denied))
        return "\n\n".join([*parts, f"[{self.summary()}]"])

    def summary(self) -> str:
        """One line: which agent, how much it did, what that cost, and how to go on with it."""
        again = "" if self.why == "running" else "; `agent_id` with a `prompt` goes on with it"
        return f"{self.account()}{again}"

    def account(self) -> str:
        """Which agent, how much it did, and what that cost."""
        spent = [_counted(self.turns, "turn"), _counted(len(self.steps), "tool use")]
        if tokens := sum(self.usage.values()):
            spent.append(f"{tokens:,} tokens")
        if self.cost:
            spent.append(f"${self.cost:.4f}")
        return f"{self.agent_type} agent {self.agent_id}: {', '.join(spent)}, {self.seconds:.1f} s"

    def data(self) -> dict[str, Any]:
        """The report for a program."""
        return {
            "agentId": self.agent_id,
            "agentType": self.agent_type,
            "status": self.why,
            "detail": self.detail,
            "result": self.text,
            "turns": self.turns,
            "toolUses": len(self.steps),
            "denied": list(self.denied),
            "usage": dict(self.usage),
            "costUSD": self.cost,
            "seconds": round(self.seconds, 3),
            "transcript": self.transcript,
        }

    def _done_so_far(self) -> str:
        if not self.steps:
            return "It had called no tool."
        shown = self.steps[-LAST_STEPS:]
        left_out = f"(the last {len(shown)} of {len(self.steps)})\n" if len(shown) < len(self.steps) else ""
        return f"What it had done until then:\n{left_out}" + "\n".join(f"- {step}" for step in shown)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


MOST_RUNNING = 20
MOST_DEPTH = 3
MOST_REMEMBERED = 100
LAST_WAIT = 2.0
NO_MODEL = "it needs a model, and there is none here: sub-agents work inside a session (`wieldy`, `wieldy -p`)"
GRACE = 0.6  # seconds a stopped agent has to wind up before what is known of it counts


class SubagentHandle:
    """One sub-agent, under way or over. `so_far` is its report as it stands now."""

    def __init__(self, id: str, task: SubagentTask, abort: Abort, so_far: Callable[[], SubagentReport]) -> None:
        self.id = id
        self.task = task
        self.abort = abort
        self.so_far = so_far
        self.background = False
        self.over: asyncio.Future[SubagentReport] = asyncio.get_running_loop().create_future()
        self.told = False

    @property
    def running(self) -> bool:
        """Whether it has still to report."""
        return not self.over.done()

    async def report(self) -> SubagentReport:
        """Wait for the end. Whoever stops waiting does not stop the agent."""
        await asyncio.wait((self.over,))
        self.told = True
        return self.over.result()

    async def stop(self, reason: str) -> SubagentReport:
        """Stop it, and say how far it had come."""
        self.abort.set(reason)
        await asyncio.wait((self.over,), timeout=GRACE)
        self.told = True
        return self.over.result() if self.over.done() else self.so_far()


StartSubagent: TypeAlias = "Callable[[SubagentTask, ToolContext], Awaitable[SubagentHandle]]"


class SubagentAccess:
    """How one agent sends others: `workspace.service(Delegation)`. Where there is no model `send` is None."""

    def __init__(self, workspace: Workspace) -> None:
        self.send: StartSubagent | None = None
        self.depth = 0
        self.max_depth = workspace.setting("agents.maxDepth", MOST_DEPTH)

    def refusal(self) -> str | None:
        """Why nobody can be sent from here, or None."""
        if self.max_depth < 1:
            return "the setting `agents.maxDepth` is 0"
        return NO_MODEL if self.send is None else None


class SubagentRegistry:
    """The sub-agents of a session, those of its agents included: `workspace.service(Roster)`."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._sent: dict[str, SubagentHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def all(self) -> tuple[SubagentHandle, ...]:
        """Every agent that is remembered, oldest first."""
        return tuple(self._sent.values())

    def find(self, id: str) -> SubagentHandle | None:
        """An agent by its id."""
        return self._sent.get(id)

    def make_room(self) -> None:
        """Refuse one more where too many run already. Raises `ToolFailure`."""
        most = self._workspace.setting("agents.maxRunning", MOST_RUNNING)
        running = [sent.id for sent in self._sent.values() if sent.running]
        if len(running) >= most:
            raise ToolFailure(
                f"{len(running)} agents are at work, which is the limit. Wait for one with `agent_id`, or stop it with "
                f"`stop`: {', '.join(running)}."
            )

    def start(self, sent: SubagentHandle, work: Coroutine[Any, Any, SubagentReport], until: Abort) -> None:
        """Set an agent to work. It stops when `until` is raised, and ends in a report whatever happens."""
        self._sent[sent.id] = sent
        task = asyncio.get_running_loop().create_task(self._attend(sent, work, until))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._forget_the_oldest()

    def untold(self) -> list[SubagentHandle]:
        """Agents in the background that have ended, and whose reports nobody has read."""
        return [sent for sent in self._sent.values() if sent.background and not sent.running and not sent.told]

    async def next_untold(self) -> list[SubagentHandle]:
        """The same, but where there are none waits for the first of those at work in the background, if there is any."""
        while not (ready := self.untold()):
            working = [sent.over for sent in self._sent.values() if sent.background and sent.running]
            if not working:
                break
            await asyncio.wait(working, return_when=asyncio.FIRST_COMPLETED)
        return ready

    async def aclose(self) -> None:
        """Stop all of them."""
        for sent in self._sent.values():
            sent.abort.set("the session was closed")
        tasks = list(self._tasks)
        if tasks:
            await asyncio.wait(tasks, timeout=LAST_WAIT)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _attend(self, sent: SubagentHandle, work: Coroutine[Any, Any, SubagentReport], until: Abort) -> None:
        key = until.listen(lambda: sent.abort.set(until.reason))
        try:
            report = await work
        except BaseException:
            sent.over.set_result(sent.so_far())
            raise
        finally:
            until.forget(key)
        sent.over.set_result(report)
        if sent.background:
            how = "has ended" if report.done else f"did not finish ({report.detail or report.why})"
            text = f"The {report.agent_type} agent {sent.id} {how}: {sent.task.title}"
            self._workspace.emit(Notice(text=text, data=report.data()))

    def _forget_the_oldest(self) -> None:
        over = [sent.id for sent in self._sent.values() if not sent.running and (sent.told or not sent.background)]
        for id in over[: max(len(self._sent) - MOST_REMEMBERED, 0)]:
            del self._sent[id]
