"""One sub-agent at work: a loop like a session's, from its task to its report, however that ends."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from wieldy.agents.errand import Errand, Report
from wieldy.core.abort import Abort
from wieldy.core.event import Notice
from wieldy.core.failure import SessionError
from wieldy.core.log import log
from wieldy.core.provider import Provider, ProviderFailure
from wieldy.core.record import changed
from wieldy.engine.leash import Aborted
from wieldy.session.conversation import Conversation
from wieldy.session.delegate import Home
from wieldy.session.delegate_box import NarrowBox
from wieldy.session.delegate_moments import AgentMoments
from wieldy.session.delegate_watch import Identity
from wieldy.session.loop import Bounds, End, Loop, Wishes
from wieldy.session.outset import Outset
from wieldy.session.transcript import VERSION, Transcript, cleaned


class Deputy:
    """Works on one errand. Whatever it records that costs money is told to its sender at once."""

    def __init__(
        self,
        home: Home,
        errand: Errand,
        agent: Identity,
        folder: Path,
        told: Conversation,
        turn_id: str | None,
        bounds: Bounds,
        *,
        may_send: bool,
    ) -> None:
        self.abort = Abort()
        self.conversation = told
        self._sender = home
        self._errand = errand
        self._agent = agent
        self._bounds = bounds
        self._provider, self._borrowed = self._model()
        self._transcript = Transcript(folder) if home.persist else None
        self._loop: Loop | None = None
        self._started = time.monotonic()
        self._spent_before = told.cost
        self._end: End | None = None
        # One set for all of them: a call's id is good for one call of the whole session.
        home.conversation.ids.update(told.ids, (agent.call_id,))
        told.ids = home.conversation.ids
        self.box = NarrowBox(
            home.box,
            errand,
            agent,
            judge=home.judge,
            person=home.person,
            abort=self.abort,
            folder=folder,
            turn_id=turn_id,
            may_send=may_send,
            halt=home.halt,
            asked=lambda call_id: self._record({"type": "asked", "id": call_id}),
        )

    def home(self) -> Home:
        """What this agent gives to those it sends."""
        return changed(
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

    async def run(self) -> Report:
        """Work until there is nothing more to do, and report. Raises nothing but cancellation."""
        try:
            self._announce()
            self._end = await self._followed()
        except Aborted as aborted:
            self._end = End("interrupted", aborted.reason)
        except (ProviderFailure, SessionError) as failure:
            self._end = End("error", str(failure))
        except Exception as bug:
            log.error("sub-agent %s failed", self._agent.id, exc_info=bug)
            self._end = End("error", f"it crashed: {type(bug).__name__}: {bug}")
        finally:
            await self._closed()
        return self._reported()

    def so_far(self) -> Report:
        """The report as it stands: final once the agent is over."""
        end = self._end
        if end is None:
            end = End("interrupted", self.abort.reason) if self.abort.aborted else End("running", "it is at work")
        watch = self.box.events
        return Report(
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

    async def _followed(self) -> End:
        box, told, errand = self.box, self.conversation, self._errand
        outset = Outset(box, role=errand.definition.prompt)
        await outset.prepare(self._provider, told.activated, self._activated)
        self._tell_missing()
        if not told.header:
            self._record(self._header())
        elif told.header.get("model") != self._provider.model:
            self._record({"type": "model", "model": self._provider.model})
        moments = AgentMoments(box.hooks, str(self._transcript.path) if self._transcript else "")
        durable = self._transcript.flushed if self._transcript is not None else None
        given = (outset, moments, self._bounds, self._wishes())
        self._loop = Loop(box, self._provider, told, self._record, *given, durable=durable)
        added = await moments.started("resume" if errand.resumes else "startup", self._provider.model)
        task: list[dict[str, Any]] = [{"type": "text", "text": cleaned(errand.prompt)}]
        return await self._loop.follow(task, added, self.abort)

    def _wishes(self) -> Wishes:
        """It may think as long as its sender; tools that a provider's server runs are the session's alone."""
        theirs = self._sender.loop()
        return Wishes(theirs.wishes.thinking_budget) if theirs is not None else Wishes()

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

    def _reported(self) -> Report:
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
        wanted = self._errand.definition.tools or ()
        missing = [name for name in wanted if "*" not in name and name not in known]
        if missing and self._errand.definition.origin != "built-in":
            text = f"The agent {self._agent.type} asks for tools that it cannot have: {', '.join(missing)}"
            self.box.events.emit(Notice(text=text))

    def _model(self) -> tuple[Provider, bool]:
        """The model that the agent talks to, and whether it is its sender's."""
        definition, theirs = self._errand.definition, self._sender.provider
        if (part := getattr(theirs, "delegated", None)) is not None:
            return part(definition.name, self._errand.prompt), False
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
            self._end = End("error", str(failure), self._end.text if self._end is not None else "")
