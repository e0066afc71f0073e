"""Prompts of MCP servers: listed under names a person can type, and rendered with arguments."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from wieldy.core.errors import ToolFailure
from wieldy.core.outcome import Text
from wieldy.core.text import truncate_line
from wieldy.core.threads import in_thread
from wieldy.mcp.connection import Connection
from wieldy.mcp.content import convert_parts
from wieldy.mcp.definitions import MAX_FIELD_CHARS, wire_names
from wieldy.mcp.manager import McpServers
from wieldy.mcp.tools import MAX_ITEMS, list_all

MAX_PAGES = 20


class ServerPrompt(Struct, frozen=True):
    """One prompt: `name` is what a person types, `own_name` what its server calls it."""

    name: str
    server: str
    own_name: str
    description: str
    arguments: tuple[str, ...]
    required: tuple[str, ...]

    @property
    def usage(self) -> str:
        """The command with its arguments; optional ones in brackets."""
        takes = (each if each in self.required else f"[{each}]" for each in self.arguments)
        return " ".join((f"/{self.name}", *takes))


async def list_prompts(servers: McpServers) -> dict[str, ServerPrompt]:
    """Return the prompts of all ready servers by name; a server that fails to list them is skipped."""
    ready = [server for server in servers.servers.values() if server.connection.client is not None]
    lists = await asyncio.gather(*(_request_prompts(server.connection) for server in ready), return_exceptions=True)
    prompts: dict[str, ServerPrompt] = {}
    for server, listed in zip(ready, lists, strict=True):
        if isinstance(listed, BaseException):
            continue
        names, _ = wire_names(server.key, [prompt.name for prompt in listed])
        for prompt in listed:
            if prompt.name not in names:
                continue  # another one has its name
            arguments = prompt.arguments or []
            prompts[names[prompt.name]] = ServerPrompt(
                names[prompt.name],
                server.connection.config.name,
                prompt.name,
                truncate_line(prompt.description or prompt.title or "", MAX_FIELD_CHARS),
                tuple(argument.name for argument in arguments),
                tuple(argument.name for argument in arguments if argument.required),
            )
    return dict(sorted(prompts.items()))


async def _request_prompts(connection: Connection) -> Sequence[Any]:
    async def send(client: Any) -> list[Any]:
        if client.server_capabilities.prompts is None:
            return []
        return (await list_all(client.list_prompts, "prompts", MAX_PAGES))[:MAX_ITEMS]

    prompts: list[Any] = await connection.request(send, retry=True)
    return prompts


async def render_prompt(servers: McpServers, prompt: ServerPrompt, words: str) -> str:
    """Return the text of a prompt with the words behind its name as arguments. Raises `ToolFailure`, one line for a person."""
    arguments = parse_arguments(prompt, words)
    connection = servers.connections[prompt.server]
    result = await connection.request(lambda client: client.get_prompt(prompt.own_name, arguments or None), retry=True)
    folder = servers.workspace.session_dir / "tool-results"
    return await in_thread(_join_messages, result.messages, folder)


def parse_arguments(prompt: ServerPrompt, words: str) -> dict[str, str]:
    """Parse `name=value` words, then positional ones; the last argument takes all that is left. Raises `ToolFailure`."""
    try:
        parts = shlex.split(words)
    except ValueError:
        parts = words.split()
    arguments: dict[str, str] = {}
    positional: list[str] = []
    for part in parts:
        name, equals, value = part.partition("=")
        if equals and name in prompt.arguments:
            arguments[name] = value
        else:
            positional.append(part)
    unset = [name for name in prompt.arguments if name not in arguments]
    for number, name in enumerate(unset):
        if number < len(positional):
            arguments[name] = " ".join(positional[number:]) if number == len(unset) - 1 else positional[number]
    missing = [name for name in prompt.required if name not in arguments]
    if missing:
        raise ToolFailure(f"{', '.join(missing)} is missing: {prompt.usage}")
    if positional and not unset:
        raise ToolFailure(f"`{positional[0]}` is too much: {prompt.usage}")
    return arguments


def _join_messages(messages: Sequence[Any], folder: Path) -> str:
    """Join messages into one text; those of the assistant are marked."""
    parts: list[str] = []
    for message in messages:
        for block in convert_parts([message.content], folder):
            text = block.text if isinstance(block, Text) else f"[an image ({block.media_type}): prompts are text only]"
            parts.append(f"Assistant: {text}" if message.role == "assistant" else text)
    return "\n\n".join(parts)
