"""The way of one call, top to bottom. The only place where outcomes are made."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from wieldy.core.abort import Abort
from wieldy.core.call import BoundCall, ClearedCall, PlannedCall, ToolCall
from wieldy.core.content import Text, text_of
from wieldy.core.effect import lasts
from wieldy.core.event import ToolCancelled, ToolEnded, ToolFailed, ToolRequested, ToolSucceeded
from wieldy.core.failure import Refusal, SessionError, ToolFailure
from wieldy.core.log import log
from wieldy.core.outcome import Done, Failed, Interrupted, Outcome, Refused
from wieldy.core.result import ToolResult
from wieldy.core.threads import in_thread
from wieldy.core.tool import DEFAULT_MAX_RESULT_CHARS, Output, ToolContext
from wieldy.engine.authorise import authorise, waved_through
from wieldy.engine.bench import Bench
from wieldy.engine.bind import bind
from wieldy.engine.conclude import conclude
from wieldy.engine.consult import consult, own_check
from wieldy.engine.execute import execute
from wieldy.engine.leash import Aborted
from wieldy.engine.lookup import lookup
from wieldy.engine.normalise import normalise
from wieldy.engine.queue import Place

BIG_RESULT_CHARS = 1_000_000


async def handle(
    call: ToolCall,
    bench: Bench,
    message_id: str | None = None,
    siblings: Sequence[str] = (),
    kept: Callable[[], Awaitable[None]] | None = None,
) -> ToolResult:
    """Take one call from the model's words to its result. Raises nothing a model could cause.

    `kept` is awaited before anything is done that lasts, so that whoever goes on after a power cut knows that it was begun.
    """
    started = time.perf_counter()
    if bench.events.heard:
        bench.events.emit(ToolRequested(call_id=call.id, name=call.name))
    limit = DEFAULT_MAX_RESULT_CHARS
    notes: tuple[str, ...] = ()
    with bench.queue.place() as place:
        try:
            tool = lookup(call, bench.catalog)
            limit = tool.max_result_chars
            if bench.abort.aborted:
                raise Aborted(bench.abort.reason)
            bound = bind(call, tool)
            plan = normalise(bound, bench.workspace)
            if not bench.queue.enter(place, plan.effects, tool.concurrency_safe(plan.input)):
                plan = await _admitted(bound, plan, place, bench)
            ctx = bench.context(call.id, message_id, siblings)
            cleared, context = await _judged(plan, place, ctx, bench)
            if not bench.queue.starts(place):
                await bench.queue.start(place, bench.abort)
            if kept is not None and any(map(lasts, cleared.plan.effects)):
                await kept()
            outcome = await _ran(cleared, ctx, bench, context)
            notes = cleared.plan.notes
        except asyncio.CancelledError:
            _announce(conclude(call, Interrupted("cancelled"), limit, bench.spill), started, bench)
            raise
        except SessionError:
            raise
        except Exception as error:
            outcome = _ended_by(error, call)
    if isinstance(outcome, Done) and _is_big(outcome):
        result = await in_thread(conclude, call, outcome, limit, bench.spill, notes)
    else:
        result = conclude(call, outcome, limit, bench.spill, notes)
    _announce(result, started, bench)
    return result


async def _admitted(bound: BoundCall, plan: PlannedCall, place: Place, bench: Bench) -> PlannedCall:
    """The call planned for where it will run: once it may go, an earlier one may have changed the folder."""
    tool, cwd = bound.tool, bench.workspace.cwd
    await bench.queue.admitted(place, bench.abort)
    while bench.workspace.cwd != cwd:
        cwd = bench.workspace.cwd
        plan = normalise(bound, bench.workspace)
        await bench.queue.readmit(place, plan.effects, tool.concurrency_safe(plan.input), bench.abort)
    return plan


async def _judged(
    plan: PlannedCall, place: Place, ctx: ToolContext, bench: Bench
) -> tuple[ClearedCall, tuple[str, ...]]:
    """Every opinion heard, every rewrite checked, the person asked: the call as it may run, and what hooks add to it."""
    ctx.real = plan.real
    if plan.tool.rehearses and (through := waved_through(plan, place, bench)) is not None:
        return through, ()
    opinions = await own_check(plan, ctx, bench) if plan.tool.checks else ()
    advice = await consult(plan, bench)
    if advice.updated_input is not None:
        plan = await _rewritten(plan, advice.updated_input, place, bench)
        ctx.real = plan.real
        opinions = await own_check(plan, ctx, bench)
    cleared, answer = await authorise(plan, (*opinions, *advice.opinions), place, bench)
    if answer is not None and answer.updated_input is not None:
        plan = await _rewritten(plan, answer.updated_input, place, bench)
        ctx.real = plan.real
        opinions = await own_check(plan, ctx, bench)
        cleared, _ = await authorise(plan, (*opinions, *advice.opinions), place, bench)
    return cleared, advice.context


async def _ran(cleared: ClearedCall, ctx: ToolContext, bench: Bench, context: tuple[str, ...]) -> Outcome:
    """The outcome of a cleared call, reviewed by whoever wants to see it."""
    started = time.perf_counter()
    outcome: Outcome
    try:
        output = await execute(cleared, ctx, bench)
        outcome = Done(
            (*output.blocks, *map(Text, context)) if context else output.blocks, output.data, output.is_error
        )
    except SessionError:
        raise
    except Exception as error:
        outcome = _ended_by(error, cleared.plan.call)
    for reviewer in bench.reviewers:
        review = reviewer.review(cleared.plan, outcome, time.perf_counter() - started)
        outcome = await bench.leash.hold(review, Abort())
    return outcome


def _ended_by(error: Exception, call: ToolCall) -> Outcome:
    match error:
        case Refusal():
            return Refused(error.stage, error.advice, error.data)
        case ToolFailure():
            return Failed("\n".join(part for part in (error.message, error.stderr, error.stdout) if part), error.data)
        case Aborted():
            return Interrupted(error.reason, text_of(error.partial.blocks) if isinstance(error.partial, Output) else "")
    log.error("%s failed on call %s", call.name, call.id, exc_info=error)
    return Failed(f"{call.name} failed: {_one_sentence(error)}")


async def _rewritten(plan: PlannedCall, input: Mapping[str, Any], place: Place, bench: Bench) -> PlannedCall:
    """The call with another input, checked and planned like any other, and admitted again."""
    tool = plan.tool
    again = normalise(bind(ToolCall(plan.call.id, plan.call.name, dict(input)), tool), bench.workspace)
    await bench.queue.readmit(place, again.effects, tool.concurrency_safe(again.input), bench.abort)
    return again


def _is_big(outcome: Done) -> bool:
    first = outcome.content[0] if len(outcome.content) == 1 else None
    if isinstance(first, Text):
        return len(first.text) > BIG_RESULT_CHARS
    return sum(len(block.text) for block in outcome.content if isinstance(block, Text)) > BIG_RESULT_CHARS


def _one_sentence(bug: Exception) -> str:
    text = " ".join(str(bug).split())
    return f"{type(bug).__name__}: {text}" if text else type(bug).__name__


def _announce(result: ToolResult, started: float, bench: Bench) -> None:
    if not bench.events.heard:
        return
    kind: type[ToolEnded] = ToolFailed if result.is_error else ToolSucceeded
    if isinstance(result.outcome, Interrupted):
        kind = ToolCancelled
    seconds = time.perf_counter() - started
    bench.events.emit(kind(call_id=result.call_id, name=result.name, result=result, seconds=seconds))
