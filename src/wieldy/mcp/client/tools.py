"""A server's tool as one of ours: checked like any other, asked about whatever its server claims, run by its connection."""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from wieldy.core.content import Block, Content, Image, Text
from wieldy.core.effects import NOTHING, UNKNOWN, Effects
from wieldy.core.events import ToolProgress
from wieldy.core.logs import log
from wieldy.core.threads import in_thread
from wieldy.core.tool import Doubt, Output, Tool, ToolContext
from wieldy.core.truncate import truncate
from wieldy.schema.check import SchemaError
from wieldy.schema.parameters import Parameters
from wieldy.schema.provider_dialects import OPENAI, adapted

if TYPE_CHECKING:
    from wieldy.core.workspace import Workspace
    from wieldy.mcp.client.connection import Connection


PICTURES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
MOST_PICTURE_CHARS = 5 * 1024 * 1024 * 4 // 3
PLAIN_CHARS = 10_000
EXTENSIONS = {
    "audio/wav": "wav",
    "audio/mpeg": "mp3",
    "audio/ogg": "ogg",
    "application/pdf": "pdf",
    "image/svg+xml": "svg",
}

_DATA_URI = re.compile(r"data:([\w.+-]+/[\w.+-]+)?(?:;[\w=.-]+)*;base64,([A-Za-z0-9+/=_-]{200,})")


def is_plain(result: Any) -> bool:
    """Whether a result is a little text, which takes no time to turn into ours and writes no file."""
    return all(part.type == "text" and len(part.text) < PLAIN_CHARS for part in result.content)


def output_of(result: Any, folder: Path) -> Output:
    """What the model reads of a `CallToolResult`; structured content is the data, and the text where there is no other."""
    blocks = tuple(block for part in result.content for block in _blocks(part, folder))
    structured = result.structured_content
    if structured is not None and not any(isinstance(block, Text) and block.text.strip() for block in blocks):
        blocks = (*blocks, Text(json.dumps(structured, ensure_ascii=False)))
    return Output(blocks or (Text(""),), structured, is_error=bool(result.is_error))


def resource_blocks(contents: Iterable[Any], folder: Path) -> Content:
    """What the model reads of a resource."""
    return tuple(block for part in contents for block in _resource(part, folder, head=False))


def message_blocks(content: Any, folder: Path) -> Content:
    """What a model reads of one message of a prompt."""
    return tuple(_blocks(content, folder))


def _blocks(part: Any, folder: Path) -> Iterator[Block]:
    match part.type:
        case "text":
            yield from _text(part.text, folder)
        case "image" | "audio":
            yield _binary(part.data, part.mime_type, folder)
        case "resource":
            yield from _resource(part.resource, folder, head=True)
        case "resource_link":
            about = f": {part.description}" if part.description else ""
            yield Text(f"[resource {part.name} at {part.uri}{about}; ReadMcpResource reads it]")
        case other:
            yield Text(f"[a block of type {other} that cannot be shown]")


def _resource(part: Any, folder: Path, *, head: bool) -> Iterator[Block]:
    if head:
        yield Text(f"[resource {part.uri}]")
    if hasattr(part, "text"):
        yield from _text(part.text, folder)
    else:
        yield _binary(part.blob, part.mime_type or "application/octet-stream", folder)


def _text(text: str, folder: Path) -> Iterator[Block]:
    """Text, with data that was written into it as a URI taken out."""
    if "base64," not in text:
        yield Text(text)
        return
    at = 0
    for found in _DATA_URI.finditer(text):
        if before := text[at : found.start()]:
            yield Text(before)
        yield _binary(found[2], found[1] or "application/octet-stream", folder)
        at = found.end()
    if rest := text[at:]:
        yield Text(rest)


def _binary(data: str, media_type: str, folder: Path) -> Block:
    kind = media_type.partition(";")[0].strip().lower()
    if kind in PICTURES and len(data) <= MOST_PICTURE_CHARS:
        return Image(kind, data)
    try:
        raw = base64.b64decode(data, validate=False)
    except (binascii.Error, ValueError):
        return Text(f"[{kind}: data that is not base64]")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / f"mcp-{os.urandom(4).hex()}.{EXTENSIONS.get(kind, kind.rpartition('/')[2][:10] or 'bin')}"
    path.write_bytes(raw)
    return Text(f"[{kind}, {len(raw)} bytes, saved to {path}]")


