"""One exchange: a request goes out, the answer streams in, its tools run meanwhile, every call gets its result.

A stream that breaks before any tool has started is asked for again. Once one has, what it said so far stands: its results are
kept and the model goes on from there, so that no tool ever runs twice.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Set
from functools import partial
from itertools import chain
from typing import Any, Protocol

from wieldy.core.abort import Abort
from wieldy.core.event import ModelAnswered, ModelRequested, Retried
from wieldy.core.provider import Provider, ProviderFailure, Request, Usage
from wieldy.core.record import record
from wieldy.core.result import ToolResult
from wieldy.engine.leash import Aborted
from wieldy.providers.cost import cost
from wieldy.session.assemble import Answer
from wieldy.session.attempt import Attempt, Record
from wieldy.session.breaker import Breaker
from wieldy.session.equipment import Equipment
from wieldy.session.foresight import AT_MOST, Foresight, first_steps, later_steps, make_ready, tried
from wieldy.session.retry import MOST_ATTEMPTS, pause


class Durable(Protocol):
    """Waits until what was recorded is on disk, or the results at least."""

    def __call__(self, *, results: bool = False) -> Awaitable[None]:
        """All of it, or the `results` among it."""
        ...


SPOKEN = frozenset({"text", "tool_use", "server_tool_use"})


@record
class Exchange:
    """What came of one request."""

    answer: Answer
    content: tuple[dict[str, Any], ...]
    results: list[ToolResult]
    interrupted: bool = False
    broken: ProviderFailure | None = None
    looping: bool = False


class Exchanger:
    """Runs the exchanges of one session. `record` appends to the transcript, `durable` waits until that is on disk; `sleep` is
    the clock retries wait by."""

    def __init__(
        self,
        box: Equipment,
        provider: Provider,
        breaker: Breaker,
        record: Record,
        durable: Durable | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.box = box
        self.provider = provider
        self.breaker = breaker
        self.record = record
        self.durable = durable
        self.sleep = sleep
        self.most_attempts = MOST_ATTEMPTS
        self.broken_in_a_row = 0
        self._foresaw = False

    async def exchange(self, request: Request, number: int, taken: Set[str], abort: Abort) -> Exchange:
        """One request until it has an answer whose calls all have results. Raises `ProviderFailure` when it cannot be had."""
        for attempt in range(1, self.most_attempts + 1):
            _unless(abort)
            if self.box.events.heard:
                self.box.events.emit(ModelRequested(model=self.provider.model, turn=number))
            try:
                exchange = await self._once(request, taken, abort)
            except ProviderFailure as failure:
                self.record({"type": "dropped"})
                await self._wait(failure, attempt, abort)
                continue
            if exchange.broken is None:
                self.broken_in_a_row = 0
            else:
                self.broken_in_a_row += 1
                await self._wait(exchange.broken, self.broken_in_a_row, abort)
            return exchange
        raise AssertionError("unreachable")

    async def _once(self, request: Request, taken: Set[str], abort: Abort) -> Exchange:
        started = time.monotonic()
        broken: ProviderFailure | None = None
        interrupted = False
        async with self.box.turn() as turn:
            turn.durable = self.durable
            attempt = Attempt(turn, self.breaker, self.record, self.box.events, taken)
            try:
                heard = attempt.listen(self.provider, request) if self._foresaw else self._foresee(attempt, request)
                await _until(abort, heard)
                attempt.finish()
            except Aborted:
                interrupted = True
                attempt.keep_spoken()
            except ProviderFailure as failure:
                if not turn.submitted:
                    raise
                broken = failure
                attempt.answer.drop_open()
            reason = "interrupted" if interrupted else "broken" if broken else attempt.answer.stop_reason or "end_turn"
            content = self._answered(attempt.answer, reason, time.monotonic() - started)
            results = await turn.results() if turn.submitted else []
            attempt.keep_results(results)
            if turn.lasting and self.durable is not None:
                await self.durable(results=True)  # what was done is on disk before the model hears of it
        calls = turn.submitted
        stops = [
            self.breaker.note(call.name, call.input, failed=result.is_error)
            for call, result in zip(calls, results, strict=True)
        ]
        return Exchange(attempt.answer, content, results, interrupted or abort.aborted, broken, True in stops)

    async def _foresee(self, attempt: Attempt, request: Request) -> None:
        """Hear the first answer, and get ready for its calls: before the model is asked, and while it thinks."""
        self._foresaw = True
        tools = [offer.name for offer in request.tools]
        approach = getattr(self.provider, "approach", None)
        coming = approach() if approach is not None else None
        ready = partial(make_ready, tools, self.box.workspace)
        steps, until = first_steps(tools), time.monotonic() + AT_MOST
        if coming is not None:
            tried(ready)  # at once: what is started there takes as long as the steps do, and beside them
        for step in steps:
            tried(step)
            if coming is not None and not coming.done():
                await asyncio.sleep(0)  # let the connection come on
            elif time.monotonic() > until:
                break
        rest = chain(steps, later_steps(tools))
        async with Foresight(rest, ready):
            return await attempt.listen(self.provider, request)

    def _answered(self, answer: Answer, reason: str, seconds: float) -> tuple[dict[str, Any], ...]:
        """Record that the answer is over; returns what it came to."""
        content = answer.content()
        if SPOKEN.isdisjoint([block["type"] for block in content]):
            self.record({"type": "dropped"})
        usage = answer.usage
        spent = cost(self.provider.model, usage)
        self.record(
            {"type": "answered", "stop_reason": reason, "usage": _counts(usage), "cost": spent, "at": time.time()}
        )
        if self.box.events.heard:
            self.box.events.emit(
                ModelAnswered(content=content, stop_reason=reason, usage=usage, seconds=seconds, cost=spent)
            )
        return content

    async def _wait(self, failure: ProviderFailure, attempt: int, abort: Abort) -> None:
        """Wait before the next attempt. Raises the failure when there should be none."""
        seconds = pause(failure, attempt, self.most_attempts)
        if seconds is None:
            raise failure
        self.box.events.emit(
            Retried(attempt=attempt, most=self.most_attempts, seconds=seconds, why=str(failure), status=failure.status)
        )
        _unless(abort)
        await self.box.leash.hold(_slept(self.sleep, seconds), abort)


def _unless(abort: Abort) -> None:
    if abort.aborted:
        raise Aborted(abort.reason)


async def _until(abort: Abort, work: Coroutine[Any, Any, None]) -> None:
    """Do some work here, in this very task, unless the person interrupts. Raises `Aborted`.

    A task of its own for every request would cost more than all the rest of listening.
    """
    task = asyncio.current_task()
    assert task is not None
    key = abort.listen(task.cancel)  # type: ignore[arg-type]
    try:
        await work
        if abort.aborted:
            await asyncio.sleep(0)  # the interrupt came with the last word: take it here, not at a later await
            task.uncancel()
    except asyncio.CancelledError:
        if not abort.aborted or task.uncancel() > 0:
            raise
        raise Aborted(abort.reason) from None
    finally:
        abort.forget(key)


async def _slept(sleep: Callable[[float], Awaitable[None]], seconds: float) -> None:
    await sleep(seconds)


def _counts(usage: Usage) -> dict[str, int]:
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cache_read_tokens": usage.cache_read_tokens,
        "cache_write_tokens": usage.cache_write_tokens,
    }
