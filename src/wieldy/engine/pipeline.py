"""The way of one call, top to bottom. The only place where outcomes are made."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from types import CoroutineType
from typing import TYPE_CHECKING, Any

from wieldy.core.abort import Abort
from wieldy.core.call import BoundCall, ClearedCall, PlannedCall, ToolCall
from wieldy.core.catalog import Catalog
from wieldy.core.content import Block, Content, Text, text_of
from wieldy.core.decision import Advice, Answer, Decision, Opinion, Question, Reason
from wieldy.core.effects import Effects, Reads, Writes, is_lasting
from wieldy.core.errors import Refusal, SessionError, ToolFailure
from wieldy.core.events import (
    PermissionAsked,
    PermissionDecided,
    ToolCancelled,
    ToolEnded,
    ToolFailed,
    ToolProgress,
    ToolRequested,
    ToolStarted,
    ToolSucceeded,
)
from wieldy.core.logs import log
from wieldy.core.outcome import Done, Failed, Interrupted, Outcome, Refused, ToolResult
from wieldy.core.realpath import real_path
from wieldy.core.threads import in_thread
from wieldy.core.tool import DEFAULT_MAX_RESULT_CHARS, Output, Progress, Tool, ToolContext
from wieldy.core.truncate import truncate_middle
from wieldy.core.workspace import Workspace
from wieldy.engine.queue import Place
from wieldy.engine.results import Spill, as_output, clean
from wieldy.engine.services import Services
from wieldy.engine.supervise import Aborted, TimedOut
from wieldy.schema.check import InvalidInput
from wieldy.schema.json_repair import UnreadableJson, read_object
from wieldy.schema.parameters import Parameters
from wieldy.schema.strict_json import TooDeep, is_too_deep

if TYPE_CHECKING:
    from wieldy.engine.turn import Turn


def lookup(call: ToolCall, catalog: Catalog) -> Tool:
    """The tool a call names."""
    found = catalog.find(call.name)
    if found is not None:
        return found
    near = nearest(call.name, list(catalog))
    hint = f"Did you mean {' or '.join(f'`{name}`' for name in near)}? " if near else ""
    names = ", ".join(sorted(catalog))
    raise Refusal(
        "lookup", f"No such tool: `{call.name}`. {hint}Available tools: {names or 'none'}.", data={"nearest": near}
    )


def nearest(name: str, names: list[str], most: int = 3) -> list[str]:
    """The most similar names, best first; a difference in case or separators counts for nothing."""
    from difflib import get_close_matches

    plain = {_plain(candidate): candidate for candidate in names}
    return [plain[match] for match in get_close_matches(_plain(name), list(plain), n=most, cutoff=0.55)]


def _plain(name: str) -> str:
    return "".join(name.lower().replace("-", "_").split("_"))


def bind(call: ToolCall, tool: Tool) -> BoundCall:
    """Read the input, give its fields their canonical names, and check it."""
    if not call.complete:
        raise _cut_off(tool)
    value, notes = _read(call, tool)
    parameters = tool.parameters
    if parameters.aliases:
        value = _canonical(value, parameters)
    try:
        return BoundCall(call, tool, value, parameters.accept(value), notes)
    except InvalidInput as misfit:
        return _second_try(call, tool, value, notes, misfit)


def _read(call: ToolCall, tool: Tool) -> tuple[dict[str, Any], tuple[str, ...]]:
    raw = call.input
    if isinstance(raw, dict):
        # From a program: its strings may hold names of files that are no Unicode, which JSON could not.
        if _is_nested(raw) and is_too_deep(raw):
            raise Refusal("schema", f"InputValidationError: {tool.name} was not run. {TooDeep()} Send the call again.")
        return raw, ()
    try:
        read = read_object(raw)
    except UnreadableJson as unreadable:
        if unreadable.cut_off:
            raise _cut_off(tool) from None
        advice = f"InputValidationError: {tool.name} was not run. {unreadable.reason} Send the call again."
        raise Refusal("schema", advice) from None
    return read.value, read.notes


def _is_nested(input: dict[str, Any]) -> bool:
    for item in input.values():  # noqa: SIM110 - `any` takes three times as long for the few values there are
        if type(item) in (dict, list):
            return True
    return False


def _cut_off(tool: Tool) -> Refusal:
    return Refusal(
        "schema",
        f"The input of `{tool.name}` was cut off before it was complete, so the call was not run. "
        "Send it again with less in it, for example in several smaller calls.",
    )


def _canonical(value: dict[str, Any], parameters: Parameters) -> dict[str, Any]:
    aliases = parameters.aliases
    if not any(key in aliases for key in value):
        return value
    renamed: dict[str, Any] = {}
    for key, item in value.items():
        canonical = aliases.get(key, key)
        # Where the model sent both spellings the alias stays, and is reported as a field too many.
        renamed[key if canonical in value and canonical != key else canonical] = item
    return renamed


def _second_try(
    call: ToolCall, tool: Tool, value: dict[str, Any], notes: tuple[str, ...], misfit: InvalidInput
) -> BoundCall:
    from wieldy.schema.check import explain
    from wieldy.schema.coerce import coerce

    coerced, how = coerce(tool.schema, value)
    try:
        if how:
            return BoundCall(call, tool, coerced, tool.parameters.accept(coerced), (*notes, *how))
    except InvalidInput as still:
        misfit = still
    advice = explain(tool.name, misfit.problems, tool.schema)
    data = [{"field": p.path, "expected": p.expected, "got": p.got} for p in misfit.problems]
    raise Refusal("schema", advice, data=data) from None


LOOKS = 10

_FILE_EFFECTS = (Reads, Writes)


def normalize(bound: BoundCall, workspace: Workspace) -> PlannedCall:
    """Plan a call. The values handed to the tool are those of the canonical input."""
    tool = bound.tool
    input = tool.normalize(bound.input, workspace)
    if tool.paths:
        input = _absolute(input, tool, workspace)
    args = bound.args if input is bound.input else _accept(tool, input)
    effects = tool.effects(input, workspace)
    return PlannedCall(bound.call, tool, input, args, effects, bound.notes, _real(effects))


def _real(effects: Effects) -> dict[str, str]:
    """Where the declared paths lead now. Judging and opening both use this, so that nothing can be swapped in between."""
    if not effects:
        return {}
    real: dict[str, str] = {}
    for effect in effects:
        if isinstance(effect, _FILE_EFFECTS) and effect.path not in real:
            real[effect.path] = _led_to(effect.path)
    return real


def _led_to(path: str) -> str:
    for _ in range(LOOKS):
        try:
            return real_path(path)
        except OSError:
            continue  # a link on the way vanished between two looks at it
    raise Refusal("normalize", f"{path} is being moved about by somebody else. Try again when that is over.")


def _absolute(input: dict[str, Any], tool: Tool, workspace: Workspace) -> dict[str, Any]:
    changed: dict[str, Any] = {}
    for name in tool.paths:
        value = input.get(name)
        if isinstance(value, str):
            absolute: Any = workspace.resolve(value)
        elif isinstance(value, list):
            absolute = [workspace.resolve(item) if isinstance(item, str) else item for item in value]
        else:
            continue
        if absolute != value:
            changed[name] = absolute
    return {**input, **changed} if changed else input


def _accept(tool: Tool, input: dict[str, Any]) -> Any:
    try:
        return tool.parameters.accept(input)
    except InvalidInput as misfit:
        raise RuntimeError(f"the canonical form made by {tool.name} does not fit its own schema: {misfit}") from None


NO_ADVICE = Advice()


async def consult(plan: PlannedCall, services: Services) -> Advice:
    """Gather every opinion. Rewrites were chained by the adviser that made them; the last adviser's stands."""
    asked = [adviser for adviser in services.advisers if adviser.wants(plan)] if services.advisers else None
    if not asked:
        return NO_ADVICE
    if len(asked) == 1:
        return await services.supervisor.run(asked[0].advise(plan), services.abort)
    heard = await asyncio.gather(*(services.supervisor.run(adviser.advise(plan), services.abort) for adviser in asked))
    rewritten = [advice.updated_input for advice in heard if advice.updated_input is not None]
    return Advice(
        opinions=tuple(opinion for advice in heard for opinion in advice.opinions),
        updated_input=rewritten[-1] if rewritten else None,
        context=tuple(line for advice in heard for line in advice.context),
    )


