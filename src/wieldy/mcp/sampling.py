"""Servers that want words from the model: the person is asked first, then the session's model answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wieldy.core.failure import WieldyError
from wieldy.core.message import ContentBlock, Message
from wieldy.core.voice import Voice
from wieldy.core.workspace import Workspace
from wieldy.mcp.answers import Answers

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

        speak = self._workspace.resident(Voice).speak
        messages = messages_of(params.messages)
        if speak is None:
            return ErrorData(code=FAILED, message="there is no model to ask")
        if not await self._may_ask(messages):
            return ErrorData(code=REFUSED, message="the user did not agree to let the model answer")
        try:
            said = await speak(params.system_prompt or "", messages, min(params.max_tokens, MOST_TOKENS))
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
