"""The way to a server: a process, streamable HTTP or SSE, each as the streams the SDK talks over."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from wieldy.mcp.config import ServerConfig
from wieldy.mcp.listing import mended

CONNECT_SECONDS = 10.0
IDLE_SECONDS = 3600.0
LONGEST_EVENT = 256 << 20


class MendedStream:
    """A read stream whose tool lists are mended before the session sees them."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def receive(self) -> Any:
        """The next message."""
        item = await self._stream.receive()
        mended(getattr(getattr(item, "message", None), "result", None))
        return item

    def __aiter__(self) -> MendedStream:
        return self

    async def __anext__(self) -> Any:
        item = await self._stream.__anext__()
        mended(getattr(getattr(item, "message", None), "result", None))
        return item

    async def aclose(self) -> None:
        """Close the stream underneath."""
        await self._stream.aclose()

    async def __aenter__(self) -> MendedStream:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> Any:
        return await self._stream.__aexit__(*error)

    @property
    def last_context(self) -> Any:
        """The context in which the last message was sent, where the stream knows it."""
        return getattr(self._stream, "last_context", None)


@asynccontextmanager
async def remote(config: ServerConfig, auth: Any = None) -> AsyncIterator[Any]:
    """The streams of a server behind a URL."""
    import httpx2
    from mcp.client.sse import sse_client
    from mcp.client.streamable_http import streamable_http_client

    timeout = httpx2.Timeout(CONNECT_SECONDS, read=IDLE_SECONDS)
    if config.kind == "sse":
        async with sse_client(
            config.url,
            headers=dict(config.headers),
            timeout=CONNECT_SECONDS,
            sse_read_timeout=IDLE_SECONDS,
            auth=auth,
        ) as (read, write):
            yield MendedStream(read), write
        return
    async with (
        httpx2.AsyncClient(headers=dict(config.headers), timeout=timeout, auth=auth) as client,
        streamable_http_client(config.url, http_client=client, max_sse_event_size=LONGEST_EVENT) as (read, write),
    ):
        yield MendedStream(read), write
