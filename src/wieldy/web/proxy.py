"""A forward proxy for HTTP and CONNECT on loopback: the only network access of sandboxed commands and of the browser."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from wieldy.core.errors import ToolFailure
from wieldy.web.http import Streams
from wieldy.web.url import HttpUrl, InvalidUrl, parse_url

Connector: TypeAlias = Callable[[HttpUrl], Awaitable[Streams]]
"""Checks whether a URL may be requested and connects to its host. Raises `ToolFailure`."""

MAX_HEAD_BYTES = 256 << 10
HEAD_TIMEOUT = 30.0
CHUNK_BYTES = 1 << 16
REFUSED_HEADER = "x-wieldy-refused"
HOP_BY_HOP_HEADERS = re.compile(rb"(?im)^(proxy-[a-z-]+|connection|keep-alive):[^\r\n]*\r\n")


class ForwardProxy:
    """Accepts connections and lets `connect` decide about each and open it."""

    def __init__(self, connect: Connector) -> None:
        self._connect = connect
        self._servers: list[asyncio.Server] = []
        self._connections: set[asyncio.Task[None]] = set()

    async def listen(self, unix_socket: str | None = None) -> int:
        """Listen on a loopback port, which is returned, and on a Unix socket if one is named."""
        by_port = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=MAX_HEAD_BYTES)
        self._servers.append(by_port)
        if unix_socket is not None:
            self._servers.append(await asyncio.start_unix_server(self._serve, unix_socket, limit=MAX_HEAD_BYTES))
        port: int = by_port.sockets[0].getsockname()[1]
        return port

    async def aclose(self) -> None:
        """Stop listening and abort every open connection."""
        for server in self._servers:
            server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            async with asyncio.timeout(HEAD_TIMEOUT):
                head = await reader.readuntil(b"\r\n\r\n")
            await self._forward(head, reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            return
        except asyncio.CancelledError:
            # Only `aclose` cancels; asyncio's server would log the cancellation as an error.
            writer.transport.abort()
        finally:
            self._connections.discard(task)
            writer.close()

    async def _forward(self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            url, request = _parse_request(head)
            upstream_reader, upstream = await self._connect(url)
        except (InvalidUrl, ToolFailure) as error:
            writer.write(_forbidden(str(error)))
            await writer.drain()
            return
        try:
            if request:
                upstream.write(request)
            else:
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            await asyncio.gather(_copy(reader, upstream), _copy(upstream_reader, writer))
        finally:
            upstream.close()


def _parse_request(head: bytes) -> tuple[HttpUrl, bytes]:
    """The requested URL and the request to send upstream, empty for a tunnel. Raises `InvalidUrl`."""
    line, _, headers = head.partition(b"\r\n")
    method, _, target = line.decode("latin-1").rpartition(" ")[0].partition(" ")
    if method == "CONNECT":
        if not re.search(r":[0-9]+\Z", target):
            raise InvalidUrl("CONNECT needs a host and a port.")
        return parse_url(f"https://{target}"), b""
    if not target.startswith("http://"):
        raise InvalidUrl("Only http and https are passed on.")
    url = parse_url(target)
    # One request per connection: a second one could be for another host and would not be checked.
    start = f"{method} {url.target} HTTP/1.1\r\nConnection: close\r\n".encode("latin-1")
    return url, start + HOP_BY_HOP_HEADERS.sub(b"", headers)


def _forbidden(reason: str) -> bytes:
    body = f"{reason}\n".encode()
    head = (
        "HTTP/1.1 403 Forbidden",
        "Content-Type: text/plain; charset=utf-8",
        f"Content-Length: {len(body)}",
        f"{REFUSED_HEADER}: yes",
        "Connection: close",
    )
    return "\r\n".join((*head, "", "")).encode() + body


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(CHUNK_BYTES):
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
