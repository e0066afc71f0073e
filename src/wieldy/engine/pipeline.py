"""The stages of one call in reading order. `handle` joins them and is the only place where outcomes are made."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import aclosing
from functools import partial
from types import CoroutineType
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from wieldy.core.call import BoundCall, ClearedCall, PlannedCall, ToolCall
from wieldy.core.catalog import Catalog, ask_enabled
from wieldy.core.decision import Advice, Adviser, Answer, Decision, Judge, Opinion, Question, Reason
from wieldy.core.effects import USES_FOLDER, Effect, Effects, InTurn, Reads, Writes, clash, is_lasting
from wieldy.core.errors import Deferred, FolderGone, Refusal, SessionError, ToolFailure
from wieldy.core.events import (
    Notice,
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
from wieldy.core.filesystem import FileSystem
from wieldy.core.logs import log
from wieldy.core.outcome import Done, Failed, Interrupted, Outcome, Refused, Text, ToolResult, Waiting, text_of
from wieldy.core.realpath import PATH_KEEPS_CHANGING, PathChanged
from wieldy.core.schema.check import InvalidInput
from wieldy.core.schema.strict_json import TooDeep, is_too_deep
from wieldy.core.supervise import Abort, Aborted, HostExitAttempted, TimedOut, raise_if_ctrl_c
from wieldy.core.text import nearest_names
from wieldy.core.threads import in_thread
from wieldy.core.tool import DEFAULT_MAX_RESULT_CHARS, Output, Progress, Tool, ToolContext, why_disabled
from wieldy.core.tool_names import RENAMED_TOOLS
from wieldy.core.workspace import Workspace
from wieldy.engine.queue import Ticket
from wieldy.engine.results import (
    ERRORS_LEFT_OUT,
    as_output,
    describe_causes,
    describe_error,
    finalize,
    finalizing_blocks,
)

if TYPE_CHECKING:
    from wieldy.engine.services import CallServices
    from wieldy.engine.turn import Turn

DEFAULT_TIMEOUT = 600.0


async def handle(call: ToolCall, services: CallServices, turn: Turn | None = None) -> ToolResult:
    """Take one call from the model's words to its result. Raises nothing a model could cause."""
    started = time.perf_counter()
    if services.events.has_subscribers:
        services.events.emit(ToolRequested(call_id=call.id, name=call.name))
    limit = DEFAULT_MAX_RESULT_CHARS
    notes: tuple[str, ...] = ()
    outcome: Outcome
    with services.queue.take_ticket() as ticket:
        try:
            tool = lookup(call, services.catalog)
            limit = tool.max_result_chars
            outcome, notes = await _take_through(call, tool, ticket, services, turn)
        except asyncio.CancelledError:
            _announce(call, finalize(call, Interrupted("cancelled"), limit, services.spill), started, services)
            raise
        except (SessionError, GeneratorExit):
            raise
        except BaseException as error:
            raise_if_ctrl_c(error)
            outcome = _outcome_of_error(error, call)
    if finalizing_blocks(outcome, limit):
        result = await in_thread(finalize, call, outcome, limit, services.spill, notes)
    else:
        result = finalize(call, outcome, limit, services.spill, notes)
    if not isinstance(outcome, Waiting):
        _announce(call, result, started, services)
    return result


async def _take_through(
    call: ToolCall, tool: Tool, ticket: Ticket, services: CallServices, turn: Turn | None
) -> tuple[Outcome, tuple[str, ...]]:
    """Take a call through its stages; returns its outcome, and what was repaired in it."""
    if services.abort.aborted:
        raise Aborted(services.abort.reason)
    if turn is not None and turn.observer.loop_breaker is not None:
        turn.observer.loop_breaker.check(call)
    may_change = services.queue.may_change
    is_available = require_available(tool, services.catalog, services.workspace, may_change=may_change)
    bound = bind(call, tool)
    plan = normalize(bound, services.workspace)
    is_admitted = services.queue.claim(ticket, plan.touches, plan.safe)
    if not is_admitted:
        plan = await _wait_for_admission(bound, plan, ticket, services)
    if not (is_available and is_admitted) and tool.has_enabled_check:
        await _wait_available(tool, services)  # only after the claim, so that the order is that of arrival
    plan = await resolve_remote(plan, services.workspace)
    try:
        if turn is not None and any(clash(plan.touches, touched) for touched in turn.waiting):
            raise Deferred
        ctx = _context(call, services, turn)
        cleared, added_context = await _clear_where_it_starts(plan, ticket, ctx, services)
        if turn is not None:
            await turn.begin(cleared.plan)
        return await _run(cleared, ctx, services, added_context), cleared.plan.notes
    except Deferred as deferred:
        if turn is not None:
            turn.waiting.append(plan.touches)
        return Waiting(deferred.question_id), ()