async def own_check(plan: PlannedCall, ctx: ToolContext, services: Services) -> tuple[Opinion, ...]:
    """What the tool itself says: nothing, a doubt, or a refusal."""
    if not plan.tool.has_check:
        return ()
    try:
        doubt = await services.supervisor.run(
            plan.tool.check(plan.input, ctx), services.abort, services.limit_of(plan.tool)
        )
    except (Refusal, ToolFailure):
        # Of what may not be touched at all nothing is told, not even that it is there: the denial to come says enough.
        if services.judge.decide(plan, ()).behavior != "deny":
            raise
        return ()
    return (Opinion(plan.tool.name, "ask", doubt.why),) if doubt else ()


async def authorize(
    plan: PlannedCall, opinions: tuple[Opinion, ...], place: Place, services: Services
) -> tuple[ClearedCall, Answer | None]:
    """Clear a call to run, asking the person where the decision is to ask."""
    decision = services.judge.decide(plan, opinions)
    answer: Answer | None = None
    if decision.behavior == "ask":
        await services.queue.approval_order.turn(place.order, services.abort)
        answer = await _ask(plan, decision, services)
        decision = _after(decision, answer)
    _decided(plan, decision, answer, place, services)
    if decision.behavior != "allow":
        raise Refusal("permission", _denial(plan, decision, answer), data=decision)
    return ClearedCall(plan, decision), answer


