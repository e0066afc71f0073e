"""Requests that MCP servers make of us: roots, elicitation (answers from the person) and sampling (answers from the model)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from wieldy.core.call import PlannedCall, ToolCall
from wieldy.core.decision import Approver, Decision, Question, Reason
from wieldy.core.effects import NO_EFFECTS
from wieldy.core.errors import Refusal, WieldyError
from wieldy.core.messages import ContentBlock, Message
from wieldy.core.provider import CompletionFunction
from wieldy.core.text import truncate
from wieldy.core.threads import in_thread
from wieldy.core.tool import Tool
from wieldy.core.user_questions import UserAnswer, UserQuestion, UserQuestions
from wieldy.core.workspace import Workspace

YES, NO = "yes", "no"
MAX_SAMPLING_TOKENS = 16_000
MAX_SHOWN_CHARS = 2_000
SAMPLING_REFUSED, SAMPLING_FAILED = -1, -32603


class ElicitationTool(Tool):
    """Stands for an elicitation in a permission question: the fields of the form are its input."""

    def __init__(self, server: str, message: str, schema: Mapping[str, Any], kind: str) -> None:
        self.name = f"mcp__{server}__{kind}"
        self.title = f"{server} asks"
        self.description = message
        self.input_schema = schema


class ServerRequestHandler:
    """The roots and elicitation callbacks of one connection."""

    def __init__(self, server: str, workspace: Workspace, questions: UserQuestions, approver: Approver | None) -> None:
        self._server = server
        self._workspace = workspace
        self._questions = questions
        self._approver = approver
        self._question_count = 0

    async def list_roots(self, context: Any) -> Any:
        """Return the folders of the workspace, as far as they are on this machine, where the servers are."""
        from mcp_types import ListRootsResult, Root

        folders = self._workspace.roots if self._workspace.is_on_host else ()
        return ListRootsResult(
            roots=[Root.model_validate({"uri": Path(r).as_uri(), "name": Path(r).name}) for r in folders]
        )

    async def elicit(self, context: Any, params: Any) -> Any:
        """Ask the person; decline where no person can be asked or the answers do not fit the schema."""
        from mcp_types import ElicitResult

        from wieldy.core.schema.check import SchemaValidator
        from wieldy.mcp.definitions import InvalidDefinition, parse_input_schema

        url = getattr(params, "url", None)
        schema: Mapping[str, Any] = {"type": "object"} if url else dict(params.requested_schema)
        try:
            await in_thread(parse_input_schema, schema)  # as bounded as the schema of a tool
            content = await self._ask_person(params.message, schema, url)
        except (Refusal, InvalidDefinition):
            content = None
        if content is None or not (url or SchemaValidator(schema).fits(content)):
            return ElicitResult(action="decline")
        return ElicitResult(action="accept") if url else ElicitResult(action="accept", content=content)

    async def _ask_person(self, message: str, schema: Mapping[str, Any], url: str | None) -> dict[str, Any] | None:
        """Ask field by field where the person can answer questions, else by a permission question with editable input."""
        person = self._questions
        if url is None and person.available and (questions := form_questions(self._server, message, schema)):
            return form_values(schema, await person.answer(questions))
        if self._approver is None:
            return None
        fields = {"url": url} if url else _defaults(schema)
        answer = await self._approver.ask(self._question(message, schema, fields))
        return {**fields, **(answer.updated_input or {})} if answer.allowed else None

    async def ask_consent(self, action: str, shown: dict[str, Any]) -> bool:
        """Ask the person to consent to an action of the server once; no where no person can be asked."""
        if self._approver is None:
            return False
        question = self._question(action, {"type": "object"}, shown, "sampling", action)
        try:
            return (await self._approver.ask(question)).allowed
        except Refusal:
            return False

    def _question(
        self, message: str, schema: Mapping[str, Any], fields: dict[str, Any], kind: str = "elicitation", why: str = ""
    ) -> Question:
        self._question_count += 1
        tool = ElicitationTool(self._server, message, schema, kind)
        call = ToolCall(f"{kind}_{self._server}_{self._question_count}", tool.name, fields)
        plan = PlannedCall(call, tool, fields, fields, NO_EFFECTS)
        reason = Reason("tool", "ask", f"the MCP server {self._server} {why or f'asks: {message}'}")
        return Question(plan, Decision("ask", (reason,)))


def form_questions(server: str, message: str, schema: Mapping[str, Any]) -> list[UserQuestion]:
    """Return one question for each field; the first says which server asks, and for what."""
    questions: list[UserQuestion] = []
    required = schema.get("required", ())
    for name, field in _properties(schema).items():
        title = field.get("title") or name
        detail = f" ({field['description']})" if field.get("description") else ""
        default = f" [Enter: {_format_default(field['default'])}]" if "default" in field else ""
        optional = "" if name in required or default else " [optional]"
        intro = "" if questions else f"The MCP server {server} asks: {message}\n"
        options = tuple(_options(field))
        questions.append(
            UserQuestion(f"{intro}{title}{detail}{default}{optional}", options, field.get("type") == "array")
        )
    return questions


def form_values(schema: Mapping[str, Any], replies: Sequence[UserAnswer]) -> dict[str, Any]:
    """Convert replies to field values; a field without reply gets its default, or is left out."""
    values: dict[str, Any] = {}
    for (name, field), reply in zip(_properties(schema).items(), replies, strict=True):
        if str(reply):
            values[name] = _parse_reply(field, reply)
        elif "default" in field:
            values[name] = field["default"]
    return values


def _properties(schema: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        return {}
    return {name: field if isinstance(field, Mapping) else {} for name, field in properties.items()}


def _defaults(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {name: field["default"] for name, field in _properties(schema).items() if "default" in field}


def _options(field: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values to choose from, by their titles."""
    if field.get("type") == "boolean":
        return {YES: True, NO: False}
    choice = field.get("items") if field.get("type") == "array" else field
    if not isinstance(choice, Mapping):
        return {}
    if titled := choice.get("oneOf") or choice.get("anyOf"):
        return {str(each.get("title", each["const"])): each["const"] for each in titled if "const" in each}
    values = choice.get("enum") or ()
    titles = choice.get("enumNames") or values
    return {str(title): value for title, value in zip(titles, values, strict=False)}


