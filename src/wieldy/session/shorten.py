"""Histories made smaller without a model: results put aside, pictures withheld. What a model said is never touched."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from wieldy.core.message import ContentBlock, History, Message

MEDIA = frozenset({"image", "document"})
ENOUGH = 400  # characters: a result this short is not worth a placeholder


def with_results(history: History, results: Mapping[str, Any]) -> list[Message]:
    """The history with some results, by their call's id, replaced by what stands for them."""

    def shown(block: ContentBlock) -> ContentBlock:
        text = results.get(block["tool_use_id"]) if block["type"] == "tool_result" else None
        return block if not isinstance(text, str) else {**block, "content": [{"type": "text", "text": text}]}

    return [_mapped(message, shown) for message in history]


def old_results(history: History, keep: int) -> Iterator[ContentBlock]:
    """The results worth putting aside, oldest first; those of the last `keep` messages stay."""
    for message in history[: max(len(history) - keep, 0)]:
        for block in message.content:
            if block["type"] == "tool_result" and size(block) > ENOUGH:
                yield block


def text_of_result(block: ContentBlock) -> str:
    """What a result says, pictures named only."""
    content = block.get("content", "")
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] if part["type"] == "text" else f"({part['type']})" for part in content)


def without_media(history: History, digests: frozenset[str], why: str) -> list[Message]:
    """The history with the pictures and documents of these digests replaced by a line."""
    stands_in = {"type": "text", "text": f"(a picture or document was here; the provider did not accept it: {why})"}

    def shown(block: ContentBlock) -> ContentBlock:
        if block["type"] in MEDIA:
            return stands_in if digest(block) in digests else block
        content = block.get("content")
        if block["type"] != "tool_result" or not isinstance(content, list | tuple):
            return block
        parts = [shown(part) for part in content]
        return block if all(map(_is, parts, content)) else {**block, "content": parts}

    return [_mapped(message, shown) for message in history]


def without_thoughts(history: History) -> list[Message]:
    """The history for another model: thoughts are signed by the one that had them."""
    return [Message(m.role, tuple(block for block in m.content if not is_thought(block))) for m in history]


def is_thought(block: ContentBlock) -> bool:
    """Whether a block is something the model thought, open or sealed."""
    return block["type"] in ("thinking", "redacted_thinking")


def media(blocks: Iterable[ContentBlock]) -> Iterator[ContentBlock]:
    """Every picture and document in some blocks, those inside results too."""
    for block in blocks:
        if block["type"] in MEDIA:
            yield block
        elif block["type"] == "tool_result" and isinstance(block.get("content"), list | tuple):
            yield from media(block["content"])


def digest(block: ContentBlock) -> str:
    """What a picture or document is known by."""
    import hashlib

    source = block.get("source") or {}
    data = str(source.get("data") or source.get("url") or source.get("file_id") or "")
    return hashlib.blake2b(data.encode("utf-8", "replace"), digest_size=16).hexdigest()


def size(value: Any) -> int:
    """Characters in a block, or in anything JSON: four of them are about a token, a picture is about 1 500."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, Mapping):
        if value.get("type") in MEDIA:
            return 6_000
        return sum(map(size, value.values()))
    return sum(map(size, value)) if isinstance(value, list | tuple) else 1


def _mapped(message: Message, shown: Callable[[ContentBlock], ContentBlock]) -> Message:
    content = tuple(map(shown, message.content))
    return message if all(map(_is, content, message.content)) else Message(message.role, content)


def _is(one: Any, other: Any) -> bool:
    return one is other