MOST = 64
DIGITS = 8

_ODD = re.compile(r"[^A-Za-z0-9_-]")
_RUN = re.compile(r"_{2,}")


def server_keys(names: Iterable[str]) -> dict[str, str]:
    """The part of a tool's name that stands for each server; no two are alike."""
    keys: dict[str, str] = {}
    taken: set[str] = set()
    for name in sorted(names, key=lambda name: (_server(name) != name, name)):
        key = _server(name)
        if key in taken or not key or len(key) > 30:
            key = f"{key[:20]}_{_digest(name)}".lstrip("_")
        taken.add(key)
        keys[name] = key
    return keys


def wire_names(server: str, tools: Iterable[str]) -> Mapping[str, str]:
    """Each tool's own name → the name a model calls it by. A name that needs no change is never changed by another."""
    names: dict[str, str] = {}
    taken: set[str] = set()
    for tool in sorted(set(tools), key=lambda tool: (_ODD.search(tool) is not None, tool)):
        plain = f"mcp__{server}__{_ODD.sub('_', tool)}"
        if len(plain) > MOST or plain in taken:
            plain = f"{plain[: MOST - DIGITS - 1]}_{_digest(tool)}"
        taken.add(plain)
        names[tool] = plain
    return names


def _server(name: str) -> str:
    return _RUN.sub("_", _ODD.sub("_", name)).strip("_")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:DIGITS]


INPUT = "wieldy/inputSchema"
OUTPUT = "wieldy/outputSchema"
REFUSED = "wieldy/refused"
TASK = "wieldy/task"

_FIELDS: Mapping[str, type] = {"title": str, "description": str, "annotations": dict, "icons": list, "execution": dict}


def mended(result: Any) -> None:
    """Mend the result of a `tools/list`, or of a call made as a task, in place; any other result is left alone."""
    if not isinstance(result, dict):
        return
    if "task" in result and "content" not in result:
        result["_meta"] = {**_meta(result), TASK: result.pop("task")}
        result["content"] = []
    if "content" in result:
        result.setdefault("resultType", "complete")  # servers may leave it out; the SDK insists
    if not isinstance(result.get("tools"), list):
        return
    refused: list[str] = []
    result["tools"] = [entry for entry in result["tools"] if _mended(entry, refused)]
    if refused:
        result["_meta"] = {**_meta(result), REFUSED: refused}


def _mended(entry: Any, refused: list[str]) -> bool:
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str) or not entry["name"]:
        refused.append("an entry without a name")
        return False
    for key, kind in _FIELDS.items():
        if key in entry and not isinstance(entry[key], kind):
            del entry[key]
    annotations = entry.get("annotations")
    if isinstance(annotations, dict):
        entry["annotations"] = {key: value for key, value in annotations.items() if _is_annotation(key, value)}
    aside: dict[str, Any] = {}
    if "outputSchema" in entry:
        aside[OUTPUT] = entry.pop("outputSchema")
    schema = entry.get("inputSchema")
    if not _is_plain(schema):
        aside[INPUT] = schema
        entry["inputSchema"] = {"type": "object"}
    if aside or not isinstance(entry.get("_meta", {}), dict):
        entry["_meta"] = {**_meta(entry), **aside}
    return True


def _is_annotation(key: str, value: Any) -> bool:
    return isinstance(value, str if key == "title" else bool)


def _is_plain(schema: Any) -> bool:
    """Whether the SDK's own model of a schema would take it."""
    if not isinstance(schema, dict) or schema.get("type") != "object":
        return False
    properties, required = schema.get("properties", {}), schema.get("required", [])
    return (
        isinstance(properties, dict)
        and all(isinstance(member, dict | bool) for member in properties.values())
        and isinstance(required, list)
        and all(isinstance(name, str) for name in required)
        and isinstance(schema.get("$schema", ""), str)
    )


def _meta(holder: Mapping[str, Any]) -> dict[str, Any]:
    meta = holder.get("_meta")
    return dict(meta) if isinstance(meta, dict) else {}


