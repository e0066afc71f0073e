"""Drive the tool: progress goes to whoever watches, the first result ends the run, time is bounded."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from types import CoroutineType
from typing import Any

from wieldy.core.call import ClearedCall
from wieldy.core.event import ToolProgress, ToolStarted
from wieldy.core.failure import ToolFailure
from wieldy.core.tool import Output, Progress, Tool, ToolContext
from wieldy.engine.bench import Bench
from wieldy.engine.leash import TimedOut
from wieldy.engine.output import as_output


async def execute(cleared: ClearedCall, ctx: ToolContext, bench: Bench) -> Output:
    """Run a cleared call to its output. Raises `ToolFailure`, `Aborted`, or whatever the tool raised."""
    plan = cleared.plan
    if bench.events.heard:
        bench.events.emit(ToolStarted(call_id=plan.call.id, name=plan.tool.name, input=plan.input))
    seconds = bench.limit_of(plan.tool)

    def report(progress: Progress) -> None:
        if bench.events.heard:
            shown = plan.tool.show_progress(progress)
            bench.events.emit(ToolProgress(call_id=plan.call.id, name=plan.tool.name, text=shown, data=progress.data))

    try:
        return await bench.leash.hold(output_of(plan.tool, plan.args, ctx, report), bench.abort, seconds)
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
