"""The events of one run, for its consumer."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import Self

from wieldy.core.events import Event


class EventStream:
    """Iterates over the events of a run. Leaving the iteration, or `aclose`, interrupts the run.

    Python closes an abandoned generator only at some later time. This object reports at once that nobody follows any more, so
    that the session can be used again.
    """

    def __init__(self, events: AsyncGenerator[Event, None], on_abandoned: Callable[[], None]) -> None:
        self._events = events
        self._on_abandoned = on_abandoned
        self._has_started = self._has_ended = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        self._has_started = True
        try:
            return await self._events.__anext__()
        except BaseException:
            self._has_ended = True
            raise

    async def aclose(self) -> None:
        """Interrupt the run if it is not over, and wait for its end."""
        self._has_ended = True
        await self._events.aclose()

    def __del__(self) -> None:
        if self._has_started and not self._has_ended:
            self._on_abandoned()
