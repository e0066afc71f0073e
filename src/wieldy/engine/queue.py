"""Who goes first: a call waits only for earlier calls whose effects clash with its own.

Places are taken in order of arrival. Those that do not clash run side by side, up to a limit. A call made from inside another
waits only for calls made there before it, and not for the limit: waiting for anything further out, which may be waiting for
its caller, could never end.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from contextvars import ContextVar, Token
from typing import Self

from wieldy.core.abort import Abort
from wieldy.core.effects import Effects, Writes, clash, is_opaque
from wieldy.engine.supervise import Supervisor


class ApprovalOrder:
    """A call may ask once every earlier call has been decided; it counts as undecided until its own answer is in."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._undecided: set[tuple[int, ...]] = set()
        self._waiting: dict[tuple[int, ...], asyncio.Future[None]] = {}

    def enter(self, order: tuple[int, ...]) -> None:
        """A call arrived."""
        self._undecided.add(order)

    def leave(self, order: tuple[int, ...]) -> None:
        """The call is decided, or over. Saying so twice is fine."""
        self._undecided.discard(order)
        if not self._waiting:
            return
        self._waiting.pop(order, None)
        if self._waiting and (first := self._waiting.get(min(self._undecided))) is not None and not first.done():
            first.set_result(None)

    async def turn(self, order: tuple[int, ...], abort: Abort) -> None:
        """Wait until it is this call's turn to ask; one that was decided before is undecided again."""
        self._undecided.add(order)
        if min(self._undecided) == order:
            return
        self._waiting[order] = asyncio.get_running_loop().create_future()
        await self._supervisor.wait(self._waiting[order], abort)


_inside: ContextVar[Place | None] = ContextVar("wieldy_place", default=None)


class Place:
    """One call's place in the queue."""

    __slots__ = (
        "_queue", "admitted", "alone", "blockers", "caller", "effects",
        "followers", "inside", "order", "running", "turn", "writes",
    )  # fmt: skip

    def __init__(self, queue: Queue, ticket: int, caller: Place | None) -> None:
        self._queue = queue
        self.order: tuple[int, ...] = (ticket,) if caller is None else (*caller.order, ticket)
        self.caller = caller
        self.inside: Token[Place | None] | None = None
        self.running = False
        self.effects: Effects | None = None
        self.alone = False
        self.writes = False
        self.admitted = False
        self.blockers = 0
        self.followers: list[Place] = []
        self.turn: asyncio.Future[None] | None = None

    def __enter__(self) -> Self:
        self._queue.approval_order.enter(self.order)
        return self

    def __exit__(self, *_: object) -> None:
        self._queue.leave(self)

    def claim(self, effects: Effects, safe: bool | None) -> None:
        """State what the call touches; `safe` overrides what follows from it."""
        self.effects = effects
        if not effects and safe is None:
            self.alone = self.writes = False
            return
        self.alone = any(map(is_opaque, effects)) if safe is None else not safe
        self.writes = safe is not True and bool(effects) and any(isinstance(effect, Writes) for effect in effects)

    def clashes(self, other: Place) -> bool:
        """Whether the two must not overlap."""
        if self.alone or other.alone:
            return True
        if not (self.writes or other.writes) or self.effects is None or other.effects is None:
            return False
        return clash(self.effects, other.effects)


class Queue:
    """The order of one toolbox's calls."""

    def __init__(self, limit: int, supervisor: Supervisor) -> None:
        self.limit = limit
        self.approval_order = ApprovalOrder(supervisor)
        self._supervisor = supervisor
        self._tickets = 0
        self._claimed: dict[Place, None] = {}
        self._exclusive = 0
        self._running = 0
        self._slots: deque[asyncio.Future[None]] = deque()

    def place(self) -> Place:
        """The next place, to be used in a `with` block: it is given up at the end, whatever happened."""
        self._tickets += 1
        return Place(self, self._tickets, _inside.get())

    def enter(self, place: Place, effects: Effects, safe: bool | None) -> bool:
        """State what a call touches; true when no earlier call clashes, else it must wait to be `admitted`.

        Must be reached without an await after `place`, so that order is arrival.
        """
        place.claim(effects, safe)
        exclusive = place.alone or place.writes
        if exclusive or self._exclusive:
            for other in self._clashing(place):
                _let_wait(place, other)
        self._claimed[place] = None
        self._exclusive += exclusive
        place.admitted = not place.blockers
        return place.admitted

    async def admitted(self, place: Place, abort: Abort) -> None:
        """Wait until no earlier call clashes."""
        if place.blockers:
            place.turn = asyncio.get_running_loop().create_future()
            await self._supervisor.wait(place.turn, abort)
        place.admitted = True

    async def readmit(self, place: Place, effects: Effects, safe: bool | None, abort: Abort) -> None:
        """The call changed after it was admitted: wait for whoever is running and clashes with what it has become."""
        self._exclusive -= place.alone or place.writes
        place.claim(effects, safe)
        self._exclusive += place.alone or place.writes
        place.admitted = False
        for other in self._clashing(place):
            if other.admitted:
                _let_wait(place, other)
            elif not (_waits_for(place, other) or _waits_for(other, place)):
                first, second = sorted((place, other), key=lambda one: one.order)
                _let_wait(second, first)
        await self.admitted(place, abort)

    def starts(self, place: Place) -> bool:
        """Be one of the limited number that run at once, if there is room; else the call must wait to `start`.

        Calls made from here on have this one as their caller.
        """
        if place.caller is None:
            if self._running >= self.limit or self._slots:
                return False
            self._running += 1
            place.running = True
        place.inside = _inside.set(place)
        return True

    async def start(self, place: Place, abort: Abort) -> None:
        """Wait until there is room to run."""
        if not self.starts(place):
            await self._take_slot(abort)
            place.running = True
            place.inside = _inside.set(place)

    def leave(self, place: Place) -> None:
        """The call is over: whoever waited for it may go."""
        if place.inside is not None:
            _inside.reset(place.inside)
        if place.running:
            if self._slots:
                self._give_slot()
            else:
                self._running -= 1
        self.approval_order.leave(place.order)
        self._release(place)

    def _clashing(self, place: Place) -> Iterator[Place]:
        for other in self._claimed:
            if other is not place and other.caller is place.caller and other.clashes(place):
                yield other

    def _release(self, place: Place) -> None:
        if place not in self._claimed:
            return
        del self._claimed[place]
        self._exclusive -= place.alone or place.writes
        for follower in place.followers:
            follower.blockers -= 1
            if not follower.blockers and follower.turn is not None and not follower.turn.done():
                # Admitted as of now, not when its task gets to it: one that is rewritten in between must wait for it.
                follower.admitted = True
                follower.turn.set_result(None)

    async def _take_slot(self, abort: Abort) -> None:
        free: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._slots.append(free)
        try:
            await self._supervisor.wait(free, abort)
        except BaseException:
            if free.done() and not free.cancelled():
                self._give_slot()
            raise

    def _give_slot(self) -> None:
        while self._slots:
            free = self._slots.popleft()
            if not free.done():
                free.set_result(None)
                return
        self._running -= 1


def _let_wait(place: Place, other: Place) -> None:
    other.followers.append(place)
    place.blockers += 1


def _waits_for(place: Place, other: Place) -> bool:
    """Whether a call waits for another, directly or through others."""
    seen, open_ends = {other}, [other]
    while open_ends:
        for follower in open_ends.pop().followers:
            if follower is place:
                return True
            if follower not in seen:
                seen.add(follower)
                open_ends.append(follower)
    return False
