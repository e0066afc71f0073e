"""The order of calls: a call waits only for earlier calls whose effects clash with its own.

Tickets are numbered in order of arrival. Calls that do not clash run side by side, up to a limit. A call made from inside
another (a nested call) waits only for earlier calls of the same caller, and not for the limit: waiting for anything further
out, which may be waiting for its caller, would deadlock. The calls of subagents that work side by side also wait for each
other, as the last step before they run, where nothing waits for them that they could wait for.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from contextvars import ContextVar, Token
from typing import Self

from wieldy.core.effects import Effects, InTurn, changes_anything, clash, delegates
from wieldy.core.supervise import Abort, Supervisor

_current_ticket: ContextVar[Ticket | None] = ContextVar("wieldy_ticket", default=None)


class Ticket:
    """One call's place in the queue; leaving the `with` block gives it up."""

    __slots__ = (
        "_queue",
        "admitted",
        "admitted_future",
        "alone",
        "blockers",
        "caller",
        "context_token",
        "delegates",
        "effects",
        "followers",
        "has_slot",
        "in_turn",
        "order",
        "writes",
    )  # fmt: skip

    def __init__(self, queue: Queue, number: int, caller: Ticket | None) -> None:
        self._queue = queue
        self.order: tuple[int, ...] = (number,) if caller is None else (*caller.order, number)
        self.caller = caller
        self.effects: Effects = ()
        self.alone = False
        self.writes = False
        self.delegates = False
        self.in_turn: tuple[str, ...] = ()
        self.admitted = False
        self.blockers = 0
        self.followers: list[Ticket] = []
        self.admitted_future: asyncio.Future[None] | None = None
        self.has_slot = False
        self.context_token: Token[Ticket | None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._queue.leave(self)

    @property
    def exclusive(self) -> bool:
        return self.alone or self.writes

    def set_effects(self, effects: Effects, safe: bool | None) -> None:
        """State what the call touches; `safe` overrides whether it may run beside others."""
        self.effects = effects
        self.alone = any(effect.opaque for effect in effects) if safe is None else not safe
        self.in_turn = tuple([effect.name for effect in effects if isinstance(effect, InTurn)])
        self.delegates = safe is None and delegates(effects)
        self.writes = safe is not True and any(map(changes_anything, effects))

    def clashes(self, other: Ticket) -> bool:
        if self.alone or other.alone:
            return not (self.delegates and other.delegates)
        return (self.writes or other.writes) and clash(self.effects, other.effects)


class Queue:
    """Orders the calls of one toolbox."""

    def __init__(self, limit: int, supervisor: Supervisor) -> None:
        self.limit = limit
        self.approval_order = ApprovalOrder(supervisor)
        self._supervisor = supervisor
        self._last_number = 0
        self._claimed: dict[Ticket, None] = {}
        self._exclusive_count = 0
        self._agent_calls: dict[Ticket, None] = {}
        self._last_in_turn: dict[tuple[Ticket | None, str], Ticket] = {}
        self._running = 0
        self._waiting_for_slot: deque[asyncio.Future[None]] = deque()

    @property
    def may_change(self) -> bool:
        """Whether there are calls that change something."""
        return self._exclusive_count > 0

    def take_ticket(self) -> Ticket:
        """Take the next ticket, to be used in a `with` block."""
        self._last_number += 1
        ticket = Ticket(self, self._last_number, _current_ticket.get())
        self.approval_order.enter(ticket.order)
        return ticket

    def claim(self, ticket: Ticket, effects: Effects, safe: bool | None) -> bool:
        """State what a call touches; true when no earlier call clashes, else it must `wait_admitted`.

        Must be reached without an await after `take_ticket`, so that the order is that of arrival.
        """
        ticket.set_effects(effects, safe)
        if ticket.exclusive or self._exclusive_count:
            for other in self._clashing(ticket):
                _block(ticket, by=other)
        if ticket.in_turn:
            self._take_turn(ticket)
        self._claimed[ticket] = None
        self._exclusive_count += ticket.exclusive
        ticket.admitted = not ticket.blockers
        return ticket.admitted

    async def wait_admitted(self, ticket: Ticket, abort: Abort) -> None:
        """Wait until no earlier call clashes."""
        if ticket.blockers:
            ticket.admitted_future = asyncio.get_running_loop().create_future()
            await self._supervisor.wait(ticket.admitted_future, abort)
        ticket.admitted = True

    async def readmit(self, ticket: Ticket, effects: Effects, safe: bool | None, abort: Abort) -> None:
        """The call changed after it was admitted: wait for running calls that clash with what it has become."""
        self._exclusive_count -= ticket.exclusive
        self._end_turn(ticket)
        ticket.set_effects(effects, safe)
        self._exclusive_count += ticket.exclusive
        ticket.admitted = False
        for other in self._clashing(ticket):
            if other.admitted:
                _block(ticket, by=other)
            elif not (_waits_for(ticket, other) or _waits_for(other, ticket)):
                first, second = sorted((ticket, other), key=lambda one: one.order)
                _block(second, by=first)
        self._take_turn(ticket)
        await self.wait_admitted(ticket, abort)

    async def start(self, ticket: Ticket, abort: Abort) -> None:
        """Wait for one of the limited slots. From here on, calls made in this context have this one as their caller."""
        if ticket.caller is None:
            if self._running < self.limit and not self._waiting_for_slot:
                self._running += 1
            else:
                await self._wait_for_slot(abort)
            ticket.has_slot = True
        elif ticket.caller.delegates and not ticket.delegates:
            await self._wait_for_other_agents(ticket, abort)
        ticket.context_token = _current_ticket.set(ticket)

    def pause(self, ticket: Ticket) -> None:
        """The call does not run yet after all: give its slot back."""
        if ticket.context_token is not None:
            _current_ticket.reset(ticket.context_token)
            ticket.context_token = None
        if ticket.has_slot:
            self._release_slot()
            ticket.has_slot = False
        if ticket in self._agent_calls:
            del self._agent_calls[ticket]
            _release([follower for follower in ticket.followers if follower.caller is not ticket.caller])
            ticket.followers = [follower for follower in ticket.followers if follower.caller is ticket.caller]

    def leave(self, ticket: Ticket) -> None:
        """The call is over: admit the calls that waited only for it."""
        self.pause(ticket)
        self.approval_order.leave(ticket.order)
        if ticket not in self._claimed:
            return
        del self._claimed[ticket]
        self._end_turn(ticket)
        self._exclusive_count -= ticket.exclusive
        _release(ticket.followers)

    def _take_turn(self, ticket: Ticket) -> None:
        """Wait for the last call that names the same, and be the last."""
        for name in ticket.in_turn:
            last = self._last_in_turn.get((ticket.caller, name))
            if last is not None and last is not ticket and not _waits_for(last, ticket):
                _block(ticket, by=last)
            if last is None or last.order < ticket.order:
                self._last_in_turn[ticket.caller, name] = ticket

    def _end_turn(self, ticket: Ticket) -> None:
        for name in ticket.in_turn:
            if self._last_in_turn.get((ticket.caller, name)) is ticket:
                del self._last_in_turn[ticket.caller, name]

    async def _wait_for_other_agents(self, ticket: Ticket, abort: Abort) -> None:
        """Wait for the calls of other subagents that clash and came here first. Those run, or wait for others before them."""
        for other in self._agent_calls:
            if other.caller is not ticket.caller and other.clashes(ticket):
                _block(ticket, by=other)
        self._agent_calls[ticket] = None
        await self.wait_admitted(ticket, abort)

    def _clashing(self, ticket: Ticket) -> Iterator[Ticket]:
        for other in self._claimed:
            if other is not ticket and other.caller is ticket.caller and other.clashes(ticket):
                yield other

    async def _wait_for_slot(self, abort: Abort) -> None:
        slot: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting_for_slot.append(slot)
        try:
            await self._supervisor.wait(slot, abort)
        except BaseException:
            if slot.done() and not slot.cancelled():
                self._release_slot()
            raise

    def _release_slot(self) -> None:
        """Hand the slot to the next call that waits for one."""
        while self._waiting_for_slot:
            slot = self._waiting_for_slot.popleft()
            if not slot.done():
                slot.set_result(None)
                return
        self._running -= 1


class ApprovalOrder:
    """A call may ask the person once every earlier call has been decided; it counts as undecided until it has its answer."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._undecided: set[tuple[int, ...]] = set()
        self._waiting: dict[tuple[int, ...], asyncio.Future[None]] = {}

    def enter(self, order: tuple[int, ...]) -> None:
        self._undecided.add(order)

    def leave(self, order: tuple[int, ...]) -> None:
        """The call is decided, or over. May be called twice."""
        self._undecided.discard(order)
        if not self._waiting:
            return
        self._waiting.pop(order, None)
        if self._waiting and (first := self._waiting.get(min(self._undecided))) is not None and not first.done():
            first.set_result(None)

    async def wait_turn(self, order: tuple[int, ...], abort: Abort) -> bool:
        """Wait until it is this call's turn to ask, and return whether others asked before; it is undecided until then."""
        self._undecided.add(order)
        if min(self._undecided) == order:
            return False
        self._waiting[order] = asyncio.get_running_loop().create_future()
        await self._supervisor.wait(self._waiting[order], abort)
        return True


def _block(ticket: Ticket, *, by: Ticket) -> None:
    by.followers.append(ticket)
    ticket.blockers += 1


def _release(followers: list[Ticket]) -> None:
    """A call is over: admit the calls that waited only for it."""
    for follower in followers:
        follower.blockers -= 1
        future = follower.admitted_future
        if not follower.blockers and future is not None and not future.done():
            # Admitted now, not when its task resumes: a call that is rewritten in between must wait for it.
            follower.admitted = True
            future.set_result(None)


def _waits_for(ticket: Ticket, other: Ticket) -> bool:
    """Whether a call waits for another, directly or through others."""
    seen, pending = {other}, [other]
    while pending:
        for follower in pending.pop().followers:
            if follower is ticket:
                return True
            if follower not in seen:
                seen.add(follower)
                pending.append(follower)
    return False