CANCEL_SECONDS = 2.0


async def call_as_task(client: Any, tool: str, arguments: dict[str, Any], seconds: float) -> Any:
    """The result of a tool that must be called as a task (revision 2025-11-25)."""
    from mcp_types import (
        CallToolRequest,
        CallToolRequestParams,
        CallToolResult,
        GetTaskPayloadRequest,
        GetTaskPayloadRequestParams,
        TaskMetadata,
    )

    metadata = TaskMetadata(ttl=int(seconds * 1000))
    request = CallToolRequest(params=CallToolRequestParams(name=tool, arguments=arguments, task=metadata))
    made = await client.session.send_request(request, CallToolResult)
    task = (made.meta or {}).get(TASK)
    if not isinstance(task, dict):
        return made
    number = str(task.get("taskId"))
    try:
        payload = GetTaskPayloadRequest(params=GetTaskPayloadRequestParams(task_id=number))
        return await client.session.send_request(payload, CallToolResult)
    except asyncio.CancelledError:
        await _cancelled(client, number)
        raise


async def _cancelled(client: Any, number: str) -> None:
    from mcp.shared.exceptions import MCPError
    from mcp_types import CancelTaskRequest, CancelTaskRequestParams, CancelTaskResult

    request = CancelTaskRequest(params=CancelTaskRequestParams(task_id=number))
    with contextlib.suppress(MCPError, TimeoutError, ValueError):
        async with asyncio.timeout(CANCEL_SECONDS):
            await client.session.send_request(request, CancelTaskResult)


MOST_DESCRIPTION = 4_000
MOST_RESULT_CHARS = 500_000


class Unfit(ValueError):
    """A definition that no model could use; the message says why."""


class Definition(Struct, frozen=True):
    """What a server says of a tool. `digest` changes with anything a model or a person would read of it."""

    name: str
    title: str
    description: str
    parameters: Parameters
    read_only: bool
    destructive: bool
    always_load: bool
    max_result_chars: int | None
    digest: str
    as_task: bool = False


def definition_of(tool: Any) -> Definition:
    """From the SDK's model of a tool. Raises `Unfit`."""
    meta: Mapping[str, Any] = tool.meta or {}
    schema = meta.get(INPUT, tool.input_schema)
    hints = tool.annotations
    read_only = bool(hints and hints.read_only_hint)
    limit = meta.get("anthropic/maxResultSizeChars")
    return Definition(
        tool.name,
        tool.title or (hints.title if hints and hints.title else ""),
        _cut(tool.description or ""),
        parameters_of(schema),
        read_only,
        not read_only and not (hints and hints.destructive_hint is False),
        meta.get("anthropic/alwaysLoad") is True,
        min(limit, MOST_RESULT_CHARS) if isinstance(limit, int) and limit > 0 else None,
        digest(tool.name, tool.description or "", schema, hints.model_dump(exclude_none=True) if hints else {}),
        as_task=bool(tool.execution and tool.execution.task_support == "required"),
    )


def parameters_of(schema: Any) -> Parameters:
    """Parameters that show a schema any provider takes and check against the one the server gave."""
    if schema is None or schema is True:
        schema = {}
    if not isinstance(schema, Mapping):
        raise Unfit(f"its input schema is {type(schema).__name__}, not an object")
    kind = schema.get("type", "object")
    if kind != "object" and not (isinstance(kind, list) and "object" in kind):
        raise Unfit(f"its input is of type {json.dumps(kind)}, and a tool takes an object")
    parameters = Parameters.from_schema(schema)
    try:
        parameters.compile()
        shown = adapted(schema, OPENAI)
    except (SchemaError, ValueError, TypeError, AttributeError, RecursionError) as why:
        raise Unfit(f"its input schema cannot be used: {why}") from None
    parameters.schema = shown
    return parameters


