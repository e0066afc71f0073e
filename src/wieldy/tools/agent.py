"""Agent: a task handed to a sub-agent, which works in a context of its own and reports back."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from wieldy.core.effects import NO_EFFECTS, UNKNOWN_EFFECTS, Effects
from wieldy.core.errors import Refusal, ToolFailure
from wieldy.core.outcome import ToolResult
from wieldy.core.threads import in_thread
from wieldy.core.tool import Output, ToolContext
from wieldy.core.tool_decorator import FunctionTool, load_description
from wieldy.core.workspace import Workspace
from wieldy.subagents.definitions import AgentTypes
from wieldy.subagents.tasks import SubagentAccess, SubagentHandle, SubagentRegistry

if TYPE_CHECKING:
    from wieldy.subagents.definitions import AgentDefinition
    from wieldy.subagents.tasks import SubagentReport

DESCRIPTION, PROMPT = load_description(__file__)
LONGEST = 6 * 3600.0


class AgentTool(FunctionTool):
    """Shows a person who was sent to do what, and what it came to."""

    def show_use(self, input: Mapping[str, Any]) -> str:
        """The kind of agent and its task, in a few words."""
        if agent_id := input.get("agent_id"):
            doing = "stop" if input.get("stop") else "go on" if input.get("prompt") else "wait"
            return f"Agent({agent_id}: {doing})"
        task = input.get("description") or " ".join(str(input.get("prompt", "")).split())[:60]
        return f"Agent({input.get('agent_type', 'general')}: {task})"

    def show_result(self, result: ToolResult) -> str:
        """Its summary, then the first lines of what it said."""
        lines = result.text.splitlines()
        summary = lines.pop() if lines and lines[-1].startswith("[") else ""
        shown = [line for line in lines if line.strip()][:4]
        return "\n".join([*shown, *([summary] if summary else [])])


def _normalize(input: dict[str, Any], workspace: Workspace) -> dict[str, Any]:
    """Name the kind, so that rules and hooks see which it is."""
    if input.get("agent_type"):
        return input
    sent = workspace.service(SubagentRegistry).find(str(input.get("agent_id", "")))
    kind = sent.task.definition.name if sent is not None else "general"
    return {**input, "agent_type": kind}


def _effects(input: Mapping[str, Any], workspace: Workspace) -> Effects:
    if input.get("agent_id") and not input.get("prompt"):
        return NO_EFFECTS  # waiting and stopping touch nothing
    if input.get("run_in_background"):
        return NO_EFFECTS  # the call is over before the work begins; each call of the agent's is judged as it comes
    definition = workspace.service(AgentTypes).found.get(str(input.get("agent_type")))
    return NO_EFFECTS if definition is None or definition.reads_only else UNKNOWN_EFFECTS


async def _enabled(workspace: Workspace) -> bool | str:
    if (refusal := workspace.service(SubagentAccess).refusal()) is not None:
        return refusal
    types = workspace.service(AgentTypes)
    await types.refreshed()
    types.report()
    return True


async def _check(input: Mapping[str, Any], ctx: ToolContext) -> None:
    if (refusal := ctx.workspace.service(SubagentAccess).refusal()) is not None:
        raise Refusal("check", f"Agent cannot be used: {refusal}. Do the task yourself.")
    prompt = str(input.get("prompt", "")).strip()
    if input.get("agent_id"):
        if prompt and input.get("stop"):
            raise Refusal("check", "Either `stop` an agent or go on with it by a `prompt`, not both.")
        return
    if not prompt:
        raise Refusal("check", "Say in `prompt` what the agent is to do, and all that it needs to know.")
    types = ctx.workspace.service(AgentTypes)
    if input["agent_type"] not in types.found and input["agent_type"] not in await in_thread(types.refresh):
        raise Refusal("check", f"There is no agent `{input['agent_type']}`. The kinds are:\n{types.listing()}")


async def _run(
    ctx: ToolContext,
    agent_type: str,
    prompt: str = "",
    description: str = "",
    tools: list[str] | None = None,
    run_in_background: bool = False,
    agent_id: str = "",
    stop: bool = False,
) -> Output:
    """Send an agent, or see to one that was sent before."""
    from wieldy.subagents.tasks import SubagentTask

    if agent_id and not prompt.strip():
        return await _seen_to(_known(ctx, agent_id), stop=stop)
    definition = await _definition(ctx, agent_type, agent_id)
    task = SubagentTask(definition, prompt, description, None if tools is None else tuple(tools), agent_id or None)
    access = ctx.workspace.service(SubagentAccess)
    assert access.send is not None
    sent = await access.send(task, ctx)
    if (run_in_background or definition.background) and access.depth == 0:
        sent.background = True
        told = f"The {agent_type} agent {sent.id} is at work. You will be told when it ends; go on meanwhile."
        return Output(told, {"agentId": sent.id, "agentType": agent_type, "status": "running"})
    return await attended(sent, ctx)


async def _definition(ctx: ToolContext, agent_type: str, agent_id: str) -> AgentDefinition:
    """The kind that is named; one that was sent before is what it was, whatever files say by now."""
    sent = ctx.workspace.service(SubagentRegistry).find(agent_id)
    if sent is not None and sent.task.definition.name == agent_type:
        return sent.task.definition
    types = ctx.workspace.service(AgentTypes)
    found = types.found.get(agent_type) or (await in_thread(types.refresh)).get(agent_type)
    if found is None:
        raise ToolFailure(f"There is no agent `{agent_type}`. The kinds are:\n{types.listing()}")
    return found


async def attended(sent: SubagentHandle, ctx: ToolContext) -> Output:
    """The report of an agent as a result. Whoever is stopped while waiting stops the agent, and tells how far it came."""
    try:
        return _output(await sent.report())
    except asyncio.CancelledError:
        return _output(await sent.stop(ctx.abort.reason or "it was stopped"))


async def _seen_to(sent: SubagentHandle, *, stop: bool) -> Output:
    if stop and sent.running:
        report = await sent.stop("stopped by the agent that sent it")
        return Output(f"The agent {sent.id} was stopped.\n\n{report.told()}", report.data())
    return _output(await sent.report())


def _known(ctx: ToolContext, agent_id: str) -> SubagentHandle:
    registry = ctx.workspace.service(SubagentRegistry)
    if (sent := registry.find(agent_id)) is not None:
        return sent
    known = ", ".join(f"{one.id} ({'at work' if one.running else 'over'})" for one in registry.all()) or "none"
    raise ToolFailure(f"There is no agent `{agent_id}` to wait for. Known agents: {known}.")


def _output(report: SubagentReport) -> Output:
    return Output(report.told(), report.data(), is_error=not report.done)


agent = AgentTool(
    _run,
    {
        "name": "Agent",
        "description": DESCRIPTION,
        "prompt": PROMPT,
        "read_only": True,
        "needs_permission": False,
        "effects": _effects,
        "normalize": _normalize,
        "enabled": _enabled,
        "check": _check,
        "aliases": {"subagent_type": "agent_type", "resume": "agent_id"},
        "max_result_chars": 100_000,
        "timeout": LONGEST,
        "input_schema": {
            "type": "object",
            "properties": {
                "description": {"type": "string", "description": "3-5 words for the user"},
                "prompt": {"type": "string", "description": "The task, with all it needs to know"},
                "agent_type": {"type": "string", "description": "explore, general, or one of your agents"},
                "tools": {"type": "array", "items": {"type": "string"}, "description": "Narrow it to these"},
                "run_in_background": {"type": "boolean"},
                "agent_id": {"type": "string", "description": "An earlier agent"},
                "stop": {"type": "boolean"},
            },
            "additionalProperties": False,
        },
    },
)
