"""pydantic-ai: the tools of a toolbox as a toolset. `box.as_pydantic_ai()` makes one."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from pydantic_ai import ApprovalRequired, RunContext, ToolFailed
from pydantic_ai.messages import BinaryContent, ToolReturn
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import AbstractToolset
from pydantic_ai.toolsets.abstract import ToolsetTool
from pydantic_core import SchemaValidator, core_schema

from wieldy.core.call import ToolCall
from wieldy.core.json_values import to_json
from wieldy.core.outcome import ToolResult
from wieldy.core.schema.provider_dialects import OPENAI, adapt_schema
from wieldy.engine.framework_calls import ApprovalNeeded, FrameworkCalls, convert_content, describe

if TYPE_CHECKING:
    from wieldy.core.tool import Tool
    from wieldy.engine.toolbox import Toolbox

# Inputs are validated in the toolbox, which also repairs what models get wrong.
ANY_INPUT = SchemaValidator(schema=core_schema.any_schema())


class WieldyToolset(AbstractToolset[Any]):
    """The tools of a toolbox. What needs permission raises `ApprovalRequired`; a denial and a failure are failed results.

    `data` of a result is the metadata of its `ToolReturn`. `box.undo(turn=True)` takes back all calls of one step.
    """

    def __init__(self, box: Toolbox, *, id: str | None = "wieldy") -> None:
        self.box = box
        self._id = id
        self._calls = FrameworkCalls(box)

    @property
    def id(self) -> str | None:
        return self._id

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """The tools that can be offered now; tools of MCP servers appear when these are connected."""
        return {tool.name: self._tool(tool) for tool in self._calls.tools()}

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> ToolReturn[Any]:
        """Run one call. Raises `ApprovalRequired` or `ToolFailed`."""
        call = ToolCall(ctx.tool_call_id or f"{ctx.run_id}-{name}", name, dict(tool_args or {}))
        outcome = await self._calls.run((ctx.run_id, ctx.run_step), call, approved=ctx.tool_call_approved)
        if isinstance(outcome, ApprovalNeeded):
            raise ApprovalRequired(metadata=outcome.as_dict())
        if outcome.is_error:
            raise ToolFailed(outcome.text)
        return ToolReturn(_content(outcome), metadata=to_json(outcome.data))

    def _tool(self, tool: Tool) -> ToolsetTool[Any]:
        definition = ToolDefinition(
            name=tool.name,
            description=describe(tool),
            parameters_json_schema=adapt_schema(tool.schema, OPENAI),
            metadata={"read_only": tool.read_only},
        )
        return ToolsetTool(toolset=self, tool_def=definition, max_retries=0, args_validator=ANY_INPUT)


def _content(result: ToolResult) -> Any:
    return convert_content(
        result,
        text=str,
        image=lambda image: BinaryContent(base64.b64decode(image.data), media_type=image.media_type),
    )