# lookup: name → Tool


def lookup(call: ToolCall, catalog: Catalog) -> Tool:
    """Find the tool a call names, by the name that Claude Code gives it where there is no other tool of that name."""
    tool = catalog.find(call.name)
    if tool is None and call.name in RENAMED_TOOLS:
        tool = catalog.find(RENAMED_TOOLS[call.name])
    if tool is not None:
        return tool
    offered = catalog.offered_names()
    near = nearest_names(call.name, offered)
    hint = f"Did you mean {' or '.join(f'`{name}`' for name in near)}? " if near else ""
    if call.name.startswith("mcp__") and "ToolSearch" in offered:
        hint += f"If its MCP server is still starting: ToolSearch with `select:{call.name}` waits for it. "
    names = ", ".join(sorted(offered))
    problem, next_step = f"No such tool: `{call.name}`.", f"{hint}Available tools: {names or 'none'}."
    raise Refusal("lookup", problem, next_step, person=f"{problem} {hint}".strip(), data={"nearest": near})


def require_available(tool: Tool, catalog: Catalog, workspace: Workspace, *, may_change: bool = False) -> bool:
    """Refuse a tool that is switched off. False where its own check must be asked when the call has its place in the queue.

    That is so where the answer has to be waited for, and for a no that earlier calls may change.
    """
    if (closed := catalog.why_closed(tool.name)) is not None:
        raise _not_available(tool, closed)
    if not tool.has_enabled_check:
        return True
    answer: object
    try:
        answer = tool.enabled(workspace)
    except Exception as error:
        answer = error
    if isinstance(answer, Awaitable):
        if isinstance(answer, CoroutineType):
            answer.close()  # begun anew when the call has its place in the queue
        return False
    if (reason := why_disabled(answer)) is None:
        return True
    if may_change:
        return False
    raise _not_available(tool, reason)


async def _wait_available(tool: Tool, services: CallServices) -> None:
    """Refuse a tool whose own check says no, however long it takes to say so."""
    reason = await ask_enabled(tool, services.workspace, services.supervisor, services.abort)
    if reason is not None:
        raise _not_available(tool, reason)


def _not_available(tool: Tool, reason: str) -> Refusal:
    return Refusal(
        "lookup",
        f"`{tool.name}` is not available: {reason}.",
        "Do without it or use another tool: choose what is safest, and say at the end what you could not do.",
        person=f"not available: {reason}",
    )


# bind: raw JSON → checked input and Python values


def bind(call: ToolCall, tool: Tool) -> BoundCall:
    """Read the input, give its fields their canonical names, and check it."""
    if not call.complete:
        raise _cut_off(tool)
    input, notes = _read_input(call, tool)
    parameters = tool.parameters
    if parameters.aliases:
        input = _rename_aliases(input, parameters.aliases)
    try:
        return BoundCall(call, tool, input, parameters.accept(input), notes)
    except InvalidInput as error:
        return _bind_coerced(call, tool, input, notes, error)


def _read_input(call: ToolCall, tool: Tool) -> tuple[dict[str, Any], tuple[str, ...]]:
    if isinstance(call.input, dict):
        # From a program: its strings may hold file names that are no Unicode, which JSON could not.
        if any(isinstance(item, dict | list) for item in call.input.values()) and is_too_deep(call.input):
            raise _unreadable_input(tool, str(TooDeep()))
        return call.input, ()
    from wieldy.core.schema.json_repair import UnreadableJson, read_object

    try:
        read = read_object(call.input)
    except UnreadableJson as error:
        if error.cut_off:
            raise _cut_off(tool) from None
        raise _unreadable_input(tool, error.reason) from None
    return read.value, read.notes


def _unreadable_input(tool: Tool, reason: str) -> Refusal:
    problem = f"{tool.name} was not run. {reason}"
    return Refusal("schema", f"InputValidationError: {problem}", "Send the call again.", person=problem)


