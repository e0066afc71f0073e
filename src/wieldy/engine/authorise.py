"""Allow, ask or refuse. The judge decides, the person answers; nothing is run here."""

from __future__ import annotations

from wieldy.core.call import ClearedCall, PlannedCall
from wieldy.core.decision import Answer, Decision, Opinion, Question, Reason
from wieldy.core.event import PermissionAsked, PermissionDecided
from wieldy.core.failure import Refusal
from wieldy.engine.bench import Bench
from wieldy.engine.queue import Place


async def authorise(
    plan: PlannedCall, opinions: tuple[Opinion, ...], place: Place, bench: Bench
) -> tuple[ClearedCall, Answer | None]:
    """Clear a call to run, asking the person where the decision is to ask."""
    decision = bench.judge.decide(plan, opinions)
    answer: Answer | None = None
    if decision.behavior == "ask":
        await bench.queue.turnstile.turn(place.order, bench.abort)
        answer = await _ask(plan, decision, bench)
        decision = _after(decision, answer)
    _decided(plan, decision, answer, place, bench)
    if decision.behavior != "allow":
        raise Refusal("permission", _denial(plan, decision, answer), data=decision)
    return ClearedCall(plan, decision), answer


def waved_through(plan: PlannedCall, place: Place, bench: Bench) -> ClearedCall | None:
    """Clear a call that is allowed without anybody having a say in it; None where somebody has."""
    if bench.reviewers or any(adviser.wants(plan) for adviser in bench.advisers):
        return None
    decision = bench.judge.decide(plan, ())
    if decision.behavior != "allow":
        return None
    _decided(plan, decision, None, place, bench)
    return ClearedCall(plan, decision)


def _decided(plan: PlannedCall, decision: Decision, answer: Answer | None, place: Place, bench: Bench) -> None:
    bench.queue.turnstile.leave(place.order)
    if bench.events.heard:
        bench.events.emit(
            PermissionDecided(call_id=plan.call.id, name=plan.tool.name, decision=decision, answer=answer)
        )


async def _ask(plan: PlannedCall, decision: Decision, bench: Bench) -> Answer:
    if bench.events.heard:
        bench.events.emit(PermissionAsked(call_id=plan.call.id, name=plan.tool.name, decision=decision))
    return await bench.leash.hold(bench.approver.ask(Question(plan, decision)), bench.abort)


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
