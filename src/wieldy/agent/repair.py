"""Repairs a history so that an API accepts it: every call gets exactly one result right after it; nothing else is invented.

What the model wrote stays as it is, but for blocks that no API accepts. Repairing a repaired history changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from operator import is_
from types import MappingProxyType
from typing import Any

from wieldy.core.messages import NO_TEXT, THINKING_TYPES, ContentBlock, History, Message, Role
from wieldy.engine.results import clean

INTERRUPTED = "interrupted: this call has no result"
EMPTY = "(no output)"
MAX_IMAGE_CHARS = 5 * 1024 * 1024
IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
FORBIDDEN_TYPES: Mapping[Role, frozenset[str]] = {
    "user": frozenset({"tool_use", "thinking", "redacted_thinking", "server_tool_use"}),
    "assistant": frozenset({"tool_result", "image", "document"}),
}

NONE: Mapping[str, str] = MappingProxyType({})
_ILLEGAL_IN_NAME = re.compile(r"[^A-Za-z0-9_-]")


def repair(
    history: History, used_ids: set[str] | None = None, *, whole: bool = True, missing: Mapping[str, str] = NONE
) -> list[Message]:
    """Return a history that begins with the user, alternates, and answers every call once, in order, right after it.

    If this is not the `whole` history, `used_ids` are the call ids before it; those of this part are added. `missing` has a
    text for calls without a result, where more is known of them.
    """
    used_ids = set() if used_ids is None else used_ids
    if not whole and len(history) == 2 and (ids := _valid_call_ids(*history)) and used_ids.isdisjoint(ids):
        used_ids.update(ids)
        return list(history)
    merged = _alternating(_with_clean_blocks(history), whole=whole)
    repaired: list[Message] = []
    for index, message in enumerate(merged):
        if message.role == "assistant":
            message, call_ids = _with_unique_ids(message, used_ids)  # noqa: PLW2901
            repaired.append(message)
            answer = merged[index + 1] if index + 1 < len(merged) else None
            if call_ids or (answer is not None and _has_results(answer)):
                results = _with_all_results(answer, call_ids, missing)
                if answer is None:
                    repaired.append(results)
                else:
                    merged[index + 1] = results
        elif not repaired and _has_results(message):
            repaired.append(_without_results(message))
        else:
            repaired.append(message)
    return repaired


def _valid_call_ids(message: Message, answer: Message) -> list[str]:
    """Fast path for a usual turn, calls and their results: the call ids, or none if anything must be repaired."""
    ids: list[str] = []
    if message.role != "assistant" or not _has_results(answer):
        return []
    for block in message.content:
        kind = block.get("type")
        if kind == "tool_use" and _clean_call(block) is block:
            ids.append(block["id"])
        elif kind != "text" or _clean_text(block) is not block:
            return []
    if [block.get("tool_use_id") for block in answer.content] != ids or (len(ids) > 1 and len(set(ids)) < len(ids)):
        return []
    for block in answer.content:
        if block.get("type") != "tool_result" or not (_is_one_text(block) or _clean_result(block) is block):
            return []
    return ids


def _is_one_text(result: ContentBlock) -> bool:
    """Fast path for a usual result: one text that needs no repair."""
    content = result.get("content")
    if type(content) is not list or len(content) != 1 or type(content[0]) is not dict or len(content[0]) != 2:
        return False
    text = content[0].get("text") if content[0].get("type") == "text" else None
    return type(text) is str and clean(text) is text and not text.isspace() and text != ""


def _with_clean_blocks(history: Iterable[Message]) -> list[Message]:
    cleaned_messages = []
    for message in history:
        content: list[ContentBlock] = []
        unchanged, has_content = True, False
        for block in message.content:
            cleaned = _clean_block(block, message.role)
            unchanged = unchanged and cleaned is block
            if cleaned is not None:
                content.append(cleaned)
                has_content = has_content or cleaned["type"] not in THINKING_TYPES
        if has_content:
            cleaned_messages.append(message if unchanged else Message(message.role, tuple(content)))
    return cleaned_messages


def _clean_block(block: ContentBlock, role: Role) -> ContentBlock | None:
    """The block as APIs accept it; None for one that none accepts."""
    kind = block.get("type")
    if not isinstance(kind, str) or kind in FORBIDDEN_TYPES[role]:
        return None
    cleaner = _CLEANERS.get(kind)
    return block if cleaner is None else cleaner(block)


def _clean_text(block: ContentBlock) -> ContentBlock | None:
    original = block.get("text")
    text = clean(original) if isinstance(original, str) else ""
    if not text.strip():
        return None
    return block if text == original else {**block, "text": text}


def _clean_call(block: ContentBlock) -> ContentBlock | None:
    if not isinstance(block.get("id"), str) or not block["id"]:
        return None
    name = _legal_name(str(block.get("name") or "unknown"))
    input = block.get("input")
    if name == block.get("name") and (type(input) is dict or isinstance(input, Mapping)):
        return block
    return {**block, "name": name, "input": input if isinstance(input, Mapping) else {}}


@lru_cache(maxsize=512)
def _legal_name(name: str) -> str:
    if name.isascii() and name.replace("_", "").replace("-", "").isalnum():
        return name[:64]
    return _ILLEGAL_IN_NAME.sub("_", name)[:64]


def _clean_result(block: ContentBlock) -> ContentBlock | None:
    if not isinstance(block.get("tool_use_id"), str):
        return None
    content = block.get("content")
    if isinstance(content, str):
        text = clean(content)
        return block if text == content and text.strip() else {**block, "content": text if text.strip() else EMPTY}
    if not isinstance(content, (list, tuple)) or not content:
        return {**block, "content": EMPTY}
    parts: list[ContentBlock] = []
    unchanged = True
    for part in content:
        cleaned = _clean_block(part, "user") if type(part) is dict or isinstance(part, Mapping) else None
        unchanged = unchanged and cleaned is part
        if cleaned is not None:
            parts.append(cleaned)
    return block if unchanged else {**block, "content": parts or EMPTY}


def _clean_thinking(block: ContentBlock) -> ContentBlock | None:
    return block if isinstance(block.get("thinking"), str) else None


def _clean_image(block: ContentBlock) -> ContentBlock:
    source = block.get("source")
    if not isinstance(source, Mapping):
        return _placeholder("it has no source")
    if source.get("type") != "base64":
        return block
    if source.get("media_type") not in IMAGE_TYPES:
        return _placeholder(f"no model reads {source.get('media_type')}")
    data = source.get("data")
    if not isinstance(data, str) or not data:
        return _placeholder("it is empty")
    return _placeholder("it is too large") if len(data) > MAX_IMAGE_CHARS else block


_CLEANERS: Mapping[str, Callable[[ContentBlock], ContentBlock | None]] = {
    "text": _clean_text,
    "tool_use": _clean_call,
    "tool_result": _clean_result,
    "image": _clean_image,
    "thinking": _clean_thinking,
}


def _placeholder(why: str) -> ContentBlock:
    return {"type": "text", "text": f"(an image was here; it was left out because {why})"}


def _alternating(messages: Sequence[Message], *, whole: bool) -> list[Message]:
    """Merge neighbors of one role; the first message is the user's."""
    merged: list[Message] = []
    for message in messages:
        if merged and merged[-1].role == message.role:
            merged[-1] = Message(message.role, (*merged[-1].content, *message.content))
        else:
            merged.append(message)
    if whole and merged and merged[0].role == "assistant":
        merged.insert(0, Message.user(NO_TEXT))
    return merged