def _cut_off(tool: Tool) -> Refusal:
    return Refusal(
        "schema",
        f"The input of `{tool.name}` was cut off before it was complete, so the call was not run.",
        "Send it again with less in it, for example in several smaller calls.",
        person="its input was cut off before it was complete",
    )


def _rename_aliases(input: dict[str, Any], aliases: Mapping[str, str]) -> dict[str, Any]:
    if aliases.keys().isdisjoint(input):
        return input
    renamed: dict[str, Any] = {}
    for key, item in input.items():
        canonical = aliases.get(key, key)
        # Where the model sent both spellings the alias stays, and is reported as a field too many.
        renamed[key if canonical in input and canonical != key else canonical] = item
    return renamed


def _bind_coerced(
    call: ToolCall, tool: Tool, input: dict[str, Any], notes: tuple[str, ...], error: InvalidInput
) -> BoundCall:
    from wieldy.core.schema.check import explain, suggest_retry
    from wieldy.core.schema.coerce import coerce

    translated = tool.translate(input)
    coerced, coercions = coerce(tool.schema, translated)
    try:
        if coercions or translated is not input:
            return BoundCall(call, tool, coerced, tool.parameters.accept(coerced), (*notes, *coercions))
    except InvalidInput as remaining:
        error = remaining
    problem = explain(tool.name, error.problems, tool.schema)
    data = [{"field": p.path, "expected": p.expected, "got": p.got} for p in error.problems]
    next_step = suggest_retry(tool.name, tool.schema)
    raise Refusal("schema", f"InputValidationError: {problem}", next_step, person=problem, data=data) from None


# normalize: absolute paths, canonical input, effects


def normalize(bound: BoundCall, workspace: Workspace) -> PlannedCall:
    """Plan a call in the current folder. The tool gets the values of the canonical input."""
    tool = bound.tool
    input = tool.normalize(bound.input, workspace)
    if tool.paths:
        input = _make_paths_absolute(input, tool, workspace)
    args = bound.args if input is bound.input else _accept_canonical(tool, input)
    effects = tool.effects(input, workspace)
    safe = tool.concurrency_safe(input)
    resolved = _resolve_paths(effects, workspace.files) if workspace.files.is_local else {}
    touches = effects
    if any(path != real for path, real in resolved.items()):
        touches = (*touches, *_by_realpath(effects, resolved))
    if tool.uses_folder or input is not bound.input:
        touches = (*touches, USES_FOLDER)
    return PlannedCall(bound.call, tool, input, args, effects, bound.notes, resolved, workspace.cwd, touches, safe)


def _by_realpath(effects: Effects, resolved: Mapping[str, str]) -> Iterator[Effect]:
    """The effects on files as if they were declared with realpaths: two names of a file are one file."""
    for effect in effects:
        if isinstance(effect, Reads | Writes):
            yield replace(effect, path=resolved[effect.path])
        elif isinstance(effect, InTurn):
            yield replace(effect, name=resolved.get(effect.name, effect.name))


async def resolve_remote(plan: PlannedCall, workspace: Workspace) -> PlannedCall:
    """Complete a plan on a backend: its paths are resolved in a thread, when the call has its place in the queue."""
    if workspace.files.is_local:
        return plan
    return replace(plan, resolved_paths=await in_thread(_resolve_paths, plan.effects, workspace.files))


async def decide(plan: PlannedCall, opinions: tuple[Opinion, ...], judge: Judge, workspace: Workspace) -> Decision:
    """Judge a call; in a thread where that looks at the files of a backend."""
    return await workspace.files.run(judge.decide, plan, opinions)


def _make_paths_absolute(input: dict[str, Any], tool: Tool, workspace: Workspace) -> dict[str, Any]:
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


def _accept_canonical(tool: Tool, input: dict[str, Any]) -> Any:
    try:
        return tool.parameters.accept(input)
    except InvalidInput as error:
        raise RuntimeError(f"the canonical form made by {tool.name} does not fit its own schema: {error}") from None


def _resolve_paths(effects: Effects, files: FileSystem) -> dict[str, str]:
    """Map declared paths to their realpaths. Judging and opening both use these, so that nothing can be swapped between."""
    try:
        paths = dict.fromkeys(effect.path for effect in effects if isinstance(effect, Reads | Writes))
        return {path: files.realpath(path) for path in paths}
    except PathChanged as error:
        raise Refusal("normalize", f"{error.filename} {PATH_KEEPS_CHANGING}.", "Try again later.") from None


# queue: wait only for earlier calls whose effects clash


