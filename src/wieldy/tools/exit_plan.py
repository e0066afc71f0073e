"""ExitPlan: shows the plan to the user and, if they approve, restores the mode before plan mode."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Protocol, runtime_checkable

from wieldy.core.errors import Refusal
from wieldy.core.schema.fields import Param
from wieldy.core.tool import Doubt, Output, ToolContext
from wieldy.core.tool_decorator import FunctionTool, drop_fields, tool


@runtime_checkable
class HasMode(Protocol):
    """A judge whose mode can be changed and that remembers the mode before plan mode."""

    mode: str
    mode_before_plan: str


class ExitPlan(FunctionTool):
    def show_use(self, input: Mapping[str, Any]) -> str:
        return f"Leave plan mode and start on this plan?\n\n{input.get('plan', '')}"

    def show_rejection(self, input: Mapping[str, Any], why: str) -> str:
        return f"The plan was not approved: {why}"


async def _check(input: Mapping[str, Any], ctx: ToolContext) -> Doubt:
    """Always ask: no rule, mode or hook may approve a plan for the user."""
    if not isinstance(ctx.judge, HasMode):
        raise Refusal(
            "check", "There is no mode to leave: this program decides about calls itself.", "Continue with the work."
        )
    if not str(input["plan"]).strip():
        raise Refusal("check", "The plan is empty.", "Send the whole plan: the user sees nothing else of it.")
    return Doubt("work starts only when you approve the plan")


@tool(
    cls=ExitPlan,
    name="ExitPlan",
    described_in=__file__,
    group="person",
    fails={"plan": ""},
    read_only=True,
    needs_permission=False,
    concurrency_safe=False,
    check=_check,
    translate=lambda input: drop_fields(input, "allowedPrompts"),
)
async def exit_plan(ctx: ToolContext, plan: Annotated[str, Param("The whole plan, Markdown")]) -> Output:
    judge = ctx.judge
    assert isinstance(judge, HasMode)
    judge.mode = judge.mode_before_plan
    return Output(
        f"The user approved the plan. The mode is `{judge.mode}` now: start on it.", {"plan": plan, "mode": judge.mode}
    )
