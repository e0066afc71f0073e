"""LangChain and LangGraph: the tools of a toolbox as LangChain tools. `box.as_langchain()` makes them."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from langchain_core.messages import ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, ToolException
from langgraph.types import interrupt
from pydantic import ConfigDict, PrivateAttr

from wieldy.core.call import ToolCall
from wieldy.core.errors import WieldyError
from wieldy.core.json_values import to_json
from wieldy.core.outcome import ToolResult
from wieldy.core.schema.provider_dialects import OPENAI, adapt_schema
from wieldy.engine.framework_calls import ApprovalNeeded, FrameworkCalls, convert_content, describe

if TYPE_CHECKING:
    from wieldy.core.tool import Tool
    from wieldy.engine.toolbox import Toolbox

_CALL_ID: ContextVar[str | None] = ContextVar("call_id", default=None)
CHECKPOINTER_KEY = "__pregel_checkpointer"
"""Where LangGraph keeps the checkpointer of the graph that runs; None without one."""
REJECTED = "The user rejected this call. Do not repeat it; ask what to do instead."


class WieldyTool(BaseTool):
    """One tool of a toolbox. What needs permission calls `interrupt()`, which needs a graph with a checkpointer.

    The interrupt has the form of `HumanInTheLoopMiddleware`; resume it with `{"decisions": [{"type": "approve"}]}`, `"edit"`
    or `"reject"`. `data` of a result is the artifact of its message.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    response_format: Literal["content", "content_and_artifact"] = "content_and_artifact"
    handle_tool_error: Any = True
    _calls: FrameworkCalls = PrivateAttr()
    _artifacts: dict[str, Any] = PrivateAttr(default_factory=dict)

    @property
    def box(self) -> Toolbox:
        return self._calls.box

    def _run(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError("wieldy's tools are async: use `ainvoke` or `astream`")

    async def arun(self, tool_input: str | dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        call_id = kwargs.get("tool_call_id")
        _CALL_ID.set(call_id)
        message = await super().arun(tool_input, *args, **kwargs)
        if isinstance(message, ToolMessage) and call_id in self._artifacts:
            message.artifact = self._artifacts.pop(call_id)
        return message

    async def _arun(self, *args: Any, config: RunnableConfig, **input: Any) -> tuple[Any, Any]:
        id = _CALL_ID.get() or f"{self.name}-{config.get('run_id')}"
        call, step = ToolCall(id, self.name, input), _step(config)
        outcome = await self._calls.run(step, call)
        if isinstance(outcome, ApprovalNeeded):
            call = ToolCall(id, self.name, _approved_input(_interrupt(outcome, config), input))
            outcome = await self._calls.run(step, call, approved=True)
        if isinstance(outcome, ApprovalNeeded):
            raise ToolException(f"Permission denied for {self.name}: {outcome.decision.why}.")
        artifact = to_json(outcome.data)
        if outcome.is_error:
            self._artifacts[id] = artifact
            raise ToolException(outcome.text)
        return _content(outcome), artifact


def make_tools(box: Toolbox) -> list[BaseTool]:
    """The tools of a toolbox that can be offered now."""
    calls = FrameworkCalls(box)
    return [_make_tool(tool, calls) for tool in calls.tools()]


def _make_tool(tool: Tool, calls: FrameworkCalls) -> WieldyTool:
    schema = {"title": tool.name, **adapt_schema(tool.schema, OPENAI)}
    made = WieldyTool(name=tool.name, description=describe(tool), args_schema=schema)
    made._calls = calls
    return made


def _step(config: RunnableConfig) -> tuple[Any, Any] | None:
    """What the calls of one answer of the model have in common; None outside of a graph."""
    metadata, configurable = config.get("metadata") or {}, config.get("configurable") or {}
    number = metadata.get("langgraph_step")
    return None if number is None else (configurable.get("thread_id") or configurable.get("__pregel_run_id"), number)


def _interrupt(needed: ApprovalNeeded, config: RunnableConfig) -> Any:
    """Stop the graph until a person has decided, and return the decision."""
    if not (config.get("configurable") or {}).get(CHECKPOINTER_KEY, True):
        raise WieldyError(
            f"Permission is needed for {needed.name}, and the graph has no checkpointer to continue from: "
            "give create_agent(…, checkpointer=InMemorySaver()), or answer by Toolbox(ask=…)."
        )
    details = needed.as_dict()
    action = {"name": needed.name, "args": details["input"], "description": details["why"]}
    review = {"action_name": needed.name, "allowed_decisions": ["approve", "edit", "reject"]}
    request = {"action_requests": [action], "review_configs": [review], "metadata": details}
    try:
        return interrupt(request)
    except (KeyError, RuntimeError):  # how LangGraph says that there is no graph around this call
        raise ToolException(
            f"Permission is needed for {needed.name}, and there is no graph that could ask: {details['why']}."
        ) from None


def _approved_input(answer: Any, input: dict[str, Any]) -> dict[str, Any]:
    """The input to run with. Raises `ToolException` for a no, and for an invalid answer."""
    decisions = answer.get("decisions") if isinstance(answer, Mapping) else None
    decision = decisions[0] if isinstance(decisions, list) and decisions else answer
    kind = decision.get("type") if isinstance(decision, Mapping) else decision
    if kind == "approve":
        return input
    if kind == "edit" and isinstance(decision, Mapping):
        return dict(decision["edited_action"]["args"])
    if kind == "reject":
        message = decision.get("message") if isinstance(decision, Mapping) else None
        raise ToolException(f"The user rejected this call: {message}" if message else REJECTED)
    raise ToolException('The call was not run: the answer to its question was none of "approve", "edit" and "reject".')


def _content(result: ToolResult) -> str | list[dict[str, Any]]:
    content: str | list[dict[str, Any]] = convert_content(
        result,
        text=lambda text: {"type": "text", "text": text},
        image=lambda image: {"type": "image", "base64": image.data, "mime_type": image.media_type},
    )
    return content