async def _wait_for_admission(
    bound: BoundCall, plan: PlannedCall, ticket: Ticket, services: CallServices
) -> PlannedCall:
    """Wait, then plan again: the calls before this one may have moved the session, made symlinks, loaded skills."""
    await services.queue.wait_admitted(ticket, services.abort)
    while True:
        before, plan = plan, normalize(bound, services.workspace)
        if plan.touches == before.touches:
            return plan
        await _readmit(plan, ticket, services)


async def _readmit(plan: PlannedCall, ticket: Ticket, services: CallServices) -> None:
    await services.queue.readmit(ticket, plan.touches, plan.safe, services.abort)


def _context(call: ToolCall, services: CallServices, turn: Turn | None) -> ToolContext:
    return ToolContext(
        call.id,
        services.workspace,
        services.abort,
        services.events.emit,
        services.judge,
        None if turn is None else turn.message_id,
        () if turn is None else turn.call_ids,
        services.read_options,
        deps=services.deps,
    )


# consult and authorize: opinions → decision → cleared call


async def _clear_where_it_starts(
    plan: PlannedCall, ticket: Ticket, ctx: ToolContext, services: CallServices
) -> tuple[ClearedCall, tuple[str, ...]]:
    """Clear a call and let it start. If the folder is another by then, or gone, the call is planned and judged again."""
    workspace = services.workspace
    cleared: ClearedCall | None = None
    added_context: tuple[str, ...] = ()
    while True:
        try:
            if cleared is None:
                cleared, added_context = await _clear(plan, ticket, ctx, services)
            await services.queue.start(ticket, services.abort)
            if workspace.cwd == cleared.plan.cwd or USES_FOLDER not in cleared.plan.touches:
                ctx.plan = cleared.plan
                return cleared, added_context
            services.queue.pause(ticket)
            plan, notice = cleared.plan, ""
        except FolderGone:
            assert ctx.plan is not None
            plan, notice = ctx.plan, ""
            if workspace.cwd == plan.cwd:
                workspace.cwd = workspace.root
                notice = f"the working directory {plan.cwd} no longer exists; this ran in {workspace.root}"
        again = await _plan_again(plan, ticket, services)
        if notice:
            again = replace(again, notes=(*again.notes, notice))
        is_same = again.effects == plan.effects and not any(effect.opaque for effect in again.effects)
        cleared = replace(cleared, plan=again) if cleared is not None and is_same else None
        plan = ctx.plan = again


async def _plan_again(plan: PlannedCall, ticket: Ticket, services: CallServices) -> PlannedCall:
    again = await resolve_remote(normalize(bind(plan.call, plan.tool), services.workspace), services.workspace)
    await _readmit(again, ticket, services)
    return again


async def _clear(
    plan: PlannedCall, ticket: Ticket, ctx: ToolContext, services: CallServices
) -> tuple[ClearedCall, tuple[str, ...]]:
    """Gather opinions, check every rewrite, ask the person: return the call as it may run, and context added by hooks."""
    ctx.plan = plan
    if (unasked := await _clear_unasked(plan, ticket, services)) is not None:
        return unasked, ()
    opinions = await _check(plan, ctx, services)
    advice = await consult(plan, services)
    if any(each.updated_input is not None for each in advice.values()):
        plan, advice = await _rewrite_as_advised(plan, advice, ticket, ctx, services)
        opinions = await _check(plan, ctx, services)
    advised = [opinion for each in advice.values() for opinion in each.opinions]
    cleared, answer = await authorize(plan, (*opinions, *advised), ticket, services)
    if answer is not None and answer.updated_input is not None:
        plan = await _rewrite(plan, answer.updated_input, ticket, ctx, services)
        opinions = await _check(plan, ctx, services)
        # Only the person has seen this input.
        advised = [opinion for opinion in advised if opinion.behavior != "allow"]
        cleared, last = await authorize(plan, (*opinions, *advised), ticket, services, answered=answer)
        if last is not None and last is not answer and last.updated_input not in (None, answer.updated_input):
            problem = f"{plan.tool.name} was not run: its input was changed again after it had been changed."
            raise Refusal("permission", problem, "Tell the user.", person="its input was changed again, after a change")
    return cleared, tuple(line for each in advice.values() for line in each.context)


