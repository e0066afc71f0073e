"""Agent: hands a task to a subagent, which works in its own context and reports back."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from wieldy.core.effects import NO_EFFECTS, USES_FILES, Delegates, Effects
from wieldy.core.errors import Deferred, Refusal, ToolFailure
from wieldy.core.outcome import ToolResult
from wieldy.core.threads import in_thread
from wieldy.core.tool import Output, ToolContext
from wieldy.core.tool_decorator import FunctionTool, drop_fields, tool
from wieldy.core.workspace import Workspace
from wieldy.tools import builtin_tool
from wieldy.tools.subagents import SubagentHandle

if TYPE_CHECKING:
    from wieldy.tools.subagents import AgentDefinition, SubagentReport

MAX_SECONDS = 6 * 3600.0


class AgentTool(FunctionTool):
    def show_use(self, input: Mapping[str, Any]) -> str:
        if agent_id := input.get("agent_id"):
            action = "stop" if input.get("stop") else "go on" if input.get("prompt") else "wait"
            return f"Agent({agent_id}: {action})"
        task = input.get("description") or " ".join(str(input.get("prompt", "")).split())[:60]
        return f"Agent({input.get('agent_type', 'general')}: {task})"

    def show_result(self, result: ToolResult) -> str:
        """The first lines of the report, then its summary line."""
        lines = result.text.splitlines()
        summary = lines.pop() if lines and lines[-1].startswith("[") else ""
        first_lines = [line for line in lines if line.strip()][:4]
        return "\n".join([*first_lines, *([summary] if summary else [])])


def _normalize(input: dict[str, Any], workspace: Workspace) -> dict[str, Any]:
    """Fill in the agent type, so that rules and hooks see it."""
    if agent_type := input.get("agent_type"):
        known = _known_type(agent_type, workspace.services.agent_types.definitions)
        return input if known == agent_type else {**input, "agent_type": known}
    handle = workspace.services.subagent_registry.find(str(input.get("agent_id", "")))
    agent_type = handle.task.definition.name if handle is not None else "general"
    return {**input, "agent_type": agent_type}


def _known_type(name: str, definitions: Iterable[str]) -> str:
    """The agent type that is meant: Claude Code writes `Explore` and `general-purpose`."""
    if name in definitions:
        return name
    folded = "general" if name == "general-purpose" else name.casefold()
    return next((known for known in definitions if known.casefold() == folded), name)


def reads_only(definition: AgentDefinition) -> bool:
    """Whether an agent cannot change anything: because of its mode, or because all its tools only read."""
    return definition.mode == "plan" or (definition.tools is not None and all(map(_only_reads, definition.tools)))


def _only_reads(tool_name: str) -> bool:
    tool = builtin_tool(tool_name)
    return tool is not None and tool.read_only and tool.group != "agents"  # such a tool may start an agent that writes


def _effects(input: Mapping[str, Any], workspace: Workspace) -> Effects:
    if input.get("agent_id") and not input.get("prompt"):
        return NO_EFFECTS  # waiting and stopping touch nothing
    if input.get("run_in_background"):
        return (Delegates(contained=True),)  # the call returns before the work begins
    definition = workspace.services.agent_types.definitions.get(str(input.get("agent_type")))
    if definition is None or reads_only(definition) or definition.isolation or input.get("isolation"):
        return (Delegates(contained=True), USES_FILES)  # what it changes is in a copy of its own
    return (Delegates(),)


async def _enabled(workspace: Workspace) -> bool | str:
    if (refusal := workspace.services.subagent_access.refusal()) is not None:
        return refusal
    types = workspace.services.agent_types
    await types.refresh_in_thread()
    types.report_problems()
    return True


async def _check(input: Mapping[str, Any], ctx: ToolContext) -> None:
    prompt = str(input.get("prompt", "")).strip()
    if input.get("agent_id"):
        _check_earlier(input, prompt, ctx.workspace)
        return
    if not prompt:
        raise Refusal(
            "check", "`prompt` is empty.", "Say in it what the agent is to do, and all that it needs to know."
        )
    if input.get("stop"):
        raise Refusal("check", "`stop` needs `agent_id`.", "Say which agent is to be stopped.")
    types = ctx.workspace.services.agent_types
    if input["agent_type"] not in types.definitions and input["agent_type"] not in await in_thread(types.refresh):
        raise Refusal("check", f"There is no agent `{input['agent_type']}`.", f"The kinds are:\n{types.listing()}")


def _check_earlier(input: Mapping[str, Any], prompt: str, workspace: Workspace) -> None:
    """Refuse what an earlier agent could not heed."""
    if prompt and input.get("stop"):
        raise Refusal("check", "An agent cannot be stopped and continued at once.", "Send either `stop` or a `prompt`.")
    if input.get("isolation"):
        problem = "`isolation` is for a new agent: an earlier one continues where it worked."
        raise Refusal("check", problem, "Leave `isolation` out, or send a new agent without `agent_id`.")
    if not prompt and (name := next((name for name in ("tools", "run_in_background") if input.get(name)), None)):
        problem = f"`{name}` needs a `prompt`: without one, `agent_id` waits for the agent or stops it."
        raise Refusal("check", problem, f"Leave `{name}` out, or say in a `prompt` what the agent is to do next.")
    handle = workspace.services.subagent_registry.find(str(input["agent_id"]))
    if handle is not None and handle.task.definition.name != input["agent_type"]:
        problem = f"{handle.id} is a `{handle.task.definition.name}` agent."
        raise Refusal("check", problem, "Leave `agent_type` out, or send a new agent.")


@tool(
    cls=AgentTool,
    name="Agent",
    described_in=__file__,
    group="agents",
    rules="choice",
    main_field="agent_type",
    fails={"agent_id": "agent_x"},
    read_only=True,
    needs_permission=False,
    effects=_effects,
    normalize=_normalize,
    enabled=_enabled,
    check=_check,
    translate=lambda input: drop_fields(input, "model", "name", "max_turns"),
    aliases={"subagent_type": "agent_type", "resume": "agent_id"},
    max_result_chars=100_000,
    timeout=MAX_SECONDS,
    input_schema={
        "type": "object",
        "properties": {
            "description": {"type": "string", "description": "3-5 words for the user"},
            "prompt": {"type": "string", "description": "The task, with all it needs to know"},
            "agent_type": {"type": "string", "description": "explore, general, or one of your agents"},
            "tools": {"type": "array", "items": {"type": "string"}, "description": "Narrow it to these"},
            "run_in_background": {"type": "boolean"},
            "isolation": {"enum": ["worktree"], "description": "It works in a copy; you get a patch"},
            "agent_id": {"type": "string", "description": "An earlier agent"},
            "stop": {"type": "boolean"},
        },
        "additionalProperties": False,
    },
)
async def agent(  # noqa: PLR0913, PLR0917 - the tool's parameters
    ctx: ToolContext,
    agent_type: str,
    prompt: str = "",
    description: str = "",
    tools: list[str] | None = None,
    run_in_background: bool = False,
    isolation: str = "",
    agent_id: str = "",
    stop: bool = False,
) -> Output:
    """Start an agent, or continue, stop or await an earlier one."""
    from wieldy.tools.subagents import SubagentTask

    if agent_id and not prompt.strip():
        return await _await_or_stop(_find_handle(ctx, agent_id), stop=stop)
    definition = await _definition(ctx, agent_type, agent_id)
    if isolation:
        definition = replace(definition, isolation=isolation)
    access = ctx.workspace.services.subagent_access
    background = (run_in_background or definition.background) and access.depth == 0
    narrowed = None if tools is None else tuple(tools)
    task = SubagentTask(definition, prompt, description, narrowed, agent_id or None, background)
    assert access.start is not None
    handle = await access.start(task, ctx)
    if background:
        message = f"The {agent_type} agent {handle.id} is at work. You will be told when it ends; continue meanwhile."
        return Output(message, {"agentId": handle.id, "agentType": agent_type, "status": "running"})
    return await await_report(handle, ctx)


async def _definition(ctx: ToolContext, agent_type: str, agent_id: str) -> AgentDefinition:
    """The definition of an agent type; an earlier agent keeps the one it was started with."""
    handle = ctx.workspace.services.subagent_registry.find(agent_id)
    if handle is not None and handle.task.definition.name == agent_type:
        return handle.task.definition
    types = ctx.workspace.services.agent_types
    definition = types.definitions.get(agent_type) or (await in_thread(types.refresh)).get(agent_type)
    if definition is None:
        raise ToolFailure(f"There is no agent `{agent_type}`.", f"The kinds are:\n{types.listing()}")
    return definition


async def await_report(handle: SubagentHandle, ctx: ToolContext) -> Output:
    """Wait for the report of an agent. Cancellation stops the agent and returns what it has done so far.

    Raises `Deferred` where the agent has questions that are answered later.
    """
    try:
        return _output(await handle.report())
    except asyncio.CancelledError:
        return _output(await handle.stop(ctx.abort.reason or "it was stopped"))


async def _await_or_stop(handle: SubagentHandle, *, stop: bool) -> Output:
    if stop and handle.running:
        report = await handle.stop("stopped by the agent that started it")
        return Output(f"The agent {handle.id} was stopped.\n\n{report.as_text()}", report.as_dict())
    return _output(await handle.report())


def _find_handle(ctx: ToolContext, agent_id: str) -> SubagentHandle:
    registry = ctx.workspace.services.subagent_registry
    if (handle := registry.find(agent_id)) is not None:
        return handle
    known = ", ".join(f"{each.id} ({'at work' if each.running else 'over'})" for each in registry.all()) or "none"
    raise ToolFailure(f"There is no agent `{agent_id}` to wait for.", f"Known agents: {known}.")


def _output(report: SubagentReport) -> Output:
    if report.waiting:
        raise Deferred
    return Output(report.as_text(), report.as_dict(), is_error=not report.done)
