"""Architect: a plan by a subagent that only reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from wieldy.core.effects import NO_EFFECTS
from wieldy.core.errors import Refusal
from wieldy.core.outcome import ToolResult
from wieldy.core.tool import Output, ToolContext
from wieldy.core.tool_decorator import FunctionTool, tool
from wieldy.core.workspace import Workspace
from wieldy.tools.agent import MAX_SECONDS, await_report
from wieldy.tools.subagents import ARCHITECT, SubagentTask


class Architect(FunctionTool):
    def show_use(self, input: Mapping[str, Any]) -> str:
        return f"Architect({' '.join(str(input.get('prompt', '')).split())[:80]})"

    def show_result(self, result: ToolResult) -> str:
        return result.text


def _enabled(workspace: Workspace) -> bool | str:
    return workspace.services.subagent_access.refusal() or True


def _check(input: Mapping[str, Any], ctx: ToolContext) -> None:
    if not str(input["prompt"]).strip():
        raise Refusal("check", "`prompt` is empty.", "Say in it what is to be planned.")


@tool(
    cls=Architect,
    name="Architect",
    described_in=__file__,
    group="agents",
    fails={"prompt": ""},
    read_only=True,
    needs_permission=False,
    effects=lambda input, workspace: NO_EFFECTS,
    enabled=_enabled,
    check=_check,
    max_result_chars=100_000,
    timeout=MAX_SECONDS,
)
async def architect(
    ctx: ToolContext,
    prompt: Annotated[str, "What is to be done"],
    context: Annotated[str, "What is known already"] = "",
) -> Output:
    access = ctx.workspace.services.subagent_access
    assert access.start is not None
    task = f"{prompt}\n\nWhat is known already:\n{context}" if context.strip() else prompt
    return await await_report(await access.start(SubagentTask(ARCHITECT, task, "a plan"), ctx), ctx)
