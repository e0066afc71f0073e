"""Questions to a person: one at a time, in the order of the calls."""

from __future__ import annotations

import asyncio

from wieldy.core.abort import Abort
from wieldy.engine.leash import Leash


class Turnstile:
    """A call may ask once every earlier call has been decided; it counts as undecided until its own answer is in."""

    def __init__(self, leash: Leash) -> None:
        self._leash = leash
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
        await self._leash.wait(self._waiting[order], abort)