def digest(*parts: Any) -> str:
    """A fingerprint of what a server says of a tool."""
    text = json.dumps(parts, sort_keys=True, ensure_ascii=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _cut(text: str) -> str:
    return truncate(text.strip(), MOST_DESCRIPTION)


SLACK_SECONDS = 5.0


class ServerTool(Tool):
    """What a hint says is used for scheduling alone: a tool that only reads may run beside others, and still asks."""

    def __init__(
        self, name: str, definition: Definition, connection: Connection, accepted: Callable[[], None] | None = None
    ) -> None:
        server = connection.config.name
        self.name = name
        self.definition = definition
        self.title = f"{server}: {definition.title or definition.name}"
        self.description = definition.description or f"The tool {definition.name} of the MCP server {server}."
        self.parameters = definition.parameters
        self.read_only = definition.read_only
        self.always_load = definition.always_load or connection.config.always_load
        self.timeout = connection.config.timeout + SLACK_SECONDS
        self.max_result_chars = definition.max_result_chars or Tool.max_result_chars
        self.server = server
        self._connection = connection
        self._accepted = accepted

    def effects(self, input: Mapping[str, Any], workspace: Workspace) -> Effects:
        """Nothing that could clash where it only reads; else nobody can say."""
        return NOTHING if self.read_only else UNKNOWN

    def needs_permission(self, input: Mapping[str, Any], effects: Effects) -> bool:
        """Always: what a server says of itself is no reason to trust it."""
        return True

    def destructive(self, input: Mapping[str, Any]) -> bool:
        """What the server says, and yes where it says nothing."""
        return self.definition.destructive

    @property
    def checks(self) -> bool:
        """Only where the definition is not the one the user agreed to."""
        return self._accepted is not None

    async def check(self, input: Mapping[str, Any], ctx: ToolContext) -> Doubt | None:
        """A changed definition is a new tool: the person decides."""
        if self._accepted is None:
            return None
        return Doubt(f"the server {self.server} has changed what this tool is or takes since you first used it")

    async def run(self, args: Any, ctx: ToolContext) -> Output:  # type: ignore[override]
        """Call the server, passing on its progress."""
        if self._accepted is not None:
            accepted, self._accepted = self._accepted, None
            await in_thread(accepted)

        async def progressed(done: float, total: float | None, message: str | None) -> None:
            share = f"{done:g}/{total:g}" if total else f"{done:g}"
            text = f"{message} ({share})" if message else share
            data = {"progress": done, "total": total}
            ctx.emit(ToolProgress(call_id=ctx.call_id, name=self.name, text=text, data=data))

        result = await self._connection.call(self.definition, args, progressed)
        folder = ctx.workspace.session_dir / "tool-results"
        if is_plain(result):
            return output_of(result, folder)
        return await in_thread(output_of, result, folder)


PAGES = 200
LIST_SECONDS = 60.0
PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0)


async def tools_of(client: Any, server: str) -> list[Any]:
    """Everything the server lists; what is no tool at all was set aside before, and is named in the log."""
    if client.server_capabilities.tools is None and client.server_capabilities.resources is not None:
        return []
    tools: list[Any] = []
    cursor: str | None = None
    async with asyncio.timeout(LIST_SECONDS):
        for _ in range(PAGES):
            page = await client.list_tools(cursor=cursor)
            tools += page.tools
            for refused in (page.meta or {}).get(REFUSED, ()):
                log.warning("MCP server %s lists %s: left out", server, refused)
            cursor = page.next_cursor
            if not cursor:
                break
    return tools


def must_subscribe(client: Any) -> bool:
    """Whether changes are told only to whoever subscribes, as since the revision of 2026."""
    from mcp_types.version import MODERN_PROTOCOL_VERSIONS

    tools = client.server_capabilities.tools
    return bool(client.protocol_version in MODERN_PROTOCOL_VERSIONS and tools and tools.list_changed)


async def follow(client: Any, server: str, changed: Callable[[], None]) -> None:
    """Subscribe to changes, and again when the subscription is lost."""
    from mcp.client.subscriptions import SubscriptionLost
    from mcp.shared.exceptions import MCPError

    for pause in PAUSES:
        try:
            async with client.listen(tools_list_changed=True) as subscription:
                async for _ in subscription:
                    changed()
            return
        except SubscriptionLost:
            await asyncio.sleep(pause)
            changed()
        except (MCPError, TimeoutError) as error:
            log.info("MCP server %s tells nothing of changes: %s", server, error)
            return