async def _clear_unasked(plan: PlannedCall, ticket: Ticket, services: CallServices) -> ClearedCall | None:
    """Clear a call that the rules allow, where no hook has a say and `run` itself makes the tool's check; else None."""
    needs_check = plan.tool.has_check and not plan.tool.rechecks_on_run
    if needs_check or _advisers(plan, services):
        return None
    decision = await decide(plan, (), services.judge, services.workspace)
    if decision.behavior != "allow":
        return None
    _announce_decision(plan, decision, None, ticket, services)
    return ClearedCall(plan, decision)


async def plan_and_check(call: ToolCall, services: CallServices) -> tuple[PlannedCall, tuple[Opinion, ...]]:
    """Plan a call that is not made, with the opinion of the tool's own check.

    Raises `Refusal` or `ToolFailure` for a call that would be refused before a decision.
    """
    plan = normalize(bind(call, lookup(call, services.catalog)), services.workspace)
    plan = await resolve_remote(plan, services.workspace)
    ctx = _context(call, services, None)
    ctx.plan = plan
    return plan, await _check(plan, ctx, services)


async def _check(plan: PlannedCall, ctx: ToolContext, services: CallServices) -> tuple[Opinion, ...]:
    """Run the tool's own check: no opinion, a doubt, or a refusal."""
    if not plan.tool.has_check:
        return ()
    try:
        doubt = await services.supervisor.run(plan.tool.check(plan.input, ctx), services.abort, _timeout(plan.tool))
    except (Refusal, ToolFailure):
        # A check may reveal what is in a file. Where the file is denied, only the denial to come is shown.
        if (await decide(plan, (), services.judge, services.workspace)).behavior != "deny":
            raise
        return ()
    return (Opinion(plan.tool.name, "ask", doubt.why),) if doubt else ()


def _advisers(plan: PlannedCall, services: CallServices) -> list[Adviser]:
    return [adviser for adviser in services.advisers if adviser.wants(plan)]


async def consult(plan: PlannedCall, services: CallServices, without: Collection[int] = ()) -> dict[int, Advice]:
    """Gather the advice of all hooks and analyses by their ids, `without` some; they run side by side.

    Where one fails, the others come to their end before the failure is raised.
    """
    advisers = [adviser for adviser in _advisers(plan, services) if id(adviser) not in without]
    replies = await asyncio.gather(*(_advise(adviser, plan, services) for adviser in advisers), return_exceptions=True)
    advice: dict[int, Advice] = {}
    for adviser, reply in zip(advisers, replies, strict=True):
        if isinstance(reply, BaseException):
            raise reply
        advice[id(adviser)] = reply
    return advice


async def _rewrite_as_advised(
    plan: PlannedCall, advice: dict[int, Advice], ticket: Ticket, ctx: ToolContext, services: CallServices
) -> tuple[PlannedCall, dict[int, Advice]]:
    """Plan the call with the last of the rewritten inputs. Advisers that rewrote nothing advise on the new one."""
    rewrites = {key: each for key, each in advice.items() if each.updated_input is not None}
    *_, last = rewrites.values()
    assert last.updated_input is not None
    plan = await _rewrite(plan, last.updated_input, ticket, ctx, services)
    others = await consult(plan, services, without=rewrites)
    if any(each.updated_input is not None for each in others.values()):
        problem = f"{plan.tool.name} was not run: those who may change its input cannot agree on one."
        raise Refusal("hook", problem, "Tell the user.")
    return plan, {**rewrites, **others}


async def _advise(adviser: Adviser, plan: PlannedCall, services: CallServices) -> Advice:
    try:
        return await services.supervisor.run(adviser.advise(plan), services.abort)
    except (Aborted, Deferred, Refusal, SessionError):
        raise
    except Exception as error:
        log.error("%s failed on call %s", type(adviser).__name__, plan.call.id, exc_info=error)
        problem = f"{plan.tool.name} was not run: it could not be checked ({_describe_error(error)})."
        raise Refusal("hook", problem, "Tell the user.") from error


async def _rewrite(
    plan: PlannedCall, input: Mapping[str, Any], ticket: Ticket, ctx: ToolContext, services: CallServices
) -> PlannedCall:
    """Plan the call anew with another input, checked like any other, and admit it again."""
    call = ToolCall(plan.call.id, plan.call.name, dict(input))
    ctx.plan = await _plan_again(replace(plan, call=call), ticket, services)
    return ctx.plan


