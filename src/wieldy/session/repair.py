"""Any history, from anywhere → one the API accepts. Every call gets exactly one result next to it; nothing else is invented.

What a model said is left as it is, but for blocks no API takes. Applied to its own output it changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from wieldy.core.message import ContentBlock, History, Message
from wieldy.engine.clean import clean

INTERRUPTED = "interrupted: this call has no result"
EMPTY = "(no output)"
NOTHING_SAID = "(nothing)"


def repair(history: History) -> list[Message]:
    """A history that begins with the user, alternates, and answers every call once, in order, right after it."""
    merged = _alternating(_with_clean_blocks(history))
    repaired: list[Message] = []
    seen: set[str] = set()
    for index, message in enumerate(merged):
        if message.role == "assistant":
            message, renamed = _with_unique_ids(message, seen)  # noqa: PLW2901 - the same message, told apart
            repaired.append(message)
            answer = merged[index + 1] if index + 1 < len(merged) else None
            if (calls := message.calls()) or (answer is not None and _results(answer)):
                answered = _answered(calls, answer, renamed)
                if answer is None:
                    repaired.append(answered)
                else:
                    merged[index + 1] = answered
        elif not repaired and _results(message):
            repaired.append(_without_results(message))
        else:
            repaired.append(message)
    return repaired


def _with_clean_blocks(history: Iterable[Message]) -> list[Message]:
    clean_ones = []
    for message in history:
        content = tuple(block for block in map(_clean_block, message.content) if block is not None)
        same = len(content) == len(message.content) and all(
            a is b for a, b in zip(content, message.content, strict=True)
        )
        if content:
            clean_ones.append(message if same else Message(message.role, content))
    return clean_ones


def _clean_block(block: ContentBlock) -> ContentBlock | None:
    if block["type"] == "text":
        text = clean(block["text"])
        if not text.strip():
            return None
        return block if text == block["text"] else {**block, "text": text}
    if block["type"] == "tool_result":
        return _clean_result(block)
    return block


def _clean_result(block: ContentBlock) -> ContentBlock:
    content = block.get("content")
    if isinstance(content, str):
        text = clean(content)
        return block if text == content and text.strip() else {**block, "content": text if text.strip() else EMPTY}
    if not content:
        return {**block, "content": EMPTY}
    parts = [part for part in map(_clean_block, content) if part is not None]
    if len(parts) == len(content) and all(a is b for a, b in zip(parts, content, strict=True)):
        return block
    return {**block, "content": parts or EMPTY}


def _alternating(messages: Sequence[Message]) -> list[Message]:
    """Neighbours of one role become one message; the first is the user's."""
    merged: list[Message] = []
    for message in messages:
        if merged and merged[-1].role == message.role:
            merged[-1] = Message(message.role, (*merged[-1].content, *message.content))
        else:
            merged.append(message)
    if merged and merged[0].role == "assistant":
        merged.insert(0, Message.user(NOTHING_SAID))
    return merged


def _with_unique_ids(message: Message, seen: set[str]) -> tuple[Message, list[tuple[str, str]]]:
    """Ids a model used twice get a number; returns what each call was called and is called now."""
    names: list[tuple[str, str]] = []
    content: list[ContentBlock] = []
    for block in message.content:
        if block["type"] != "tool_use":
            content.append(block)
            continue
        unique, count = block["id"], 1
        while unique in seen:
            count += 1
            unique = f"{block['id']}-{count}"
        seen.add(unique)
        names.append((block["id"], unique))
        content.append(block if unique == block["id"] else {**block, "id": unique})
    if all(old == new for old, new in names):
        return message, names
    return Message(message.role, tuple(content)), names


def _answered(calls: Sequence[ContentBlock], answer: Message | None, names: Sequence[tuple[str, str]]) -> Message:
    """The user message after some calls: one result each, in their order, then whatever else was said."""
    found: dict[str, list[ContentBlock]] = {}
    rest: list[ContentBlock] = []
    for block in answer.content if answer else ():
        if block["type"] == "tool_result":
            found.setdefault(block["tool_use_id"], []).append(block)
        else:
            rest.append(block)
    results = [_result_for(old, new, found) for old, new in names]
    content = (*results, *rest) or ({"type": "text", "text": NOTHING_SAID},)
    if answer is not None and len(content) == len(answer.content) and all(map(_is, content, answer.content)):
        return answer
    return Message("user", content)


def _result_for(old: str, new: str, found: Mapping[str, list[ContentBlock]]) -> ContentBlock:
    for name in (new, old):
        if waiting := found.get(name):
            block = waiting.pop(0)
            return block if block["tool_use_id"] == new else {**block, "tool_use_id": new}
    return {"type": "tool_result", "tool_use_id": new, "content": INTERRUPTED, "is_error": True}


def _results(message: Message) -> bool:
    return any(block["type"] == "tool_result" for block in message.content)


def _without_results(message: Message) -> Message:
    rest = tuple(block for block in message.content if block["type"] != "tool_result")
    return Message("user", rest or ({"type": "text", "text": NOTHING_SAID},))


def _is(one: Any, other: Any) -> bool:
    return one is other
