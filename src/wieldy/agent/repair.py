"""Any history, from anywhere → one the API accepts. Every call gets exactly one result next to it; nothing else is invented.

What a model said is left as it is, but for blocks no API takes. Applied to its own output it changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from operator import is_
from typing import Any

from wieldy.core.messages import ContentBlock, History, Message, Role
from wieldy.engine.results import clean

INTERRUPTED = "interrupted: this call has no result"
EMPTY = "(no output)"
NOTHING_SAID = "(nothing)"
MOST_IMAGE_CHARS = 5 * 1024 * 1024
IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
THOUGHTS = frozenset({"thinking", "redacted_thinking"})
NEVER_SAYS: Mapping[Role, frozenset[str]] = {
    "user": frozenset({"tool_use", "thinking", "redacted_thinking", "server_tool_use"}),
    "assistant": frozenset({"tool_result", "image", "document"}),
}

_ODD = re.compile(r"[^A-Za-z0-9_-]")


def repair(history: History, seen: set[str] | None = None, *, whole: bool = True) -> list[Message]:
    """A history that begins with the user, alternates, and answers every call once, in order, right after it.

    `seen` are the call ids of what came before, if this is not the `whole` of it; those found are added.
    """
    seen = set() if seen is None else seen
    if not whole and len(history) == 2 and (ids := _answered_calls(*history)) and seen.isdisjoint(ids):
        seen.update(ids)
        return list(history)
    merged = _alternating(_with_clean_blocks(history), whole=whole)
    repaired: list[Message] = []
    for index, message in enumerate(merged):
        if message.role == "assistant":
            message, renamed = _with_unique_ids(message, seen)  # noqa: PLW2901 - the same message, told apart
            repaired.append(message)
            answer = merged[index + 1] if index + 1 < len(merged) else None
            if renamed or (answer is not None and _results(answer)):
                answered = _answered(answer, renamed)
                if answer is None:
                    repaired.append(answered)
                else:
                    merged[index + 1] = answered
        elif not repaired and _results(message):
            repaired.append(_without_results(message))
        else:
            repaired.append(message)
    return repaired


def _answered_calls(said: Message, answer: Message) -> list[str]:
    """A quick look at what nearly all turns are, calls and their results: the ids, or none where anything is to be put right."""
    ids: list[str] = []
    if said.role != "assistant" or answer.role != "user":
        return []
    for block in said.content:
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
    """A quick look at what most results are: one text, and nothing in it to put right."""
    content = result.get("content")
    if type(content) is not list or len(content) != 1 or type(content[0]) is not dict or len(content[0]) != 2:
        return False
    text = content[0].get("text") if content[0].get("type") == "text" else None
    return type(text) is str and clean(text) is text and not text.isspace() and text != ""


def _with_clean_blocks(history: Iterable[Message]) -> list[Message]:
    clean_ones = []
    for message in history:
        content: list[ContentBlock] = []
        same, spoken = True, False
        for block in message.content:
            made = _clean_block(block, message.role)
            same = same and made is block
            if made is not None:
                content.append(made)
                spoken = spoken or made["type"] not in THOUGHTS
        if spoken:
            clean_ones.append(message if same else Message(message.role, tuple(content)))
    return clean_ones


def _clean_block(block: ContentBlock, role: Role) -> ContentBlock | None:
    """The block as any API takes it; None for one that none does."""
    kind = block.get("type")
    if not isinstance(kind, str) or kind in NEVER_SAYS[role]:
        return None
    cleaner = _CLEANERS.get(kind)
    return block if cleaner is None else cleaner(block)


def _clean_text(block: ContentBlock) -> ContentBlock | None:
    said = block.get("text")
    text = clean(said) if isinstance(said, str) else ""
    if not text.strip():
        return None
    return block if text == said else {**block, "text": text}


def _clean_call(block: ContentBlock) -> ContentBlock | None:
    if not isinstance(block.get("id"), str) or not block["id"]:
        return None
    name = _legal(str(block.get("name") or "unknown"))
    input = block.get("input")
    if name == block.get("name") and (type(input) is dict or isinstance(input, Mapping)):
        return block
    return {**block, "name": name, "input": input if isinstance(input, Mapping) else {}}


@lru_cache(maxsize=512)
def _legal(name: str) -> str:
    if name.isascii() and name.replace("_", "").replace("-", "").isalnum():
        return name[:64]
    return _ODD.sub("_", name)[:64]


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
    same = True
    for part in content:
        made = _clean_block(part, "user") if type(part) is dict or isinstance(part, Mapping) else None
        same = same and made is part
        if made is not None:
            parts.append(made)
    return block if same else {**block, "content": parts or EMPTY}


def _clean_thought(block: ContentBlock) -> ContentBlock | None:
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
    return _placeholder("it is too large") if len(data) > MOST_IMAGE_CHARS else block


_CLEANERS: Mapping[str, Callable[[ContentBlock], ContentBlock | None]] = {
    "text": _clean_text,
    "tool_use": _clean_call,
    "tool_result": _clean_result,
    "image": _clean_image,
    "thinking": _clean_thought,
}


def _placeholder(why: str) -> ContentBlock:
    return {"type": "text", "text": f"(an image was here; it was left out because {why})"}


def _alternating(messages: Sequence[Message], *, whole: bool) -> list[Message]:
    """Neighbours of one role become one message; the first is the user's."""
    merged: list[Message] = []
    for message in messages:
        if merged and merged[-1].role == message.role:
            merged[-1] = Message(message.role, (*merged[-1].content, *message.content))
        else:
            merged.append(message)
    if whole and merged and merged[0].role == "assistant":
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


def _answered(answer: Message | None, names: Sequence[tuple[str, str]]) -> Message:
    """The user message after some calls: one result each, in their order, then whatever else was said."""
    if answer is not None and [block.get("tool_use_id") for block in answer.content] == [new for _, new in names]:
        return answer
    found: dict[str, list[ContentBlock]] = {}
    rest: list[ContentBlock] = []
    for block in answer.content if answer else ():
        if block["type"] == "tool_result":
            found.setdefault(block["tool_use_id"], []).append(block)
        else:
            rest.append(block)
    results = [_result_for(old, new, found) for old, new in names]
    content = (*results, *rest) or ({"type": "text", "text": NOTHING_SAID},)
    return answer if answer is not None and _same(content, answer.content) else Message("user", content)


def _result_for(old: str, new: str, found: Mapping[str, list[ContentBlock]]) -> ContentBlock:
    for name in (new, old):
        if waiting := found.get(name):
            block = waiting.pop(0)
            return block if block["tool_use_id"] == new else {**block, "tool_use_id": new}
    return {"type": "tool_result", "tool_use_id": new, "content": INTERRUPTED, "is_error": True}


def _results(message: Message) -> bool:
    return "tool_result" in [block["type"] for block in message.content]


def _without_results(message: Message) -> Message:
    rest = tuple(block for block in message.content if block["type"] != "tool_result")
    return Message("user", rest or ({"type": "text", "text": NOTHING_SAID},))


def _same(some: Sequence[Any], others: Sequence[Any]) -> bool:
    return len(some) == len(others) and all(map(is_, some, others))