async def authorize(
    plan: PlannedCall,
    opinions: tuple[Opinion, ...],
    ticket: Ticket,
    services: CallServices,
    *,
    answered: Answer | None = None,
) -> tuple[ClearedCall, Answer | None]:
    """Clear a call to run, asking the person where the decision is to ask.

    With `answered` they have just allowed this input, which they wrote themselves: it is judged, but not asked about again,
    except where a guard wants it asked: a program may have written it in their name.
    """
    decision = await decide(plan, opinions, services.judge, services.workspace)
    answer: Answer | None = None
    if any((reason.kind, reason.behavior) == ("guard", "ask") for reason in decision.reasons):
        answered = None
    if decision.behavior == "ask" and answered is None:
        while await services.queue.approval_order.wait_turn(ticket.order, services.abort):
            # The answers before this one may have added rules or set another mode.
            decision = await decide(plan, opinions, services.judge, services.workspace)
    if decision.behavior == "ask":
        if answered is None and services.events.has_subscribers:
            services.events.emit(PermissionAsked(call_id=plan.call.id, name=plan.tool.name, decision=decision))
        answer = answered or await _ask(Question(plan, decision), services)
        default_text = "yes" if answer.allowed else "no"
        reason = Reason("answer", "allow" if answer.allowed else "deny", answer.words or default_text)
        decision = Decision(reason.behavior, (reason, *decision.reasons), decision.suggestions)
    _announce_decision(plan, decision, answer, ticket, services)
    if decision.behavior != "allow":
        raise _denial(plan, decision, answer)
    return ClearedCall(plan, decision), answer


async def _ask(question: Question, services: CallServices) -> Answer:
    """Ask the person. A question that cannot be asked is a refusal."""
    try:
        return await services.supervisor.run(services.approver.ask(question), services.abort)
    except (Aborted, Deferred, Refusal, SessionError):
        raise
    except Exception as error:
        name = question.plan.tool.name
        log.error("the question about call %s failed", question.plan.call.id, exc_info=error)
        reason = _describe_error(error)
        services.events.emit(Notice(text=f"the question about {name} failed: {reason}"))
        problem = f"Permission denied for {name}: the user could not be asked ({reason})."
        person = f"not permitted: you could not be asked ({reason})"
        raise Refusal("permission", problem, "Tell them.", person=person, data=question.decision) from error


def _announce_decision(
    plan: PlannedCall, decision: Decision, answer: Answer | None, ticket: Ticket, services: CallServices
) -> None:
    services.queue.approval_order.leave(ticket.order)
    if services.events.has_subscribers:
        services.events.emit(
            PermissionDecided(call_id=plan.call.id, name=plan.tool.name, decision=decision, answer=answer)
        )


def _denial(plan: PlannedCall, decision: Decision, answer: Answer | None) -> Refusal:
    name, person, next_step = plan.tool.name, "you declined it", ""
    if answer is None:
        person = f"not permitted: {decision.explanation}"
        problem = f"Permission denied for {name}: {decision.why}."
        next_step = (
            "Do not try to get round this; use another way that is allowed, or tell the user what you would need."
        )
    elif answer.words:
        problem, person = f"Permission denied for {name}. The user said: {answer.words}", f"{person}: {answer.words}"
    else:
        problem = f"Permission denied for {name}: the user declined this call."
        next_step = "Stop and ask what they would like instead, or continue without it."
    return Refusal("permission", problem, next_step, person=person, data=decision)


# execute: drive the tool, forward progress, bound time


async def _run(
    cleared: ClearedCall, ctx: ToolContext, services: CallServices, added_context: tuple[str, ...]
) -> Outcome:
    """Execute a cleared call and have its outcome reviewed."""
    started = time.perf_counter()
    changes = any(map(is_lasting, cleared.plan.effects))
    if changes:
        services.session_catalog.invalidate(cleared.plan.effects)
    outcome: Outcome
    try:
        output = await execute(cleared.plan, ctx, services)
        outcome = Done((*output.blocks, *map(Text, added_context)), output.data, output.is_error)
    except (Deferred, SessionError):
        raise
    except Exception as error:
        outcome = _outcome_of_error(error, cleared.plan.call)
    if changes:
        services.session_catalog.invalidate(cleared.plan.effects)
    for reviewer in services.reviewers:
        review = reviewer.review(cleared.plan, outcome, time.perf_counter() - started)
        try:
            outcome = await services.supervisor.run(review, Abort())
        except SessionError:
            raise
        except Exception as error:  # the call has run: its outcome stands
            log.error("%s failed on call %s", type(reviewer).__name__, cleared.plan.call.id, exc_info=error)
    return outcome