def _parse_reply(field: Mapping[str, Any], reply: UserAnswer) -> Any:
    options = _options(field)
    if field.get("type") == "array":
        return [options[title] for title in reply.chosen if title in options] or str(reply)
    text = str(reply)
    if text in options:
        return options[text]
    try:
        return {"integer": int, "number": float}.get(field.get("type", ""), str)(text)
    except ValueError:
        return text  # does not fit the schema, so the elicitation will be declined


def _format_default(default: Any) -> str:
    if isinstance(default, bool):
        return YES if default else NO
    return ", ".join(map(str, default)) if isinstance(default, list) else str(default)


class SamplingHandler:
    """The sampling callback of one connection. The person is asked for consent to each request."""

    def __init__(
        self, server: str, workspace: Workspace, model: CompletionFunction, requests: ServerRequestHandler
    ) -> None:
        self._server = server
        self._workspace = workspace
        self._model = model
        self._requests = requests

    async def __call__(self, context: Any, params: Any) -> Any:
        """Return the model's answer, or an error."""
        from mcp_types import CreateMessageResult, ErrorData, TextContent

        messages = convert_messages(params.messages)
        if not await self._has_consent(params.system_prompt or "", messages):
            return ErrorData(code=SAMPLING_REFUSED, message="the user did not agree to let the model answer")
        try:
            answer = await self._model(
                params.system_prompt or "", messages, min(params.max_tokens, MAX_SAMPLING_TOKENS)
            )
        except WieldyError as failure:
            return ErrorData(code=SAMPLING_FAILED, message=str(failure))
        return CreateMessageResult(
            role="assistant",
            content=TextContent(type="text", text=answer.text),
            model=answer.model,
            stop_reason="maxTokens" if answer.cut else "endTurn",
        )

    async def _has_consent(self, system: str, messages: Sequence[Message]) -> bool:
        if self._server in self._workspace.setting("mcp.sampling"):
            return True
        blocks = (block for message in messages for block in message.content)
        text = "\n".join(str(block.get("text", f"({block['type']})")) for block in blocks)
        shown = {
            "model": getattr(self._model, "model", "the model of this program"),
            "system": truncate(system, MAX_SHOWN_CHARS),
            "messages": truncate(text, MAX_SHOWN_CHARS),
        }
        return await self._requests.ask_consent("asks your model (at your cost)", shown)


def convert_messages(messages: Sequence[Any]) -> tuple[Message, ...]:
    """Convert sampling messages for the session's model; content it cannot take is named in text."""
    return tuple(
        Message(
            message.role,
            tuple(map(_convert_block, message.content if isinstance(message.content, list) else [message.content])),
        )
        for message in messages
    )


def _convert_block(content: Any) -> ContentBlock:
    if content.type == "text":
        return {"type": "text", "text": content.text}
    if content.type == "image":
        source = {"type": "base64", "media_type": content.mime_type, "data": content.data}
        return {"type": "image", "source": source}
    return {"type": "text", "text": f"(content of type {content.type} that cannot be shown)"}
