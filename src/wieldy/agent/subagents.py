"""Sending sub-agents: each gets a model, narrower tools and a transcript of its own, goes to work, and reports to its sender."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from wieldy.agent.conversation import Conversation, fold
from wieldy.agent.loop import AgentLoop, RequestOptions, RunEnd, RunLimits
from wieldy.agent.model_turn import Record
from wieldy.agent.request_prefix import RequestPrefix
from wieldy.agent.subagent_toolbox import StrictestPolicy, SubagentHooks, SubagentIdentity, SubagentToolbox
from wieldy.agent.toolbox_protocol import ToolboxProtocol
from wieldy.agent.transcript import NAME, VERSION, Transcript, cleaned, records
from wieldy.core.abort import Abort
from wieldy.core.decision import Approver
from wieldy.core.errors import SessionError, ToolFailure
from wieldy.core.events import Notice
from wieldy.core.logs import log
from wieldy.core.provider import Provider, ProviderFailure
from wieldy.core.threads import in_thread
from wieldy.core.tool import ToolContext
from wieldy.engine.supervise import Aborted
from wieldy.subagents.tasks import SubagentAccess, SubagentHandle, SubagentRegistry, SubagentReport, SubagentTask

if TYPE_CHECKING:
    from wieldy.subagents.definitions import AgentDefinition
    from wieldy.toolbox import Toolbox


MOST_TURNS = 200
FOLDER = "agents"
_ID = re.compile(r"agent_[0-9a-f]{8}")


class ParentContext(Struct, frozen=True):
    """What a sender stands on, and what those it sends share with it."""

    id: str
    box: ToolboxProtocol
    judge: StrictestPolicy
    person: Approver
    provider: Provider
    conversation: Conversation
    keep: Record
    loop: Callable[[], AgentLoop | None]
    model_of: Callable[[AgentDefinition], Provider | None]
    halt: Callable[[str], None]
    persist: bool = True
    depth: int = 0


class SubagentLimits(RunLimits, frozen=True):
    """The bounds of a sub-agent: its own turns, and what its sender may still spend."""

    above: Callable[[], tuple[str, str] | None] = lambda: None

    def passed(self, turns: int, spent: float) -> tuple[str, str] | None:
        """Which bound is reached, its own or one of those above."""
        return super().passed(turns, spent) or self.above()


class SubagentStarter:
    """Those that one agent, or the session itself, has sent."""

    def __init__(self, home: ParentContext) -> None:
        self.home = home
        self._roster = home.box.workspace.service(SubagentRegistry)
        self._unwritten: dict[str, Conversation] = {}
        if home.depth == 0 and (loop := home.loop()) is not None:
            loop.news = BackgroundReports(self._roster)

    async def send(self, task: SubagentTask, ctx: ToolContext) -> SubagentHandle:
        """Set a sub-agent to work for a call. Raises `ToolFailure` where it cannot be sent."""

        id = task.resumes or f"agent_{os.urandom(4).hex()}"
        told = await self._conversation(task, id) if task.resumes else Conversation()
        self._roster.make_room()
        # From here on nothing is waited for: whoever is sent at the same time finds this one at work.
        agent = SubagentIdentity(id, task.definition.name, ctx.call_id)
        if not self.home.persist:
            self._unwritten[agent.id] = told
        folder, depth = self._folder(agent.id), self.home.depth + 1
        may_start = depth < self.home.box.workspace.service(SubagentAccess).max_depth
        run = SubagentRun(self.home, task, agent, folder, told, ctx.message_id, self._bounds(task), may_start=may_start)
        access = run.box.workspace.service(SubagentAccess)
        access.depth, access.send = depth, SubagentStarter(run.home()).send if may_start else None
        sent = SubagentHandle(agent.id, task, run.abort, run.so_far)
        self._roster.start(sent, run.run(), ctx.abort)
        return sent

    def _bounds(self, task: SubagentTask) -> RunLimits:
        most = self.home.box.workspace.setting("agents.maxTurns", MOST_TURNS)
        loop = self.home.loop()
        above = loop.passed if loop is not None else lambda: None
        return SubagentLimits(turns=task.definition.turns or most, above=above)

    def _folder(self, agent_id: str) -> Path:
        return self.home.box.workspace.session_dir / FOLDER / agent_id

    async def _conversation(self, task: SubagentTask, id: str) -> Conversation:
        """What an earlier sub-agent had come to."""
        told = self._unwritten.get(id)
        if told is None:
            folder = self._folder(id)
            if not _ID.fullmatch(id) or not (folder / NAME).exists():
                raise ToolFailure(f"There is no agent `{id}` to go on with. Send a new one, with all it needs to know.")
            told = await in_thread(_told_in, folder)
        kind = told.header.get("agent")
        if kind != task.definition.name:
            raise ToolFailure(f"{id} is a `{kind}` agent: send `agent_type` as that, or a new agent.")
        sent = self._roster.find(id)
        if sent is not None and sent.running:
            raise ToolFailure(f"The agent {id} is still at work. Wait for it with `agent_id` alone, or stop it first.")
        return told


class BackgroundReports:
    """The news of a session: the ends of agents that were sent into the background."""

    def __init__(self, registry: SubagentRegistry) -> None:
        self._roster = registry

    def ready(self) -> list[str]:
        """The reports that have come in and were not read."""
        return [_news(sent) for sent in self._roster.untold()]

    async def next(self) -> str | None:
        """Wait for a report while any is to come: a run is not over while its agents are at work."""
        return "\n\n".join(map(_news, await self._roster.next_untold())) or None


def home_of(box: Toolbox, loop: AgentLoop, models: tuple[str | None, str | None], *, persist: bool) -> ParentContext:
    """What a session gives to those it sends. `models` is the name of its model, and the address it is asked for at."""
    from wieldy.agent.models import SubagentModels

    return ParentContext(
        box.id,
        box,
        StrictestPolicy(
            box.policy,
            lambda: box.workspace.cwd,
            given=None if box.services.judge is box.policy else box.services.judge,
        ),
        box.person,
        loop.provider,
        loop.conversation,
        loop.record,
        lambda: loop,
        SubagentModels(models, box).of,
        box.abort,
        persist=persist,
    )


def _told_in(folder: Path) -> Conversation:
    return fold(records(folder))


def _news(sent: SubagentHandle) -> str:
    sent.told = True
    return (
        f"The agent {sent.id}, which you had sent into the background, is over. It reports:\n\n{sent.so_far().told()}"
    )


class SubagentRun:
    """Works on one errand. Whatever it records that costs money is told to its sender at once."""

    def __init__(
        self,
        home: ParentContext,
        task: SubagentTask,
        agent: SubagentIdentity,
        folder: Path,
        told: Conversation,
        turn_id: str | None,
        bounds: RunLimits,
        *,
        may_start: bool,
    ) -> None:
        self.abort = Abort()
        self.conversation = told
        self._sender = home
        self._task = task
        self._agent = agent
        self._bounds = bounds
        self._provider, self._borrowed = self._model()
        self._transcript = Transcript(folder) if home.persist else None
        self._loop: AgentLoop | None = None
        self._started = time.monotonic()
        self._spent_before = told.cost
        self._end: RunEnd | None = None
        # One set for all of them: a call's id is good for one call of the whole session.
        home.conversation.ids.update(told.ids, (agent.call_id,))
        told.ids = home.conversation.ids
        self.box = SubagentToolbox(
            home.box,
            task,
            agent,
            judge=home.judge,
            person=home.person,
            abort=self.abort,
            folder=folder,
            turn_id=turn_id,
            may_start=may_start,
            halt=home.halt,
            asked=lambda call_id: self._record({"type": "asked", "id": call_id}),
        )

    def home(self) -> ParentContext:
        """What this agent gives to those it sends."""
        return replace(
            self._sender,
            id=self._agent.id,
            box=self.box,
            judge=self.box.policy,
            person=self.box.person,
            provider=self._provider,
            conversation=self.conversation,
            keep=self._record,
            loop=lambda: self._loop,
            depth=self._sender.depth + 1,
        )

    async def run(self) -> SubagentReport:
        """Work until there is nothing more to do, and report. Raises nothing but cancellation."""
        try:
            self._announce()
            self._end = await self._followed()
        except Aborted as aborted:
            self._end = RunEnd("interrupted", aborted.reason)
        except (ProviderFailure, SessionError) as failure:
            self._end = RunEnd("error", str(failure))
        except Exception as bug:
            log.error("sub-agent %s failed", self._agent.id, exc_info=bug)
            self._end = RunEnd("error", f"it crashed: {type(bug).__name__}: {bug}")
        finally:
            await self._closed()
        return self._reported()

    def so_far(self) -> SubagentReport:
        """The report as it stands: final once the agent is over."""
        end = self._end
        if end is None:
            end = RunEnd("interrupted", self.abort.reason) if self.abort.aborted else RunEnd("running", "it is at work")
        watch = self.box.events
        return SubagentReport(
            self._agent.id,
            self._agent.type,
            end.why,
            end.detail,
            end.text or watch.said,
            watch.turns,
            tuple(watch.steps),
            tuple(watch.denied),
            dict(watch.usage),
            self.conversation.cost - self._spent_before,
            time.monotonic() - self._started,
            str(self._transcript.path) if self._transcript is not None else None,
        )

    async def _followed(self) -> RunEnd:
        box, told, task = self.box, self.conversation, self._task
        outset = RequestPrefix(box, role=task.definition.prompt)
        await outset.prepare(self._provider, told.activated, self._activated)
        self._tell_missing()
        if not told.header:
            self._record(self._header())
        elif told.header.get("model") != self._provider.model:
            self._record({"type": "model", "model": self._provider.model})
        moments = SubagentHooks(box.hooks, str(self._transcript.path) if self._transcript else "")
        durable = self._transcript.flushed if self._transcript is not None else None
        given = (outset, moments, self._bounds, self._wishes())
        self._loop = AgentLoop(box, self._provider, told, self._record, *given, durable=durable)
        added = await moments.started("resume" if task.resumes else "startup", self._provider.model)
        content: list[dict[str, Any]] = [{"type": "text", "text": cleaned(task.prompt)}]
        return await self._loop.follow(content, added, self.abort)

    def _wishes(self) -> RequestOptions:
        """It may think as long as its sender; tools that a provider's server runs are the session's alone."""
        theirs = self._sender.loop()
        return RequestOptions(theirs.wishes.thinking_budget) if theirs is not None else RequestOptions()

    def _header(self) -> dict[str, Any]:
        return {
            "type": "session",
            "v": VERSION,
            "id": self._agent.id,
            "root": self.box.workspace.root,
            "model": self._provider.model,
            "at": time.time(),
            "agent": self._agent.type,
            "parent": self._sender.id,
            "parent_call": self._agent.call_id,
        }

    def _announce(self) -> None:
        """Let the sender's transcript name this one."""
        agent = self._agent
        where = str(self._transcript.path) if self._transcript is not None else None
        self._sender.keep(
            {"type": "agent", "id": agent.id, "agent": agent.type, "call": agent.call_id, "transcript": where}
        )

    def _reported(self) -> SubagentReport:
        report = self.so_far()
        told = {"turns": report.turns, "usage": dict(report.usage), "cost_of_agent": report.cost}
        try:
            self._sender.keep(
                {"type": "agent_ended", "id": report.agent_id, "call": self._agent.call_id, "why": report.why, **told}
            )
        except SessionError as failure:
            log.error("the end of sub-agent %s could not be recorded: %s", report.agent_id, failure)
        return report

    def _record(self, record: dict[str, Any]) -> None:
        if self._transcript is not None:
            self._transcript.append(record)
        self.conversation.take(record)
        if record.get("cost"):
            self._sender.keep({"type": "aside", "agent": self._agent.id, "cost": record["cost"]})

    def _activated(self, names: list[str]) -> None:
        self._record({"type": "activated", "tools": names})

    def _tell_missing(self) -> None:
        """Tell the person of tools that the agent's file names and nobody has."""
        known = self.box.catalog
        wanted = self._task.definition.tools or ()
        missing = [name for name in wanted if "*" not in name and name not in known]
        if missing and self._task.definition.origin != "built-in":
            text = f"The agent {self._agent.type} asks for tools that it cannot have: {', '.join(missing)}"
            self.box.events.emit(Notice(text=text))

    def _model(self) -> tuple[Provider, bool]:
        """The model that the agent talks to, and whether it is its sender's."""
        definition, theirs = self._task.definition, self._sender.provider
        if (part := getattr(theirs, "delegated", None)) is not None:
            return part(definition.name, self._task.prompt), False
        own = self._sender.model_of(definition)
        return (theirs, True) if own is None else (own, False)

    async def _closed(self) -> None:
        try:
            await self.box.aclose()
            if self._transcript is not None:
                await self._transcript.aclose()
            if not self._borrowed:
                await self._provider.aclose()
        except SessionError as failure:
            self._end = RunEnd("error", str(failure), self._end.text if self._end is not None else "")
