"""Sending sub-agents: each gets a model, narrower tools and a transcript of its own, goes to work, and reports to its sender."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from wieldy.agents.errand import Errand
from wieldy.agents.roster import Delegation, Roster, Sent
from wieldy.core.decision import Approver
from wieldy.core.failure import ToolFailure
from wieldy.core.provider import Provider
from wieldy.core.record import record
from wieldy.core.threads import in_thread
from wieldy.core.tool import ToolContext
from wieldy.schema.pattern import pattern
from wieldy.session.attempt import Record
from wieldy.session.conversation import Conversation, fold
from wieldy.session.delegate_judge import Narrowed
from wieldy.session.delegate_watch import Identity
from wieldy.session.equipment import Equipment
from wieldy.session.loop import Bounds, Loop
from wieldy.session.transcript import NAME, records

if TYPE_CHECKING:
    from wieldy.agents.definition import Definition
    from wieldy.toolbox import Toolbox

MOST_TURNS = 200
FOLDER = "agents"
_ID = pattern(r"agent_[0-9a-f]{8}")


@record
class Home:
    """What a sender stands on, and what those it sends share with it."""

    id: str
    box: Equipment
    judge: Narrowed
    person: Approver
    provider: Provider
    conversation: Conversation
    keep: Record
    loop: Callable[[], Loop | None]
    model_of: Callable[[Definition], Provider | None]
    halt: Callable[[str], None]
    persist: bool = True
    depth: int = 0


@record
class Allowance(Bounds):
    """The bounds of a sub-agent: its own turns, and what its sender may still spend."""

    above: Callable[[], tuple[str, str] | None] = lambda: None

    def passed(self, turns: int, spent: float) -> tuple[str, str] | None:
        """Which bound is reached, its own or one of those above."""
        return super().passed(turns, spent) or self.above()


class Delegates:
    """Those that one agent, or the session itself, has sent."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self._roster = home.box.workspace.resident(Roster)
        self._unwritten: dict[str, Conversation] = {}
        if home.depth == 0 and (loop := home.loop()) is not None:
            loop.news = Ends(self._roster)

    async def send(self, errand: Errand, ctx: ToolContext) -> Sent:
        """Set a sub-agent to work for a call. Raises `ToolFailure` where it cannot be sent."""
        from wieldy.session.delegate_run import Deputy

        id = errand.resumes or f"agent_{os.urandom(4).hex()}"
        told = await self._conversation(errand, id) if errand.resumes else Conversation()
        self._roster.make_room()
        # From here on nothing is waited for: whoever is sent at the same time finds this one at work.
        agent = Identity(id, errand.definition.name, ctx.call_id)
        if not self.home.persist:
            self._unwritten[agent.id] = told
        folder, depth = self._folder(agent.id), self.home.depth + 1
        may_send = depth < self.home.box.workspace.resident(Delegation).most_depth
        deputy = Deputy(self.home, errand, agent, folder, told, ctx.message_id, self._bounds(errand), may_send=may_send)
        delegation = deputy.box.workspace.resident(Delegation)
        delegation.depth, delegation.send = depth, Delegates(deputy.home()).send if may_send else None
        sent = Sent(agent.id, errand, deputy.abort, deputy.so_far)
        self._roster.start(sent, deputy.run(), ctx.abort)
        return sent

    def _bounds(self, errand: Errand) -> Bounds:
        most = self.home.box.workspace.setting("agents.maxTurns", MOST_TURNS)
        loop = self.home.loop()
        above = loop.passed if loop is not None else lambda: None
        return Allowance(turns=errand.definition.turns or most, above=above)

    def _folder(self, agent_id: str) -> Path:
        return self.home.box.workspace.session_dir / FOLDER / agent_id

    async def _conversation(self, errand: Errand, id: str) -> Conversation:
        """What an earlier sub-agent had come to."""
        told = self._unwritten.get(id)
        if told is None:
            folder = self._folder(id)
            if not _ID.fullmatch(id) or not (folder / NAME).exists():
                raise ToolFailure(f"There is no agent `{id}` to go on with. Send a new one, with all it needs to know.")
            told = await in_thread(_told_in, folder)
        kind = told.header.get("agent")
        if kind != errand.definition.name:
            raise ToolFailure(f"{id} is a `{kind}` agent: send `agent_type` as that, or a new agent.")
        sent = self._roster.find(id)
        if sent is not None and sent.running:
            raise ToolFailure(f"The agent {id} is still at work. Wait for it with `agent_id` alone, or stop it first.")
        return told


class Ends:
    """The news of a session: the ends of agents that were sent into the background."""

    def __init__(self, roster: Roster) -> None:
        self._roster = roster

    def ready(self) -> list[str]:
        """The reports that have come in and were not read."""
        return [_news(sent) for sent in self._roster.untold()]

    async def next(self) -> str | None:
        """Wait for a report while any is to come: a run is not over while its agents are at work."""
        return "\n\n".join(map(_news, await self._roster.next_untold())) or None


def home_of(box: Toolbox, loop: Loop, models: tuple[str | None, str | None], *, persist: bool) -> Home:
    """What a session gives to those it sends. `models` is the name of its model, and the address it is asked for at."""
    from wieldy.session.delegate_model import Models

    return Home(
        box.id,
        box,
        Narrowed(
            box.policy, lambda: box.workspace.cwd, given=None if box.bench.judge is box.policy else box.bench.judge
        ),
        box.person,
        loop.provider,
        loop.conversation,
        loop.record,
        lambda: loop,
        Models(models, box).of,
        box.abort,
        persist=persist,
    )


def _told_in(folder: Path) -> Conversation:
    return fold(records(folder))


def _news(sent: Sent) -> str:
    sent.told = True
    return (
        f"The agent {sent.id}, which you had sent into the background, is over. It reports:\n\n{sent.so_far().told()}"
    )
