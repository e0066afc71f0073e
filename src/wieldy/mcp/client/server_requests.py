"""What servers may ask of us: the project's folders, words from the person, and words from the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from wieldy.core.call import PlannedCall, ToolCall
from wieldy.core.decision import Approver, Decision, Question, Reason
from wieldy.core.effects import NOTHING
from wieldy.core.errors import Refusal, WieldyError
from wieldy.core.messages import ContentBlock, Message
from wieldy.core.provider import SideModel
from wieldy.core.tool import Tool
from wieldy.core.user_questions import Inquiry, Person, Reply
from wieldy.core.workspace import Workspace

YES, NO = "yes", "no"


def inquiries(server: str, message: str, schema: Mapping[str, Any]) -> list[Inquiry]:
    """One question for each field; the first says who asks, and for what."""
    asked: list[Inquiry] = []
    required = schema.get("required", ())
    for name, field in _properties(schema).items():
        about = field.get("title") or name
        detail = f" ({field['description']})" if field.get("description") else ""
        default = f" [Enter: {_said(field['default'])}]" if "default" in field else ""
        optional = "" if name in required or default else " [may be left out]"
        head = "" if asked else f"The MCP server {server} asks: {message}\n"
        options = tuple(_options(field))
        asked.append(Inquiry(f"{head}{about}{detail}{default}{optional}", options, field.get("type") == "array"))
    return asked


def values(schema: Mapping[str, Any], replies: Sequence[Reply]) -> dict[str, Any]:
    """What the replies stand for; a field without one has its default, or is left out."""
    found: dict[str, Any] = {}
    for (name, field), reply in zip(_properties(schema).items(), replies, strict=True):
        if str(reply):
            found[name] = _value(field, reply)
        elif "default" in field:
            found[name] = field["default"]
    return found


def _properties(schema: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        return {}
    return {name: field if isinstance(field, Mapping) else {} for name, field in properties.items()}


def _options(field: Mapping[str, Any]) -> dict[str, Any]:
    """What can be chosen, by what is shown of it."""
    if field.get("type") == "boolean":
        return {YES: True, NO: False}
    of = field.get("items") if field.get("type") == "array" else field
    if not isinstance(of, Mapping):
        return {}
    titled = of.get("oneOf") or of.get("anyOf") or ()
    if titled:
        return {str(each.get("title", each["const"])): each["const"] for each in titled if "const" in each}
    choices = of.get("enum") or ()
    names = of.get("enumNames") or choices
    return {str(name): choice for name, choice in zip(names, choices, strict=False)}


def _value(field: Mapping[str, Any], reply: Reply) -> Any:
    options = _options(field)
    if field.get("type") == "array":
        return [options[each] for each in reply.chosen if each in options] or str(reply)
    said = str(reply)
    if said in options:
        return options[said]
    try:
        return {"integer": int, "number": float}.get(field.get("type", ""), str)(said)
    except ValueError:
        return said  # does not fit, and is declined as such


def _said(default: Any) -> str:
    if isinstance(default, bool):
        return YES if default else NO
    return ", ".join(map(str, default)) if isinstance(default, list) else str(default)


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
        person = self._workspace.service(Person)
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


MOST_TOKENS = 16_000
SHOWN = 2_000
REFUSED, FAILED = -1, -32603


class Sampling:
    """Answers the requests of one server. Who has agreed once is not asked again as long as the connection lasts."""

    def __init__(self, server: str, workspace: Workspace, answers: Answers) -> None:
        self._server = server
        self._workspace = workspace
        self._answers = answers
        self._agreed = False

    async def __call__(self, context: Any, params: Any) -> Any:
        """The model's words, or why there are none."""
        from mcp_types import CreateMessageResult, ErrorData, TextContent

        complete = self._workspace.service(SideModel).complete
        messages = messages_of(params.messages)
        if complete is None:
            return ErrorData(code=FAILED, message="there is no model to ask")
        if not await self._may_ask(messages):
            return ErrorData(code=REFUSED, message="the user did not agree to let the model answer")
        try:
            said = await complete(params.system_prompt or "", messages, min(params.max_tokens, MOST_TOKENS))
        except WieldyError as failure:
            return ErrorData(code=FAILED, message=str(failure))
        return CreateMessageResult(
            role="assistant",
            content=TextContent(type="text", text=said.text),
            model=said.model,
            stop_reason="maxTokens" if said.cut else "endTurn",
        )

    async def _may_ask(self, messages: Sequence[Message]) -> bool:
        if self._agreed or self._server in self._workspace.setting("mcp.sampling", list[str]()):
            return True
        self._agreed = await self._answers.consent("asks your model (at your cost)", _shown(messages))
        return self._agreed


def messages_of(sampled: Sequence[Any]) -> tuple[Message, ...]:
    """The messages of a request in the form the session's model takes; what it cannot take is named in words."""
    return tuple(Message(message.role, tuple(map(_block, _contents(message.content)))) for message in sampled)


def _contents(content: Any) -> Sequence[Any]:
    return content if isinstance(content, list) else [content]


def _block(content: Any) -> ContentBlock:
    if content.type == "text":
        return {"type": "text", "text": content.text}
    if content.type == "image":
        source = {"type": "base64", "media_type": content.mime_type, "data": content.data}
        return {"type": "image", "source": source}
    return {"type": "text", "text": f"(something that is not text or a picture: {content.type})"}


def _shown(messages: Sequence[Message]) -> str:
    text = "\n".join(str(block.get("text", f"({block['type']})")) for message in messages for block in message.content)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]} …"
