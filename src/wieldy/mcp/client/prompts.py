"""The prompts of all servers: listed together under names a person can type, filled in, and told to the model."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from wieldy.core.content import Image, Text
from wieldy.core.errors import ToolFailure
from wieldy.core.threads import in_thread
from wieldy.mcp.client.connection import Connection
from wieldy.mcp.client.manager import McpServers
from wieldy.mcp.client.tools import message_blocks, wire_names

PAGES = 20


class ServerPrompt(Struct, frozen=True):
    """One prompt: the name it goes by here and there, and the arguments it takes; `required` ones must be given."""

    name: str
    server: str
    own: str
    description: str
    arguments: tuple[str, ...]
    required: tuple[str, ...]

    @property
    def usage(self) -> str:
        """How it is called."""
        takes = (each if each in self.required else f"[{each}]" for each in self.arguments)
        return " ".join((f"/{self.name}", *takes))


async def prompts_of(servers: McpServers) -> dict[str, ServerPrompt]:
    """The prompts of the servers that are ready, by name; one that fails to list hides nobody else's."""
    ready = [entry for entry in servers.entries.values() if entry.connection.client is not None]
    found = await asyncio.gather(*(_listed(entry.connection) for entry in ready), return_exceptions=True)
    prompts: dict[str, ServerPrompt] = {}
    for entry, listed in zip(ready, found, strict=True):
        if isinstance(listed, BaseException):
            continue
        names = wire_names(entry.key, [prompt.name for prompt in listed])
        for prompt in listed:
            arguments = prompt.arguments or []
            prompts[names[prompt.name]] = ServerPrompt(
                names[prompt.name],
                entry.connection.config.name,
                prompt.name,
                prompt.description or prompt.title or "",
                tuple(each.name for each in arguments),
                tuple(each.name for each in arguments if each.required),
            )
    return dict(sorted(prompts.items()))


async def prompt_text(servers: McpServers, prompt: ServerPrompt, words: str) -> str:
    """What a prompt says, filled in with the words behind its name. Raises `ToolFailure`, one line for the person."""
    given = filled(prompt, words)
    connection = servers.connections[prompt.server]
    result = await connection.ask(lambda client: client.get_prompt(prompt.own, given or None), again=True)
    folder = servers.workspace.session_dir / "tool-results"
    return await in_thread(_told, result.messages, folder)


def filled(prompt: ServerPrompt, words: str) -> dict[str, str]:
    """The words as arguments: `name=value`, or in order; the last takes all that is left. Raises `ToolFailure`."""
    try:
        parts = shlex.split(words)
    except ValueError:
        parts = words.split()
    given: dict[str, str] = {}
    plain: list[str] = []
    for part in parts:
        name, sign, value = part.partition("=")
        if sign and name in prompt.arguments:
            given[name] = value
        else:
            plain.append(part)
    open_ones = [name for name in prompt.arguments if name not in given]
    for number, name in enumerate(open_ones):
        if number < len(plain):
            given[name] = " ".join(plain[number:]) if number == len(open_ones) - 1 else plain[number]
    missing = [name for name in prompt.required if name not in given]
    if missing:
        raise ToolFailure(f"{', '.join(missing)} is missing: {prompt.usage}")
    if plain and not open_ones:
        raise ToolFailure(f"`{plain[0]}` is too much: {prompt.usage}")
    return given


async def _listed(connection: Connection) -> Sequence[Any]:
    async def pages(client: Any) -> list[Any]:
        if client.server_capabilities.prompts is None:
            return []
        prompts: list[Any] = []
        cursor: str | None = None
        for _ in range(PAGES):
            page = await client.list_prompts(cursor=cursor)
            prompts += page.prompts
            cursor = page.next_cursor
            if not cursor:
                break
        return prompts

    listed: list[Any] = await connection.ask(pages, again=True)
    return listed


def _told(messages: Sequence[Any], folder: Any) -> str:
    """Messages as one text; what the assistant is made to have said is marked as such."""
    parts: list[str] = []
    for message in messages:
        for block in message_blocks(message.content, folder):
            text = block.text if isinstance(block, Text) else _kept(block)
            parts.append(f"Assistant: {text}" if message.role == "assistant" else text)
    return "\n\n".join(parts)


def _kept(picture: Image) -> str:
    return f"[a picture ({picture.media_type}) that a prompt cannot carry]"