def waved_through(plan: PlannedCall, place: Place, services: Services) -> ClearedCall | None:
    """Clear a call that is allowed without anybody having a say in it; None where somebody has."""
    if services.reviewers or any(adviser.wants(plan) for adviser in services.advisers):
        return None
    decision = services.judge.decide(plan, ())
    if decision.behavior != "allow":
        return None
    _decided(plan, decision, None, place, services)
    return ClearedCall(plan, decision)


def _decided(plan: PlannedCall, decision: Decision, answer: Answer | None, place: Place, services: Services) -> None:
    services.queue.approval_order.leave(place.order)
    if services.events.has_subscribers:
        services.events.emit(
            PermissionDecided(call_id=plan.call.id, name=plan.tool.name, decision=decision, answer=answer)
        )


async def _ask(plan: PlannedCall, decision: Decision, services: Services) -> Answer:
    if services.events.has_subscribers:
        services.events.emit(PermissionAsked(call_id=plan.call.id, name=plan.tool.name, decision=decision))
    return await services.supervisor.run(services.approver.ask(Question(plan, decision)), services.abort)


def _after(decision: Decision, answer: Answer) -> Decision:
    said = Reason("answer", "allow" if answer.allowed else "deny", answer.words or ("yes" if answer.allowed else "no"))
    return Decision(said.behavior, (said, *decision.reasons), decision.suggestions)


def _denial(plan: PlannedCall, decision: Decision, answer: Answer | None) -> str:
    if answer is None:
        way_on = "Do not try to get round this; use another way that is allowed, or tell the user what you would need."
        return f"Permission denied for {plan.tool.name}: {decision.why}. {way_on}"
    if answer.words:
        return f"Permission denied for {plan.tool.name}. The user said: {answer.words}"
    return (
        f"Permission denied for {plan.tool.name}: the user declined this call. "
        "Stop and ask what they would like instead, or go on without it."
    )


async def execute(cleared: ClearedCall, ctx: ToolContext, services: Services) -> Output:
    """Run a cleared call to its output. Raises `ToolFailure`, `Aborted`, or whatever the tool raised."""
    plan = cleared.plan
    if services.events.has_subscribers:
        services.events.emit(ToolStarted(call_id=plan.call.id, name=plan.tool.name, input=plan.input))
    seconds = services.limit_of(plan.tool)

    def report(progress: Progress) -> None:
        if services.events.has_subscribers:
            shown = plan.tool.show_progress(progress)
            services.events.emit(
                ToolProgress(call_id=plan.call.id, name=plan.tool.name, text=shown, data=progress.data)
            )

    try:
        return await services.supervisor.run(output_of(plan.tool, plan.args, ctx, report), services.abort, seconds)
    except TimedOut as late:
        said = f" Until then it said:\n{_text(late.partial)}" if late.partial is not None else ""
        raise ToolFailure(f"{plan.tool.name} did not finish within {seconds:g} s and was stopped.{said}") from None


