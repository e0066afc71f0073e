"""Tools that a server runs only as tasks: created, awaited, and cancelled when nobody waits any more."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from wieldy.mcp.listing import TASK

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
