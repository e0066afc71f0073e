"""What others think of a call before it runs: the tool's own check, and hooks and analysis side by side."""

from __future__ import annotations

import asyncio

from wieldy.core.call import PlannedCall
from wieldy.core.decision import Advice, Opinion
from wieldy.core.failure import Refusal, ToolFailure
from wieldy.core.tool import ToolContext
from wieldy.engine.bench import Bench

NO_ADVICE = Advice()


async def consult(plan: PlannedCall, bench: Bench) -> Advice:
    """Gather every opinion. Rewrites were chained by the adviser that made them; the last adviser's stands."""
    asked = [adviser for adviser in bench.advisers if adviser.wants(plan)] if bench.advisers else None
    if not asked:
        return NO_ADVICE
    if len(asked) == 1:
        return await bench.leash.hold(asked[0].advise(plan), bench.abort)
    heard = await asyncio.gather(*(bench.leash.hold(adviser.advise(plan), bench.abort) for adviser in asked))
    rewritten = [advice.updated_input for advice in heard if advice.updated_input is not None]
    return Advice(
        opinions=tuple(opinion for advice in heard for opinion in advice.opinions),
        updated_input=rewritten[-1] if rewritten else None,
        context=tuple(line for advice in heard for line in advice.context),
    )


async def own_check(plan: PlannedCall, ctx: ToolContext, bench: Bench) -> tuple[Opinion, ...]:
    """What the tool itself says: nothing, a doubt, or a refusal."""
    if not plan.tool.checks:
        return ()
    try:
        doubt = await bench.leash.hold(plan.tool.check(plan.input, ctx), bench.abort, bench.limit_of(plan.tool))
    except (Refusal, ToolFailure):
        # Of what may not be touched at all nothing is told, not even that it is there: the denial to come says enough.
        if bench.judge.decide(plan, ()).behavior != "deny":
            raise
        return ()
    return (Opinion(plan.tool.name, "ask", doubt.why),) if doubt else ()
