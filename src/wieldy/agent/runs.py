"""Runs the prompts of a session, one at a time, each in a task that ends with `RunEnded`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

from wieldy.agent.event_stream import EventStream, TypedEventStream
from wieldy.agent.loop import AgentLoop, RunEnd
from wieldy.agent.prompts import Prompt, SteeringQueue, prompt_text
from wieldy.agent.transcript import Transcript
from wieldy.core.abort import Abort
from wieldy.core.errors import ClosedError, SessionError
from wieldy.core.events import AnyEvent, RunEnded
from wieldy.core.provider import ProviderFailure, Usage
from wieldy.core.supervise import Aborted
from wieldy.engine.toolbox import Toolbox

Work: TypeAlias = Callable[[AgentLoop, tuple[str, ...], Abort], Awaitable[RunEnd]]


def run_end(error: Exception) -> RunEnd:
    """How a run ended that raised this."""
    match error:
        case Aborted():
            return RunEnd("interrupted", error.reason)
        case ProviderFailure():
            return RunEnd("error", str(error), failure=error.kind)
        case SessionError():
            return RunEnd("error", str(error))
        case _:
            return RunEnd("error", f"{type(error).__name__}: {error}")


def _used(usage: Mapping[str, int], before: Mapping[str, int]) -> Usage:
    counts = {name: usage.get(name, 0) - before.get(name, 0) for name in Usage.__struct_fields__}
    return Usage(**counts)


class SessionRuns:
    """At most one run of a session; `last_value` is the typed answer of the last one.

    `prepare` reads the transcript and returns the loop, with the context of start hooks.
    """

    def __init__(
        self,
        box: Toolbox,
        transcript: Transcript,
        prepare: Callable[[], Awaitable[tuple[AgentLoop, tuple[str, ...]]]],
    ) -> None:
        self._box = box
        self._transcript = transcript
        self._prepare = prepare
        self._steering = SteeringQueue()
        self._task: asyncio.Task[RunEnded] | None = None
        self._is_abandoned = False
        self._idle = asyncio.Event()
        self._idle.set()
        self.is_closed = False
        self.last_value: Any = None

    @property
    def running(self) -> bool:
        return self._task is not None and not self._task.done()

    async def aclose(self) -> None:
        """Stop the run, and wait for its end."""
        self.is_closed = True
        self._box.abort("the session was closed")
        if self._task is not None and not self._task.done():
            await asyncio.wait((self._task,))

    @property
    def steering(self) -> SteeringQueue:
        return self._steering

    def steer(self, prompt: Prompt) -> None:
        """Say something to the model while it works. Raises `SessionError` where nothing runs."""
        self.require_open()
        if not self.running:
            raise SessionError("nothing is running; send a prompt with run or ask")
        self._steering.add(prompt)

    def require_open(self) -> None:
        """Raise `ClosedError` after the session was closed."""
        if self.is_closed:
            raise ClosedError("this session is closed; make another with resume=ID to go on")

    def stream(self, work: Work, *, stream_deltas: bool) -> EventStream:
        """The events of some work, which begins with the iteration."""
        self.require_open()
        return EventStream(self._events(work, stream_deltas), self._abandon)

    def typed_stream(self, work: Work, *, stream_deltas: bool) -> TypedEventStream[Any]:
        """The events of some work whose answer has a type, which begins with the iteration."""
        self.require_open()
        return TypedEventStream(self._events(work, stream_deltas), self._abandon, lambda: self.last_value)

    async def finish(self, work: Work) -> RunEnded:
        """Run some work to its end."""
        async with self._started(work) as task:
            return await asyncio.shield(task)

    async def _events(self, work: Work, stream_deltas: bool) -> AsyncGenerator[AnyEvent, None]:
        await self._wait_until_free()  # before the events of another run could be heard
        async with self._box.events.stream(stream_deltas=stream_deltas) as events, self._started(work) as task:
            async for event in events:
                yield event
                if isinstance(event, RunEnded):
                    break
            await task

    def _abandon(self) -> None:
        self._is_abandoned = True
        if self._task is not None and not self._task.done():
            self._box.abort()

    async def _wait_until_free(self) -> None:
        """Wait for the end of a run that nobody follows any more. Raises `SessionError` where somebody does."""
        self.require_open()
        while not self._idle.is_set():
            if not self._is_abandoned:
                raise SessionError("this session is already running; wait for it, or start another")
            await self._idle.wait()

    @asynccontextmanager
    async def _started(self, work: Work) -> AsyncIterator[asyncio.Task[RunEnded]]:
        """Run in a task; abort and await it when its consumer goes away."""
        await self._wait_until_free()
        self._is_abandoned = False
        self._idle.clear()
        task = self._task = asyncio.get_running_loop().create_task(self._run(work, self._box.services.abort))
        try:
            yield task
        finally:
            try:
                if not task.done():
                    self._box.abort()
                    await asyncio.wait((task,))
            finally:
                self._idle.set()

    async def _run(self, work: Work, abort: Abort) -> RunEnded:
        started = time.monotonic()
        turns_before, usage_before = self._transcript.conversation.turns, dict(self._transcript.conversation.usage)
        end = RunEnd("error")
        loop: AgentLoop | None = None
        try:
            loop, context = await self._prepare()
            turns_before, usage_before = self._transcript.conversation.turns, dict(self._transcript.conversation.usage)
            end = await work(loop, context, abort)
        except (Aborted, ProviderFailure, SessionError) as error:
            end = run_end(error)
        except Exception as bug:
            end = run_end(bug)
            raise
        finally:
            try:
                await self._transcript.flush()
            except SessionError as failure:
                end = RunEnd("error", str(failure), end.text)
            conversation = self._transcript.conversation
            self.last_value = end.value
            ended = RunEnded(
                why=end.why,
                text=end.text,
                turns=conversation.turns - turns_before,
                cost=conversation.cost,
                seconds=time.monotonic() - started,
                is_error=end.why not in ("done", "interrupted", "waiting"),
                detail=end.detail,
                failure=end.failure,
                unsent=tuple(map(prompt_text, self._steering.take())),
                data=end.data,
                usage=_used(conversation.usage, usage_before),
            )
            if loop is not None:
                loop.hooks.start_idle_timer()
            if self._box.events.has_subscribers:
                self._box.events.emit(ended)
        return ended