async def execute(plan: PlannedCall, ctx: ToolContext, services: CallServices) -> Output:
    """Run the tool to its output. Raises `ToolFailure`, `Aborted`, or whatever the tool raised."""
    tool, events = plan.tool, services.events
    if events.has_subscribers:
        events.emit(ToolStarted(call_id=plan.call.id, name=tool.name, input=plan.input))

    def report(progress: Progress) -> None:
        if events.has_subscribers:
            text = tool.show_progress(progress)
            events.emit(ToolProgress(call_id=plan.call.id, name=tool.name, text=text, data=progress.data))

    timeout = _timeout(tool)
    try:
        call = partial(run_tool, tool, plan.args, ctx, report)
        return await services.supervisor.run_call(call, services.abort, timeout)
    except TimedOut as error:
        output = f" Until then it said:\n{text_of(error.partial.blocks)}" if error.partial is not None else ""
        raise ToolFailure(f"{tool.name} did not finish within {timeout:g} s and was stopped.{output}") from None


async def run_tool(tool: Tool, args: Any, ctx: ToolContext, report: Callable[[Progress], None]) -> Output:
    """Drive `Tool.run` to its result."""
    async with aclosing(iterate_tool(tool, args, ctx)) as items:
        async for item in items:
            if isinstance(item, Output):
                return item
            report(item)
    raise ToolFailure(f"{tool.name} ended without a result. This is a fault of the tool, not of the call.")


async def iterate_tool(tool: Tool, args: Any, ctx: ToolContext) -> AsyncGenerator[Progress | Output, None]:
    """Drive `Tool.run`: yield its progress, then its result."""
    running: Any = tool.run(args, ctx)
    if isinstance(running, CoroutineType) or not hasattr(running, "__aiter__"):
        yield as_output(await running)
        return
    try:
        async for item in running:
            yield item if isinstance(item, Progress) else as_output(item)
            if not isinstance(item, Progress):
                return
    finally:
        if (close := getattr(running, "aclose", None)) is not None:
            await close()


def _timeout(tool: Tool) -> float:
    return DEFAULT_TIMEOUT if tool.timeout is None else tool.timeout


# outcomes and events


def _outcome_of_error(error: BaseException, call: ToolCall) -> Outcome:
    match error:
        case Refusal():
            return Refused(error.stage, error.advice, error.data, error.person if error.person != error.advice else "")
        case ToolFailure():
            output = "".join(f"\n{part}" for part in (error.stderr, error.stdout) if part)
            person = error.person + output if error.person != error.message else ""
            return Failed(error.message + output, error.data, person)
        case Aborted():
            return Interrupted(error.reason, text_of(error.partial.blocks) if isinstance(error.partial, Output) else "")
    if not isinstance(error, Exception):
        error = HostExitAttempted(error)
    causes = tuple(describe_causes(error))
    _log_error(error, call, has_traceback=ERRORS_LEFT_OUT not in causes)
    if isinstance(error, HostExitAttempted):
        return Failed(f"{call.name} failed: {error}. This is a fault of the tool, not of the call.")
    person = f"{call.name} failed: {describe_error(error)}"
    return Failed("\n".join((person, *causes)), person=person)


def _log_error(error: BaseException, call: ToolCall, *, has_traceback: bool) -> None:
    """Log what a tool raised; formatting its traceback may run code of it, or take a minute for a million errors."""
    try:
        log.error("%s failed on call %s", call.name, call.id, exc_info=error if has_traceback else None)
    except BaseException as failure:
        raise_if_ctrl_c(failure)
        log.error("%s failed on call %s, and its error cannot be logged", call.name, call.id)


def _describe_error(error: BaseException) -> str:
    if isinstance(error, HostExitAttempted):
        return str(error)
    return describe_error(error)


def _announce(call: ToolCall, result: ToolResult, started: float, services: CallServices) -> None:
    if not services.events.has_subscribers:
        return
    kind: type[ToolEnded] = ToolFailed if result.is_error else ToolSucceeded
    if isinstance(result.outcome, Interrupted):
        kind = ToolCancelled
    seconds = time.perf_counter() - started
    input = call.input if isinstance(call.input, Mapping) else None
    services.events.emit(kind(call_id=call.id, name=call.name, result=result, seconds=seconds, input=input))
