"""A server's tools: listed page by page, and heard of when they change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from wieldy.core.log import log
from wieldy.mcp.listing import REFUSED

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