async def output_of(tool: Tool, args: Any, ctx: ToolContext, report: Callable[[Progress], None]) -> Output:
    """Run a tool: `Tool.run` gives an async generator of progress and one result, or an awaitable of the result."""
    running: Any = tool.run(args, ctx)
    if isinstance(running, CoroutineType) or not hasattr(running, "__aiter__"):
        return as_output(await running)
    try:
        async for item in running:
            if not isinstance(item, Progress):
                return as_output(item)
            report(item)
    finally:
        await _close(running)
    raise ToolFailure(f"{tool.name} ended without a result. This is a fault of the tool, not of the call.")


async def _close(running: AsyncIterator[Any]) -> None:
    close = getattr(running, "aclose", None)
    if close is not None:
        await close()


def _text(output: Output) -> str:
    from wieldy.core.content import text_of

    return text_of(output.blocks)


MAX_FAILURE_CHARS = 10_000


def finalize(call: ToolCall, outcome: Outcome, limit: int, spill: Spill, notes: tuple[str, ...] = ()) -> ToolResult:
    """The result the model and the caller get. `notes` say what was mended in the call."""
    match outcome:
        case Done():
            content = _content(outcome.content, call, limit, spill, notes)
            return ToolResult(call.id, call.name, content, outcome.data, outcome.is_error, outcome)
        case Failed(message, data):
            text = truncate_middle(clean(message), MAX_FAILURE_CHARS) or "The tool failed without a message."
            return ToolResult(call.id, call.name, (Text(text),), data, True, outcome)
        case Refused(_, advice, data):
            text = truncate_middle(clean(advice), MAX_FAILURE_CHARS)
            return ToolResult(call.id, call.name, (Text(text),), data, True, outcome)
        case Interrupted(reason, partial):
            said = (
                f"\nUntil then it said:\n{truncate_middle(clean(partial), MAX_FAILURE_CHARS)}"
                if partial.strip()
                else ""
            )
            return ToolResult(call.id, call.name, (Text(f"{reason}{said}"),), None, True, outcome)


def _content(content: Content, call: ToolCall, limit: int, spill: Spill, notes: tuple[str, ...]) -> Content:
    if len(content) == 1 and isinstance(content[0], Text) and not notes:
        return (_text_conclude(content[0], call, limit, spill),)
    blocks: list[Block] = []
    left = limit
    for block in content:
        if isinstance(block, Text):
            if not block.text.strip() and len(content) > 1:
                continue
            shown = _text_conclude(block, call, max(left, 0), spill)
            left -= len(shown.text)
            blocks.append(shown)
        else:
            blocks.append(block)
    if notes:
        blocks.append(Text("(" + "; ".join(notes) + ")"))
    return tuple(blocks) or (Text("(no output)"),)


def _text_conclude(block: Text, call: ToolCall, limit: int, spill: Spill) -> Text:
    text = clean(block.text)
    if len(text) > limit:
        text = spill.keep(call.id, text, limit)
    elif not text or text.isspace():
        text = "(no output)"
    return block if text is block.text else Text(text)


BIG_RESULT_CHARS = 1_000_000


async def handle(
    call: ToolCall,
    services: Services,
    turn: Turn | None = None,
) -> ToolResult:
    """Take one call from the model's words to its result. Raises nothing a model could cause."""
    started = time.perf_counter()
    if services.events.has_subscribers:
        services.events.emit(ToolRequested(call_id=call.id, name=call.name))
    limit = DEFAULT_MAX_RESULT_CHARS
    notes: tuple[str, ...] = ()
    with services.queue.place() as place:
        try:
            tool = lookup(call, services.catalog)
            limit = tool.max_result_chars
            if services.abort.aborted:
                raise Aborted(services.abort.reason)
            if turn is not None and turn.loop_breaker is not None:
                turn.loop_breaker.check(call)
            bound = bind(call, tool)
            plan = normalize(bound, services.workspace)
            if not services.queue.enter(place, plan.effects, tool.concurrency_safe(plan.input)):
                plan = await _admitted(bound, plan, place, services)
            ctx = services.context(call.id, turn)
            cleared, context = await _judged(plan, place, ctx, services)
            if not services.queue.starts(place):
                await services.queue.start(place, services.abort)
            if turn is not None and turn.flush is not None and any(map(is_lasting, cleared.plan.effects)):
                turn.has_lasting_effects = True
                await turn.flush()
            outcome = await _ran(cleared, ctx, services, context)
            notes = cleared.plan.notes
        except asyncio.CancelledError:
            _announce(finalize(call, Interrupted("cancelled"), limit, services.spill), started, services)
            raise
        except SessionError:
            raise
        except Exception as error:
            outcome = _ended_by(error, call)
    if isinstance(outcome, Done) and _is_big(outcome):
        result = await in_thread(finalize, call, outcome, limit, services.spill, notes)
    else:
        result = finalize(call, outcome, limit, services.spill, notes)
    _announce(result, started, services)
    return result


