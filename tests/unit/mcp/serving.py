"""A client of the official SDK connected to our server in this process, message by message as on any wire."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client
from mcp.shared.memory import create_client_server_memory_streams

from wieldy import Tool, Toolbox
from wieldy.faces.mcp_server.server import ClientSession, RequestHandlers, SingleSession

both_eras = pytest.mark.parametrize("era", ("legacy", "2026-07-28"))


@asynccontextmanager
async def connected(
    root: Path,
    era: str,
    *,
    tools: tuple[Tool, ...] = (),
    settings: Mapping[str, Any] | None = None,
    files: bool = False,
    **client: Any,
) -> AsyncIterator[tuple[Client, ClientSession]]:
    """Yield a client and its session at the server. With `files` the settings files count, too."""
    session = ClientSession(
        lambda ask, host: Toolbox(root, tools=tools, ask=ask, settings=settings or {}, load_settings=files, host=host)
    )
    await session.open()
    try:
        async with Client(
            _wire(RequestHandlers(SingleSession(session)).create_server()), mode=era, cache=None, **client
        ) as peer:
            yield peer, session
    finally:
        await session.aclose()


@asynccontextmanager
async def _wire(server: Any) -> AsyncIterator[Any]:
    async with create_client_server_memory_streams() as (ours, theirs), anyio.create_task_group() as group:
        group.start_soon(server.run, *theirs, server.create_initialization_options())
        yield ours
        group.cancel_scope.cancel()


def text(result: types.CallToolResult) -> str:
    """The text of a result."""
    return "\n".join(block.text for block in result.content if isinstance(block, types.TextContent))
