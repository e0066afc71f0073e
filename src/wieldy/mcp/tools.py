"""MCP tools: listed by their server, offered as tools of ours, called over its connection."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from wieldy.core.effects import UNKNOWN_EFFECTS, Effects
from wieldy.core.events import ToolProgress
from wieldy.core.logs import log
from wieldy.core.threads import in_thread
from wieldy.core.tool import Doubt, Output, Tool, ToolContext
from wieldy.mcp.content import convert_result, is_short_text
from wieldy.mcp.definitions import MAX_ITEMS, REJECTED_KEY, TASK_KEY, ToolDefinition

if TYPE_CHECKING:
    from wieldy.core.workspace import Workspace
    from wieldy.mcp.connection import Connection

MAX_PAGES = 200
LIST_SECONDS = 60.0
CANCEL_SECONDS = 2.0
TIMEOUT_SLACK_SECONDS = 5.0
RETRY_PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0)


class ServerTool(Tool):
    """A tool of a server. Its hints are used for scheduling only: what it touches is unknown, whatever it claims.

    `accept` is set where the definition differs from the one the user accepted before; it records the new one.
    """

    def __init__(
        self, name: str, definition: ToolDefinition, connection: Connection, accept: Callable[[], None] | None = None
    ) -> None:
        server = connection.config.name
        self.name = name
        self.definition = definition
        self.title = f"{server}: {definition.title or definition.name}"
        self.description = definition.description or f"The tool {definition.name} of the MCP server {server}."
        self.parameters = definition.parameters
        self.read_only = definition.read_only
        self.replay = "safe" if connection.config.trust_hints and definition.may_repeat else "never"
        self.always_load = definition.always_load or connection.config.always_load
        self.timeout = connection.config.timeout + TIMEOUT_SLACK_SECONDS
        self.max_result_chars = definition.max_result_chars or Tool.max_result_chars
        self.server = server
        self._connection = connection
        self._accept = accept

    @property
    def unknown_effects(self) -> str:
        return "only its server says what it touches"

    def effects(self, input: Mapping[str, Any], workspace: Workspace) -> Effects:
        return UNKNOWN_EFFECTS

    def concurrency_safe(self, input: Mapping[str, Any]) -> bool | None:
        return True if self.read_only else None

    def needs_permission(self, input: Mapping[str, Any], effects: Effects) -> bool:
        return True

    def destructive(self, input: Mapping[str, Any]) -> bool:
        return self.definition.destructive

    @property
    def has_check(self) -> bool:
        return self._accept is not None

    async def check(self, input: Mapping[str, Any], ctx: ToolContext) -> Doubt | None:
        if self._accept is None:
            return None
        return Doubt(f"the server {self.server} has changed what this tool is or takes since you first used it")

    async def call(self, arguments: Mapping[str, Any]) -> Any:
        """Call the tool for a program, not for a model: no permission is asked for. Raises `ToolFailure`."""
        return await self._connection.call(self.definition, dict(arguments))

    async def run(self, args: Any, ctx: ToolContext) -> Output:  # type: ignore[override]
        if self._accept is not None:
            accept, self._accept = self._accept, None
            await in_thread(accept)

        async def report_progress(done: float, total: float | None, message: str | None) -> None:
            share = f"{done:g}/{total:g}" if total else f"{done:g}"
            text = f"{message} ({share})" if message else share
            data = {"progress": done, "total": total}
            ctx.emit(ToolProgress(call_id=ctx.call_id, name=self.name, text=text, data=data))

        result = await self._connection.call(self.definition, args, report_progress, ctx.idempotency_key)
        folder = ctx.workspace.session_dir / "tool-results"
        if is_short_text(result):
            return convert_result(result, folder)
        return await in_thread(convert_result, result, folder)


async def list_all(request: Any, field: str, max_pages: int = MAX_PAGES) -> list[Any]:
    """Return the items of every page of a list request of the SDK's client, up to the page that exceeds `MAX_ITEMS`."""
    items: list[Any] = []
    cursor: str | None = None
    for _ in range(max_pages):
        page = await request(cursor=cursor)
        items += getattr(page, field)
        for rejected in (page.meta or {}).get(REJECTED_KEY, ()):
            log.warning("an MCP server lists %s: left out", rejected)
        cursor = page.next_cursor
        if not cursor or len(items) > MAX_ITEMS:
            break
    return items


async def list_tools(client: Any) -> list[Any]:
    """Return every tool the server lists; a server that only offers resources is not asked."""
    if client.server_capabilities.tools is None and client.server_capabilities.resources is not None:
        return []
    async with asyncio.timeout(LIST_SECONDS):
        return await list_all(client.list_tools, "tools")


def needs_subscription(client: Any) -> bool:
    """Return whether the server reports changed tools to subscribers only, as protocol versions since 2026 do."""
    from mcp_types.version import MODERN_PROTOCOL_VERSIONS

    tools = client.server_capabilities.tools
    return bool(client.protocol_version in MODERN_PROTOCOL_VERSIONS and tools and tools.list_changed)


async def watch_tool_changes(client: Any, server: str, on_change: Callable[[], None]) -> None:
    """Subscribe to changes of the tool list, and again when the subscription is lost."""
    from mcp.client.subscriptions import SubscriptionLost
    from mcp.shared.exceptions import MCPError

    for pause in RETRY_PAUSES:
        try:
            async with client.listen(tools_list_changed=True) as subscription:
                async for _ in subscription:
                    on_change()
            return
        except SubscriptionLost:
            await asyncio.sleep(pause)
            on_change()
        except (MCPError, TimeoutError) as error:
            log.info("MCP server %s does not report changed tools: %s", server, error)
            return


async def call_as_task(client: Any, tool: str, arguments: dict[str, Any], seconds: float, meta: Any = None) -> Any:
    """Call a tool that must be called as a task (protocol version 2025-11-25) and wait for its result."""
    from mcp_types import (
        CallToolRequest,
        CallToolRequestParams,
        CallToolResult,
        GetTaskPayloadRequest,
        GetTaskPayloadRequestParams,
        TaskMetadata,
    )

    metadata = TaskMetadata(ttl=int(seconds * 1000))
    params = CallToolRequestParams(name=tool, arguments=arguments, task=metadata, _meta=meta)
    request = CallToolRequest(params=params)
    created = await client.session.send_request(request, CallToolResult)
    task = (created.meta or {}).get(TASK_KEY)
    if not isinstance(task, dict):
        return created
    task_id = str(task.get("taskId"))
    try:
        payload = GetTaskPayloadRequest(params=GetTaskPayloadRequestParams(task_id=task_id))
        return await client.session.send_request(payload, CallToolResult)
    except asyncio.CancelledError:
        await _cancel_task(client, task_id)
        raise


async def _cancel_task(client: Any, task_id: str) -> None:
    from mcp.shared.exceptions import MCPError
    from mcp_types import CancelTaskRequest, CancelTaskRequestParams, CancelTaskResult

    request = CancelTaskRequest(params=CancelTaskRequestParams(task_id=task_id))
    with contextlib.suppress(MCPError, TimeoutError, ValueError):
        async with asyncio.timeout(CANCEL_SECONDS):
            await client.session.send_request(request, CancelTaskResult)
