"""`--permission-prompt-tool mcp__SERVER__TOOL`: a tool of an MCP server answers permission questions."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from wieldy.core.decision import Answer, Question
from wieldy.core.errors import WieldyError
from wieldy.faces.headless.control_channel import ControlFailure
from wieldy.faces.headless.host import ControlHost

if TYPE_CHECKING:
    from wieldy.agent.session import Session


class PermissionTool:
    """Asks a tool, which answers with a JSON object like that of `can_use_tool`. Any failure is a no."""

    def __init__(self, name: str, host: ControlHost) -> None:
        self._name = name
        self._host = host
        self._session: Session | None = None

    def attach(self, session: Session) -> None:
        """Follow the session whose questions it answers."""
        self._session = session
        self._host.attach(session)

    async def ask(self, question: Question) -> Answer:
        plan = question.plan
        try:
            reply = await self._call({"tool_name": plan.tool.name, "input": plan.input, "tool_use_id": plan.call.id})
            return await self._host.interpret(reply, question)
        except WieldyError as failure:
            return Answer(False, f"nobody could be asked: {failure}")

    async def _call(self, arguments: dict[str, Any]) -> dict[str, Any]:
        from wieldy.mcp.tools import ServerTool

        assert self._session is not None
        box = self._session.box
        await box.workspace.services.mcp_servers.wait_for_tool(self._name)
        tool = box.catalog.find(self._name)
        if tool is None or not isinstance(tool := tool.unwrapped, ServerTool):
            raise ControlFailure(f"there is no tool {self._name} of an MCP server")
        result = await tool.call(arguments)
        texts = [part.text for part in result.content if part.type == "text"]
        try:
            reply = json.loads("\n".join(texts))
        except ValueError:
            reply = None
        if not isinstance(reply, dict):
            raise ControlFailure(f"{self._name} did not answer with a JSON object")
        return reply
