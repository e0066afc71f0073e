"""The events of one run, for its consumer."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any, Generic, Self, TypeVar

from wieldy.core.errors import SessionError
from wieldy.core.events import AnyEvent, RunEnded

T = TypeVar("T")


def final_text(ended: RunEnded) -> str:
    """The model's last text. Raises `SessionError` for a run that failed or was interrupted."""
    if ended.is_error or ended.why == "interrupted":
        raise SessionError(ended.detail or ended.why)
    return ended.text


def require_answer(ended: RunEnded) -> None:
    """Raise `SessionError` for a run that ended without an answer of the type that was asked for."""
    final_text(ended)
    if ended.why == "waiting":
        raise SessionError("there is no answer yet: see session.pending, then session.answer(replies, returns=…)")


class RunEvents:
    """Iterates over the events of a run. Leaving the iteration, or `aclose`, interrupts the run.

    Python closes an abandoned generator only at some later time. This object reports at once that nobody follows any more, so
    that the session can be used again.
    """

    def __init__(self, events: AsyncGenerator[AnyEvent, None], on_abandoned: Callable[[], None]) -> None:
        self._events = events
        self._on_abandoned = on_abandoned
        self._has_started = self._has_ended = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> AnyEvent:
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

    async def _end(self) -> RunEnded:
        async for event in self:
            if isinstance(event, RunEnded):
                return event
        raise SessionError("the run has ended already")


class EventStream(RunEvents):
    """The events of a run: iterate over them, or await the model's last text."""

    def __await__(self) -> Generator[Any, None, str]:
        """Run to the end and return the model's last text. Raises `SessionError` when the run ends otherwise."""
        return self._finish().__await__()

    async def _finish(self) -> str:
        return final_text(await self._end())


class TypedEventStream(RunEvents, Generic[T]):
    """The events of a run whose answer has a type: iterate over them, or await the answer."""

    def __init__(
        self, events: AsyncGenerator[AnyEvent, None], on_abandoned: Callable[[], None], value: Callable[[], T]
    ) -> None:
        super().__init__(events, on_abandoned)
        self._value = value

    def __await__(self) -> Generator[Any, None, T]:
        """Run to the end and return the answer. Raises `SessionError` where there is none, or questions are waiting."""
        return self._finish().__await__()

    async def _finish(self) -> T:
        require_answer(await self._end())
        return self._value()
