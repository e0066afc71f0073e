"""An earlier conversation as finished blocks: what `--continue` and `--resume` show."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from wieldy.agent.transcript import CallError
from wieldy.core.outcome import Done, Failed, Outcome, Refused, Text, ToolResult
from wieldy.core.person_text import without_reminders
from wieldy.faces.terminal.blocks import AnswerBlock, Block, CallBlock, LineBlock, PromptBlock
from wieldy.faces.terminal.calls import Call, CallFormatter
from wieldy.faces.terminal.markdown import MarkdownStream

MAX_MESSAGES = 200


def conversation_blocks(
    messages: Sequence[Mapping[str, Any]], formatter: CallFormatter, errors: Mapping[str, CallError]
) -> Iterator[Block]:
    """Yield the blocks of messages in the form of the Anthropic API; of a long conversation, the end."""
    if len(messages) > MAX_MESSAGES:
        yield LineBlock(f"… {len(messages) - MAX_MESSAGES:,} earlier messages", "dim")
    results = {
        block["tool_use_id"]: block
        for message in messages
        for block in _content(message)
        if block.get("type") == "tool_result"
    }
    for message in messages[-MAX_MESSAGES:]:
        for block in _content(message):
            match block.get("type"):
                case "text" if message["role"] == "user":
                    if text := without_reminders(str(block["text"])).strip():
                        yield PromptBlock(text)
                case "text":
                    yield from _answer_blocks(str(block["text"]))
                case "tool_use":
                    yield CallBlock(
                        formatter.summarize(_call(block, results.get(block["id"]), errors.get(block["id"])))
                    )
                case "image":
                    yield LineBlock("an image", "dim")


def _content(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    content = message.get("content", [])
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)


def _answer_blocks(text: str) -> Iterator[Block]:
    stream = MarkdownStream()
    for piece in (*stream.feed(text), *stream.finish()):
        yield AnswerBlock(piece)


def _call(block: Mapping[str, Any], result: Mapping[str, Any] | None, error: CallError | None) -> Call:
    call = Call(str(block["id"]), str(block["name"]), "interrupted", input=block.get("input"))
    if result is not None:
        parts = result.get("content") or []
        texts = [parts] if isinstance(parts, str) else [str(part.get("text", "")) for part in parts]
        content = (Text(without_reminders("\n".join(texts))),)
        is_error = bool(result.get("is_error"))
        person = error.person if error is not None else ""
        outcome: Outcome = Failed(content[0].text, person=person) if is_error else Done(content)
        call.state = "failed" if is_error else "done"
        if error is not None and error.refused is not None:
            call.state, outcome = "refused", Refused("permission", content[0].text, person=person)
        call.result = ToolResult(call.id, call.name, content, None, is_error, outcome)
    return call