async def _admitted(bound: BoundCall, plan: PlannedCall, place: Place, services: Services) -> PlannedCall:
    """The call planned for where it will run: once it may go, an earlier one may have changed the folder."""
    tool, cwd = bound.tool, services.workspace.cwd
    await services.queue.admitted(place, services.abort)
    while services.workspace.cwd != cwd:
        cwd = services.workspace.cwd
        plan = normalize(bound, services.workspace)
        await services.queue.readmit(place, plan.effects, tool.concurrency_safe(plan.input), services.abort)
    return plan


async def _judged(
    plan: PlannedCall, place: Place, ctx: ToolContext, services: Services
) -> tuple[ClearedCall, tuple[str, ...]]:
    """Every opinion heard, every rewrite checked, the person asked: the call as it may run, and what hooks add to it."""
    ctx.resolved_paths = plan.resolved_paths
    if plan.tool.rehearses and (through := waved_through(plan, place, services)) is not None:
        return through, ()
    opinions = await own_check(plan, ctx, services) if plan.tool.has_check else ()
    advice = await consult(plan, services)
    if advice.updated_input is not None:
        plan = await _rewritten(plan, advice.updated_input, place, services)
        ctx.resolved_paths = plan.resolved_paths
        opinions = await own_check(plan, ctx, services)
    cleared, answer = await authorize(plan, (*opinions, *advice.opinions), place, services)
    if answer is not None and answer.updated_input is not None:
        plan = await _rewritten(plan, answer.updated_input, place, services)
        ctx.resolved_paths = plan.resolved_paths
        opinions = await own_check(plan, ctx, services)
        cleared, _ = await authorize(plan, (*opinions, *advice.opinions), place, services)
    return cleared, advice.context


async def _ran(cleared: ClearedCall, ctx: ToolContext, services: Services, context: tuple[str, ...]) -> Outcome:
    """The outcome of a cleared call, reviewed by whoever wants to see it."""
    started = time.perf_counter()
    outcome: Outcome
    try:
        output = await execute(cleared, ctx, services)
        outcome = Done(
            (*output.blocks, *map(Text, context)) if context else output.blocks, output.data, output.is_error
        )
    except SessionError:
        raise
    except Exception as error:
        outcome = _ended_by(error, cleared.plan.call)
    for reviewer in services.reviewers:
        review = reviewer.review(cleared.plan, outcome, time.perf_counter() - started)
        outcome = await services.supervisor.run(review, Abort())
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


async def _rewritten(plan: PlannedCall, input: Mapping[str, Any], place: Place, services: Services) -> PlannedCall:
    """The call with another input, checked and planned like any other, and admitted again."""
    tool = plan.tool
    again = normalize(bind(ToolCall(plan.call.id, plan.call.name, dict(input)), tool), services.workspace)
    await services.queue.readmit(place, again.effects, tool.concurrency_safe(again.input), services.abort)
    return again


def _is_big(outcome: Done) -> bool:
    first = outcome.content[0] if len(outcome.content) == 1 else None
    if isinstance(first, Text):
        return len(first.text) > BIG_RESULT_CHARS
    return sum(len(block.text) for block in outcome.content if isinstance(block, Text)) > BIG_RESULT_CHARS


def _one_sentence(bug: Exception) -> str:
    text = " ".join(str(bug).split())
    return f"{type(bug).__name__}: {text}" if text else type(bug).__name__


def _announce(result: ToolResult, started: float, services: Services) -> None:
    if not services.events.has_subscribers:
        return
    kind: type[ToolEnded] = ToolFailed if result.is_error else ToolSucceeded
    if isinstance(result.outcome, Interrupted):
        kind = ToolCancelled
    seconds = time.perf_counter() - started
    services.events.emit(kind(call_id=result.call_id, name=result.name, result=result, seconds=seconds))
