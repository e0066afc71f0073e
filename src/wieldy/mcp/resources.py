"""What MCP servers offer besides tools: resources, which the model reads, and prompts, which a person types."""

from __future__ import annotations

import asyncio
import contextlib
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from msgspec import Struct

from wieldy.core.effects import Effects, Reads, UsesServer
from wieldy.core.errors import ToolFailure
from wieldy.core.outcome import Text
from wieldy.core.text import truncate_line
from wieldy.core.threads import in_thread
from wieldy.core.tool import Output
from wieldy.core.workspace import Workspace
from wieldy.mcp.connection import Connection
from wieldy.mcp.content import convert_parts, convert_resource
from wieldy.mcp.definitions import MAX_FIELD_CHARS, MAX_ITEMS, MAX_TITLE_CHARS, resource_rule_name, wire_names
from wieldy.mcp.manager import McpServers
from wieldy.mcp.tools import list_all

MAX_PAGES = 20
MAX_UNQUOTED = 3  # times that a server may decode percent signs
_FILE_URI = re.compile(r"[\x00-\x20\s]*file:", re.IGNORECASE)
_IGNORED_IN_URLS = re.compile(r"[\t\r\n]")  # by parsers that follow the URL standard of browsers


class ServerResources:
    """The resources of all servers: what the tools `ListMcpResources` and `ReadMcpResource` do."""

    def __init__(self, servers: McpServers) -> None:
        self._servers = servers

    def effects(self, tool: str, server: str | None, uri: str = "") -> Effects:
        """What one of `RESOURCE_TOOLS` touches: one server or all, and the file that a URI names. Raises `ToolFailure`."""
        servers = self._servers
        names = list(servers.servers) if server is None else [self._find(server).config.name]
        uses = [UsesServer(resource_rule_name(servers.servers[name].key, tool)) for name in names]
        return (*uses, *map(Reads, _paths_of_uri(uri, servers.workspace)))

    async def list_resources(self, server: str | None) -> Output:
        """List the resources of one server or of all, one line each; a server that fails has its error as its line."""
        connections = [self._find(server)] if server is not None else list(self._servers.connections.values())
        results = await asyncio.gather(*map(_request_resources, connections), return_exceptions=True)
        lines: list[str] = []
        rows: list[dict[str, Any]] = []
        for connection, result in zip(connections, results, strict=True):
            name = connection.config.name
            if isinstance(result, BaseException):
                lines.append(f"{name}: {result}")
                continue
            for resource in result:
                rows.append({**resource, "server": name})
                address = resource.get("uri") or resource.get("uriTemplate")
                label = truncate_line(resource["name"], MAX_TITLE_CHARS)
                about = (
                    f" — {truncate_line(resource['description'], MAX_FIELD_CHARS)}"
                    if resource.get("description")
                    else ""
                )
                lines.append(f"{name}: {address} ({label}){about}")
        return Output("\n".join(lines) or "No server has resources.", rows)

    async def read_resource(self, server: str, uri: str) -> Output:
        """Return the contents of one resource."""
        result = await self._find(server).request(lambda client: client.read_resource(uri), retry=True)
        blocks = await in_thread(
            convert_resource, result.contents, self._servers.workspace.session_dir / "tool-results"
        )
        return Output(blocks, [part.model_dump(mode="json", exclude={"blob"}) for part in result.contents])

    def _find(self, name: str) -> Connection:
        connection = self._servers.connections.get(name)
        if connection is None:
            known = ", ".join(self._servers.connections) or "none"
            raise ToolFailure(f"There is no MCP server named {name}.", f"Connected servers: {known}.")
        return connection


def _paths_of_uri(uri: str, workspace: Workspace) -> Iterator[str]:
    """The files that a server may open for a `file:` URI, in whatever way it reads one."""
    spellings: set[str] = set()
    for text in (uri, _IGNORED_IN_URLS.sub("", uri)):
        if (match := _FILE_URI.match(text)) is not None:
            rest = text[match.end() :].replace("\\", "/")
            spellings |= {rest, rest.rstrip(), re.split(r"[?#]", rest)[0]}
    for _ in range(MAX_UNQUOTED):
        spellings |= set(map(unquote, spellings))
    for text in sorted(
        {each for spelling in spellings for each in (spelling.replace("\0", ""), spelling.split("\0")[0])}
    ):
        authority, _, path = text[2:].partition("/") if text.startswith("//") else ("", "", text)
        yield workspace.resolve("/" + path if text.startswith("//") else path or "/")
        if authority.lower() not in ("", "localhost"):
            yield workspace.resolve(f"{authority}/{path}".rstrip("/"))  # a server may take a host for a folder


async def _request_resources(connection: Connection) -> list[dict[str, Any]]:
    from mcp.shared.exceptions import MCPError

    async def send(client: Any) -> list[dict[str, Any]]:
        if client.server_capabilities.resources is None:
            return []
        items = await list_all(client.list_resources, "resources", MAX_PAGES)
        with contextlib.suppress(MCPError):  # many servers with resources do not support templates
            items += await list_all(client.list_resource_templates, "resource_templates", MAX_PAGES)
        return [item.model_dump(mode="json", by_alias=True, exclude_none=True) for item in items[:MAX_ITEMS]]

    resources: list[dict[str, Any]] = await connection.request(send, retry=True)
    return resources


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
