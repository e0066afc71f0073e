"""Subagents of a session: their tasks and reports, and the registry that finds, awaits and stops them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct, field

from wieldy.core.abort import Abort
from wieldy.core.errors import ToolFailure
from wieldy.core.events import Notice
from wieldy.core.text import plural
from wieldy.core.workspace import Workspace
from wieldy.tools.subagents.definitions import AgentDefinition

if TYPE_CHECKING:
    from wieldy.core.tool import ToolContext
    from wieldy.tools.subagents.isolation import CopyChanges

MAX_REMEMBERED = 100
REPORTED_STEPS = 20
STOP_SECONDS = 0.6  # a stopped agent has so long to end before its report is taken as it stands
CLOSE_SECONDS = 2.0
NO_MODEL = "it needs a model, and there is none here: subagents work inside a session (`wieldy`, `wieldy -p`)"

StartSubagent: TypeAlias = "Callable[[SubagentTask, ToolContext], Awaitable[SubagentHandle]]"


class SubagentTask(Struct, frozen=True):
    """A task for one subagent. `tools` narrows what its definition allows; `resumes` is the id of one to go on with.

    Nobody waits for the report of one in the `background`.
    """

    definition: AgentDefinition
    prompt: str
    description: str = ""
    tools: tuple[str, ...] | None = None
    resumes: str | None = None
    background: bool = False

    @property
    def title(self) -> str:
        return self.description or " ".join(self.prompt.split())[:60]


class SubagentReport(Struct, frozen=True):
    """How a subagent ended, or how far it is: `why` is a word, `text` the agent's last message.

    `changes` are those in its copy of the project, if it had one.
    """

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
    changes: CopyChanges | None = None

    @property
    def done(self) -> bool:
        return self.why == "done"

    @property
    def waiting(self) -> bool:
        """Whether the agent goes on when its questions are answered."""
        return self.why == "waiting"

    def as_text(self) -> str:
        """The report for the parent agent."""
        if self.done:
            parts = [self.text or f"(the {self.agent_type} agent ended without a word)"]
        else:
            parts = [f"The {self.agent_type} agent did not finish: {self.detail or self.why}."]
            parts += [f"Its last words:\n{self.text}"] if self.text else []
            parts += [self._steps_text()]
        if self.denied:
            parts.append("It was not permitted:\n" + "\n".join(f"- {line}" for line in self.denied))
        if self.changes is not None:
            parts.append(self.changes.as_text())
        hint = "" if self.why == "running" else "; `agent_id` with a `prompt` goes on with it"
        return "\n\n".join([*parts, f"[{self.summary()}{hint}]"])

    def summary(self) -> str:
        """One line: which agent, how much it did, what that cost."""
        counts = [plural(self.turns, "turn"), plural(len(self.steps), "tool use")]
        if tokens := sum(self.usage.values()):
            counts.append(f"{tokens:,} tokens")
        if self.cost:
            counts.append(f"${self.cost:.4f}")
        return f"{self.agent_type} agent {self.agent_id}: {', '.join(counts)}, {self.seconds:.1f} s"

    def as_dict(self) -> dict[str, Any]:
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
            **({} if self.changes is None else {"worktree": self.changes.as_dict()}),
        }

    def _steps_text(self) -> str:
        if not self.steps:
            return "It had called no tool."
        last = self.steps[-REPORTED_STEPS:]
        note = f"(the last {len(last)} of {len(self.steps)})\n" if len(last) < len(self.steps) else ""
        return f"What it had done until then:\n{note}" + "\n".join(f"- {step}" for step in last)


class SubagentHandle:
    """One subagent, running or ended. `current_report` gives its report as it stands now."""

    def __init__(self, id: str, task: SubagentTask, abort: Abort, current_report: Callable[[], SubagentReport]) -> None:
        self.id = id
        self.task = task
        self.abort = abort
        self.current_report = current_report
        self.background = task.background
        self.was_read = False
        self.future: asyncio.Future[SubagentReport] = asyncio.get_running_loop().create_future()

    @property
    def running(self) -> bool:
        return not self.future.done()

    async def report(self) -> SubagentReport:
        """Wait for the end. Cancelling the wait does not stop the agent."""
        await asyncio.wait((self.future,))
        self.was_read = True
        return self.future.result()

    async def stop(self, reason: str) -> SubagentReport:
        """Stop it and return its report."""
        self.abort.set(reason)
        await asyncio.wait((self.future,), timeout=STOP_SECONDS)
        self.was_read = True
        return self.future.result() if self.future.done() else self.current_report()


class SubagentAccess:
    """A workspace service: how its agent starts subagents. Without a model, `start` is None."""

    def __init__(self, workspace: Workspace, *, start: StartSubagent | None = None, depth: int = 0) -> None:
        self.start = start
        self.depth = depth
        self.max_depth = workspace.setting("agents.maxDepth")

    def refusal(self) -> str | None:
        """Why no subagent can be started here, or None."""
        if self.max_depth < 1:
            return "the setting `agents.maxDepth` is 0"
        return NO_MODEL if self.start is None else None


class SubagentRegistry:
    """A workspace service: the subagents of a session, nested ones too."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._handles: dict[str, SubagentHandle] = {}
        self._starting: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def all(self) -> tuple[SubagentHandle, ...]:
        """Every agent that is remembered, oldest first."""
        return tuple(self._handles.values())

    def find(self, id: str) -> SubagentHandle | None:
        return self._handles.get(id)

    @contextmanager
    def claim(self, id: str) -> Iterator[None]:
        """Hold a place for an agent until it is started. Raises `ToolFailure` where it is at work, or too many are."""
        at_work = [*(handle.id for handle in self._handles.values() if handle.running), *self._starting]
        if id in at_work:
            raise ToolFailure(
                f"The agent {id} is still at work.", "Wait for it with `agent_id` alone, or stop it first."
            )
        if len(at_work) >= self._workspace.setting("agents.maxRunning"):
            raise ToolFailure(
                f"{len(at_work)} agents are at work, which is the limit.",
                f"Wait for one with `agent_id`, or stop it with `stop`: {', '.join(at_work)}.",
            )
        self._starting.add(id)
        try:
            yield
        finally:
            self._starting.discard(id)

    def start(self, handle: SubagentHandle, work: Coroutine[Any, Any, SubagentReport], abort: Abort) -> None:
        """Run an agent until it ends or `abort` is set. Whatever happens, its handle gets a report."""
        self._handles[handle.id] = handle
        task = asyncio.get_running_loop().create_task(self._run(handle, work, abort))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._forget_oldest()

    def unread(self) -> list[SubagentHandle]:
        """Background agents that have ended and whose reports nobody has read."""
        ended = [each for each in self._handles.values() if each.background and not each.running and not each.was_read]
        return [handle for handle in ended if not handle.future.result().waiting]

    async def wait_unread(self) -> list[SubagentHandle]:
        """Like `unread`, but if there are none, wait for the first background agent that ends."""
        while not (unread := self.unread()):
            running = [handle.future for handle in self._handles.values() if handle.background and handle.running]
            if not running:
                break
            await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        return unread

    async def aclose(self) -> None:
        """Stop all agents."""
        for handle in self._handles.values():
            handle.abort.set("the session was closed")
        tasks = list(self._tasks)
        if tasks:
            await asyncio.wait(tasks, timeout=CLOSE_SECONDS)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, handle: SubagentHandle, work: Coroutine[Any, Any, SubagentReport], abort: Abort) -> None:
        key = abort.listen(lambda: handle.abort.set(abort.reason))
        try:
            report = await work
        except BaseException:
            handle.future.set_result(handle.current_report())
            raise
        finally:
            abort.forget(key)
        handle.future.set_result(report)
        if handle.background:
            how = "has ended" if report.done else f"did not finish ({report.detail or report.why})"
            how = "waits for answers" if report.waiting else how
            text = f"The {report.agent_type} agent {handle.id} {how}: {handle.task.title}"
            self._workspace.emit(Notice(text=text, data=report.as_dict()))

    def _forget_oldest(self) -> None:
        ended = [h.id for h in self._handles.values() if not h.running and (h.was_read or not h.background)]
        for id in ended[: max(len(self._handles) - MAX_REMEMBERED, 0)]:
            del self._handles[id]