def _with_unique_ids(message: Message, used_ids: set[str]) -> tuple[Message, list[tuple[str, str]]]:
    """Number ids that were used before; returns the old and the new id of each call."""
    ids: list[tuple[str, str]] = []
    content: list[ContentBlock] = []
    for block in message.content:
        if block["type"] != "tool_use":
            content.append(block)
            continue
        unique, count = block["id"], 1
        while unique in used_ids:
            count += 1
            unique = f"{block['id']}-{count}"
        used_ids.add(unique)
        ids.append((block["id"], unique))
        content.append(block if unique == block["id"] else {**block, "id": unique})
    if all(old == new for old, new in ids):
        return message, ids
    return Message(message.role, tuple(content)), ids


def _with_all_results(
    answer: Message | None, ids: Sequence[tuple[str, str]], missing: Mapping[str, str] = NONE
) -> Message:
    """The user message after some calls: one result for each in order, then its other blocks."""
    if answer is not None and [block.get("tool_use_id") for block in answer.content] == [new for _, new in ids]:
        return answer
    by_id: dict[str, list[ContentBlock]] = {}
    rest: list[ContentBlock] = []
    for block in answer.content if answer else ():
        if block["type"] == "tool_result":
            by_id.setdefault(block["tool_use_id"], []).append(block)
        else:
            rest.append(block)
    results = [_result_for(old, new, by_id, missing) for old, new in ids]
    content = (*results, *rest) or ({"type": "text", "text": NO_TEXT},)
    return answer if answer is not None and _same(content, answer.content) else Message("user", content)


def _result_for(
    old: str, new: str, by_id: Mapping[str, list[ContentBlock]], missing: Mapping[str, str]
) -> ContentBlock:
    for id in (new, old):
        if blocks := by_id.get(id):
            block = blocks.pop(0)
            return block if block["tool_use_id"] == new else {**block, "tool_use_id": new}
    return {"type": "tool_result", "tool_use_id": new, "content": missing.get(old, INTERRUPTED), "is_error": True}


def _has_results(message: Message) -> bool:
    return "tool_result" in [block["type"] for block in message.content]


def _without_results(message: Message) -> Message:
    rest = tuple(block for block in message.content if block["type"] != "tool_result")
    return Message("user", rest or ({"type": "text", "text": NO_TEXT},))


def _same(some: Sequence[Any], others: Sequence[Any]) -> bool:
    return len(some) == len(others) and all(map(is_, some, others))
