"""What servers may ask of us: the project's folders, words from the person, and words from the model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wieldy.core.call import PlannedCall, ToolCall
from wieldy.core.decision import Approver, Decision, Question, Reason
from wieldy.core.effect import NOTHING
from wieldy.core.failure import Refusal
from wieldy.core.inquiry import Person
from wieldy.core.tool import Tool
from wieldy.core.workspace import Workspace
from wieldy.mcp.fields import inquiries, values


class Form(Tool):
    """A form that a server wants filled in, as the person is shown it: its fields are the input to be given back."""

    def __init__(self, server: str, message: str, schema: Mapping[str, Any], kind: str) -> None:
        self.name = f"mcp__{server}__{kind}"
        self.title = f"{server} asks"
        self.description = message
        self.input_schema = schema


class Answers:
    """The callbacks of one connection."""

    def __init__(self, server: str, workspace: Workspace, approver: Approver | None) -> None:
        self._server = server
        self._workspace = workspace
        self._approver = approver
        self._asked = 0

    async def roots(self, context: Any) -> Any:
        """The folders work may happen in."""
        from mcp_types import ListRootsResult, Root

        return ListRootsResult(
            roots=[Root.model_validate({"uri": Path(r).as_uri(), "name": Path(r).name}) for r in self._workspace.roots]
        )

    async def elicit(self, context: Any, params: Any) -> Any:
        """Put a server's question to the person; where nobody is there, or not everything was filled in, decline."""
        from mcp_types import ElicitResult

        url = getattr(params, "url", None)
        schema: Mapping[str, Any] = {"type": "object"} if url else dict(params.requested_schema)
        try:
            content = await self._filled(params.message, schema, url)
        except Refusal:
            content = None
        if content is None:
            return ElicitResult(action="decline")
        if url:
            return ElicitResult(action="accept")
        from wieldy.schema.check import Checker

        if not Checker(schema).fits(content):
            return ElicitResult(action="decline")
        return ElicitResult(action="accept", content=content)

    async def _filled(self, message: str, schema: Mapping[str, Any], url: str | None) -> dict[str, Any] | None:
        """What the person fills in: field by field where they can be asked so, else as a permission with an input of theirs."""
        person = self._workspace.resident(Person)
        if url is None and person.asker is not None and (asked := inquiries(self._server, message, schema)):
            return values(schema, await person.answer(asked))
        if self._approver is None:
            return None
        filled = {"url": url} if url else _defaults(schema)
        answer = await self._approver.ask(self._question(message, schema, filled))
        return {**filled, **(answer.updated_input or {})} if answer.allowed else None

    async def consent(self, to: str, about: str) -> bool:
        """Whether the person agrees to something that the server does; where nobody is there, they do not."""
        if self._approver is None:
            return False
        question = self._question(f"{to}: {about}", {"type": "object"}, {"text": about}, "sampling", to)
        try:
            return (await self._approver.ask(question)).allowed
        except Refusal:
            return False

    def _question(
        self, message: str, schema: Mapping[str, Any], filled: dict[str, Any], kind: str = "elicitation", why: str = ""
    ) -> Question:
        self._asked += 1
        form = Form(self._server, message, schema, kind)
        call = ToolCall(f"{kind}_{self._server}_{self._asked}", form.name, filled)
        plan = PlannedCall(call, form, filled, filled, NOTHING)
        reason = Reason("tool", "ask", f"the MCP server {self._server} {why or f'asks: {message}'}")
        return Question(plan, Decision("ask", (reason,)))


def _defaults(schema: Mapping[str, Any]) -> dict[str, Any]:
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        return {}
    return {name: p["default"] for name, p in properties.items() if isinstance(p, Mapping) and "default" in p}
