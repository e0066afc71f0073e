"""The way of one call, top to bottom. The only place where outcomes are made."""

from __future__ import annotations

import asyncio
import logging
import time

from wieldy.core.call import BoundCall, PlannedCall, ToolCall
from wieldy.core.content import Text, text_of
from wieldy.core.event import ToolCancelled, ToolEnded, ToolFailed, ToolRequested, ToolSucceeded
from wieldy.core.failure import Refusal, SessionError, ToolFailure
from wieldy.core.outcome import Done, Failed, Interrupted, Outcome, Refused
from wieldy.core.result import ToolResult
from wieldy.core.threads import in_thread
from wieldy.core.tool import DEFAULT_MAX_RESULT_CHARS, Output, ToolContext
from wieldy.engine.authorise import authorise
from wieldy.engine.bench import Bench
from wieldy.engine.bind import bind
from wieldy.engine.conclude import conclude
from wieldy.engine.consult import consult
from wieldy.engine.execute import execute
from wieldy.engine.leash import Aborted
from wieldy.engine.lookup import lookup
from wieldy.engine.normalise import normalise
from wieldy.engine.queue import Place

log = logging.getLogger("wieldy")
log.addHandler(logging.NullHandler())

BIG_RESULT_CHARS = 1_000_000


async def handle(
    call: ToolCall, bench: Bench, message_id: str | None = None, siblings: tuple[str, ...] = ()
) -> ToolResult:
    """Take one call from the model's words to its result. Raises nothing a model could cause."""
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
            plan = normalise(bind(call, tool), bench.workspace)
            await bench.queue.admit(place, plan.effects, tool.concurrency_safe(plan.input), bench.abort)
            ctx = bench.context(call.id, message_id, siblings)
            outcome, notes = await _judged_and_run(plan, place, ctx, bench)
        except Refusal as no:
            outcome = Refused(no.stage, no.advice, no.data)
        except ToolFailure as why:
            outcome = Failed(_words(why), why.data)
        except Aborted as stop:
            outcome = Interrupted(stop.reason, _said(stop.partial))
        except asyncio.CancelledError:
            _announce(conclude(call, Interrupted("cancelled"), limit, bench.spill), started, bench)
            raise
        except SessionError:
            raise
        except Exception as bug:
            log.exception("%s failed on call %s", call.name, call.id)
            outcome = Failed(f"{call.name} failed: {_one_sentence(bug)}")
    result = await _concluded(call, outcome, limit, bench, notes)
    _announce(result, started, bench)
    return result


async def _judged_and_run(
    plan: PlannedCall, place: Place, ctx: ToolContext, bench: Bench
) -> tuple[Outcome, tuple[str, ...]]:
    advice = await consult(plan, ctx, bench)
    if advice.updated_input is not None:
        plan = await _rewritten(plan, dict(advice.updated_input), place, bench)
    cleared, answer = await authorise(plan, advice.opinions, place, bench)
    if answer is not None and answer.updated_input is not None:
        plan = await _rewritten(plan, dict(answer.updated_input), place, bench)
        cleared, _ = await authorise(plan, advice.opinions, place, bench)
    await bench.queue.start(place, bench.abort)
    output = await execute(cleared, ctx, bench)
    content = (*output.blocks, *(Text(line) for line in advice.context)) if advice.context else output.blocks
    return Done(content, output.data, output.is_error), plan.notes


async def _rewritten(plan: PlannedCall, input: dict[str, object], place: Place, bench: Bench) -> PlannedCall:
    """The call with another input, checked and planned like any other, and admitted again."""
    tool = plan.tool
    bound: BoundCall = bind(ToolCall(plan.call.id, plan.call.name, input), tool)
    again = normalise(bound, bench.workspace)
    await bench.queue.readmit(place, again.effects, tool.concurrency_safe(again.input), bench.abort)
    return again


async def _concluded(call: ToolCall, outcome: Outcome, limit: int, bench: Bench, notes: tuple[str, ...]) -> ToolResult:
    if (
        isinstance(outcome, Done)
        and sum(len(b.text) for b in outcome.content if isinstance(b, Text)) > BIG_RESULT_CHARS
    ):
        return await in_thread(conclude, call, outcome, limit, bench.spill, notes)
    return conclude(call, outcome, limit, bench.spill, notes)


def _words(why: ToolFailure) -> str:
    return "\n".join(part for part in (why.message, why.stderr, why.stdout) if part)


def _said(partial: object) -> str:
    return text_of(partial.blocks) if isinstance(partial, Output) else ""


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
