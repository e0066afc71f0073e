"""Prompts: what a person says to a session, at the start of a run and while it runs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from wieldy.agent.records import HistoryReplaced, clean_texts
from wieldy.core.errors import SessionError
from wieldy.engine.results import clean

Prompt: TypeAlias = str | Sequence[Mapping[str, Any]]


def prompt_content(prompt: Prompt) -> list[dict[str, Any]]:
    """The content blocks of a prompt. Raises `SessionError` for one that says nothing."""
    if isinstance(prompt, Mapping) or not isinstance(prompt, str | Iterable):
        raise SessionError(f"a prompt is text, or a list of content blocks, not {prompt!r:.200}")
    blocks = [{"type": "text", "text": clean(prompt)}] if isinstance(prompt, str) else clean_texts(list(prompt))
    content: list[dict[str, Any]] = blocks
    if not all(isinstance(block, Mapping) and isinstance(block.get("type"), str) for block in content):
        raise SessionError("a prompt is text, or a list of content blocks, each with its `type`")
    if not any(block["type"] != "text" or block["text"].strip() for block in content):
        raise SessionError("the prompt is empty")
    return content


def initial_history(messages: Sequence[Mapping[str, Any]], *, resumes: bool) -> HistoryReplaced | None:
    """A history for a session to start from. Raises `ValueError` for what is no message, or a session that has one."""
    if not messages:
        return None
    if resumes:
        raise ValueError("give `messages` or `resume`, not both")
    if isinstance(messages, str | Mapping):
        raise ValueError(f"`messages` must be a list of messages, not {messages!r:.200}")
    for message in messages:
        content = message.get("content") if isinstance(message, Mapping) else None
        is_blocks = isinstance(content, list | tuple) and all(
            isinstance(block, Mapping) and isinstance(block.get("type"), str) for block in content
        )
        if (
            content is None
            or message.get("role") not in ("user", "assistant")
            or not (isinstance(content, str) or is_blocks)
        ):
            form = "{'role': 'user' or 'assistant', 'content': text or a list of blocks}"
            raise ValueError(f"{message!r:.200} is no message: give {form}")
    plain = [{"role": each["role"], "content": msgspec.to_builtins(each["content"])} for each in messages]
    return HistoryReplaced(clean_texts(plain), "given", prompts=[])


def prompt_text(content: Sequence[Mapping[str, Any]]) -> str:
    """The text blocks of a prompt, joined."""
    return "\n".join([block["text"] for block in content if block["type"] == "text"])


class SteeringQueue:
    """What the person says while a run goes on. It is sent with the next request of that run."""

    def __init__(self) -> None:
        self._contents: list[list[dict[str, Any]]] = []
        self._added = asyncio.Event()

    def add(self, prompt: Prompt) -> None:
        """Raises `SessionError` for a prompt that says nothing."""
        self._contents.append(prompt_content(prompt))
        self._added.set()

    async def wait(self) -> None:
        """Wait until there is something to take."""
        await self._added.wait()

    def take(self) -> list[list[dict[str, Any]]]:
        """Remove and return all contents, oldest first."""
        contents, self._contents = self._contents, []
        self._added.clear()
        return contents

    def __bool__(self) -> bool:
        return bool(self._contents)
