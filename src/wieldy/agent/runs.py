"""The runs of a session, one at a time: the task of each, its events, and answers with a type."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Generic, Self, TypeAlias, TypeVar

from wieldy.agent.loop import AgentLoop, Prompt, RunEnd, SteeringQueue, prompt_content, prompt_text
from wieldy.agent.transcript import Transcript
from wieldy.core.errors import ClosedError, SessionError
from wieldy.core.events import AnyEvent, RunEnded
from wieldy.core.json_values import to_json
from wieldy.core.provider import ProviderFailure, Usage
from wieldy.core.schema.check import InvalidInput, SchemaError, UnsupportedAnnotation
from wieldy.core.schema.parameters import Parameters
from wieldy.core.supervise import Abort, Aborted
from wieldy.engine.toolbox import Toolbox

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


class TypedEventStream(Generic[T]):
    """The events of a run: iterate over them, or await the answer, which has a type. Leaving the iteration interrupts the run.

    Python closes an abandoned generator only at some later time. This object reports at once that it has no consumer any more, so
    that the session can be used again.
    """

    def __init__(
        self, events: AsyncGenerator[AnyEvent, None], on_abandoned: Callable[[], None], result: Callable[[RunEnded], T]
    ) -> None:
        self._events = events
        self._on_abandoned = on_abandoned
        self._result = result
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

    def __await__(self) -> Generator[Any, None, T]:
        """Run to the end and return the answer. Raises `SessionError` where there is none, or questions are waiting."""
        return self._finish().__await__()

    async def _finish(self) -> T:
        async for event in self:
            if isinstance(event, RunEnded):
                return self._result(event)
        raise SessionError("the run has ended already")


class EventStream(TypedEventStream[str]):
    """The events of a run: iterate over them, or await the model's last text."""


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
            raise ClosedError("this session is closed; make another with resume=ID to continue")

    def stream(self, work: Work, *, stream_deltas: bool) -> EventStream:
        """The events of some work, which begins with the iteration."""
        self.require_open()
        return EventStream(self._events(work, stream_deltas), self._abandon, final_text)

    def typed_stream(self, work: Work, *, stream_deltas: bool) -> TypedEventStream[Any]:
        """The events of some work whose answer has a type, which begins with the iteration."""
        self.require_open()

        def answer(ended: RunEnded) -> Any:
            require_answer(ended)
            return self.last_value

        return TypedEventStream(self._events(work, stream_deltas), self._abandon, answer)

    async def finish(self, work: Work) -> RunEnded:
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
        """Wait for the end of a run that its consumer abandoned. Raises `SessionError` for one that was not."""
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
                unpriced=tuple(conversation.unpriced),
            )
            if loop is not None:
                loop.hooks.start_idle_timer()
            if self._box.events.has_subscribers:
                self._box.events.emit(ended)
        return ended


MAX_CORRECTIONS = 3
_FENCE = re.compile(r"```(?:json)?[ \t]*\n(.*?)\n?```", re.DOTALL)


class AnswerProblem(Exception):
    """An answer does not fit; the message is for the model."""


class AnswerType:
    """What an answer must be: an annotation, such as a dataclass or `list[Plan]`, or a JSON Schema.

    Raises `TypeError` or `ValueError` for something else.
    """

    def __init__(self, returns: Any) -> None:
        try:
            if isinstance(returns, Mapping):
                self._parameters = Parameters.from_schema(returns)
                self._parameters.compile()
            else:
                self._parameters = Parameters.from_annotation(returns, "the answer")
        except SchemaError as error:
            raise ValueError(f"the schema of the answer cannot be used: {error}") from None
        except UnsupportedAnnotation as error:
            raise TypeError(f"`returns` cannot be used: {error}") from None

    @property
    def instruction(self) -> str:
        schema = json.dumps(self._parameters.schema, ensure_ascii=False)
        return f"When you are done, answer with JSON alone, without any other text. It must fit this JSON Schema:\n{schema}"

    def read(self, text: str) -> tuple[Any, Any]:
        """The value that the model's last text stands for, and its JSON. Raises `AnswerProblem`."""
        first_error: InvalidInput | None = None
        for data in _find_json(text):
            try:
                return self._parameters.accept(data), data
            except InvalidInput as error:
                first_error = first_error or error
        if first_error is None:
            raise AnswerProblem("Your answer is not JSON.")
        problems = "\n".join(f"- {problem}" for problem in first_error.problems)
        raise AnswerProblem(f"Your answer does not fit the schema:\n{problems}")

    def check(self, work: Work) -> Work:
        """Run some work until the last text fits; after some corrections that do not help the run ends with an error."""

        async def checked(loop: AgentLoop, context: tuple[str, ...], abort: Abort) -> RunEnd:
            attempt: Awaitable[RunEnd] = work(loop, context, abort)
            problem = ""
            for _ in range(MAX_CORRECTIONS + 1):
                end = await attempt
                if end.why != "done":
                    return end
                try:
                    value, data = self.read(end.text)
                except AnswerProblem as error:
                    problem = str(error)
                else:
                    return RunEnd(end.why, end.detail, end.text, end.failure, value, to_json(data))
                attempt = loop.correct(f"{problem}\nAnswer again with JSON alone that fits the schema.", abort)
            attempt.close()  # type: ignore[attr-defined]
            lines = " ".join(problem.split())
            return RunEnd(
                "invalid_answer", f"the answer does not fit after {MAX_CORRECTIONS} corrections: {lines}", end.text
            )

        return checked


def send_prompt(prompt: Prompt, returns: Any = None) -> Work:
    """The work of sending a prompt; with `returns`, until the answer fits."""
    answer_type = None if returns is None else AnswerType(returns)

    async def send(loop: AgentLoop, context: tuple[str, ...], abort: Abort) -> RunEnd:
        content = prompt_content(prompt)
        if answer_type is not None:
            content.append({"type": "text", "text": answer_type.instruction})
        return await loop.run(content, context, abort)

    return send if answer_type is None else answer_type.check(send)


def _find_json(text: str) -> Iterator[Any]:
    """The JSON values that a text may mean: all of it, then what stands in a code fence, in brackets or in braces."""
    text = text.strip()
    candidates = [text, *(match[1] for match in reversed(list(_FENCE.finditer(text))))]
    for opening, closing in sorted((("[", "]"), ("{", "}")), key=lambda pair: text.find(pair[0])):
        start, end = text.find(opening), text.rfind(closing)
        if 0 <= start < end:
            candidates.append(text[start : end + 1])
    for candidate in candidates:
        with contextlib.suppress(ValueError, RecursionError):
            yield json.loads(candidate)
