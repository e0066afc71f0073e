"""OpenAI Agents SDK: the tools of a toolbox as function tools. `box.as_openai_agents()` makes them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any

from agents.tool import FunctionToolCustomDataContext
from agents.tool_context import ToolContext

from agents import FunctionTool, RunContextWrapper, ToolOutputImage, ToolOutputText
from wieldy.core.call import ToolCall
from wieldy.core.json_values import to_json
from wieldy.core.outcome import ToolResult
from wieldy.core.schema.provider_dialects import OPENAI, adapt_schema
from wieldy.engine.framework_calls import ApprovalNeeded, FrameworkCalls, convert_content, describe

if TYPE_CHECKING:
    from wieldy.core.tool import Tool
    from wieldy.engine.toolbox import Toolbox


class WieldyFunctionTools(list[FunctionTool]):
    """Function tools for `Agent(tools=…)`. What needs permission interrupts the run until it is approved or rejected.

    `questions` says of each call that waits for approval, by its id, why, and which rules would allow it. `data` of a result
    is the custom data of its output item.
    """

    def __init__(self, box: Toolbox) -> None:
        self.box = box
        self.questions: dict[str, dict[str, Any]] = {}
        self._calls = FrameworkCalls(box)
        self._data: dict[str, Any] = {}
        super().__init__(self._function_tool(tool) for tool in self._calls.tools())

    def _function_tool(self, tool: Tool) -> FunctionTool:
        name = tool.name

        async def invoke(context: ToolContext[Any], arguments: str) -> Any:
            return await self._invoke(name, context, arguments)

        async def needs_approval(context: RunContextWrapper[Any], input: dict[str, Any], call_id: str) -> bool:
            step = _step(context)
            self._calls.order.announce(step, call_id)
            try:
                needed = await self._calls.needs_approval(name, input)
            except BaseException:
                self._calls.order.withdraw(step, call_id)
                raise
            if needed is None:
                return False
            self._calls.order.withdraw(step, call_id)
            self.questions[call_id] = needed.as_dict()
            return True

        return FunctionTool(
            name=name,
            description=describe(tool),
            params_json_schema=adapt_schema(tool.schema, OPENAI),
            on_invoke_tool=invoke,
            strict_json_schema=False,
            needs_approval=needs_approval,
            custom_data_extractor=self._take_data,
        )

    async def _invoke(self, name: str, context: ToolContext[Any], arguments: str) -> Any:
        call = ToolCall(context.tool_call_id, name, arguments or "{}")
        approved = context.is_tool_approved(name, call.id) is True
        self.questions.pop(call.id, None)
        outcome = await self._calls.run(_step(context), call, approved=approved, keep=context.usage)
        if isinstance(outcome, ApprovalNeeded):
            # The decision came from a hook or from the tool's own check, after the framework had asked.
            return f"Permission denied for {name}: {outcome.decision.why}, and it was not approved."
        self._data[call.id] = to_json(outcome.data)
        return _output(outcome)

    def _take_data(self, context: FunctionToolCustomDataContext) -> Mapping[str, Any] | None:
        data = self._data.pop(context.tool_context.tool_call_id, None)
        return None if data is None else {"data": data}


def _step(context: RunContextWrapper[Any]) -> Hashable:
    """The key of a step in its run: each answer of the model is one request, so the count of requests tells them apart."""
    return id(context.usage), context.usage.requests


def _output(result: ToolResult) -> Any:
    return convert_content(
        result,
        text=lambda text: ToolOutputText(text=text),
        image=lambda image: ToolOutputImage(image_url=f"data:{image.media_type};base64,{image.data}"),
    )
