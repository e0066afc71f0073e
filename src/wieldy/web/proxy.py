"""A forward proxy for HTTP and CONNECT on loopback: the only network access of the browser and of sandboxed commands.

Sandboxed commands reach the hosts in `sandbox.allowedDomains` by it.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import re
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeAlias

from wieldy.core.errors import ToolFailure
from wieldy.core.workspace import Workspace
from wieldy.shell.sandbox.policy import ProxyEndpoint
from wieldy.web.address_policy import HostRefused
from wieldy.web.fetch import Fetcher
from wieldy.web.http import Streams
from wieldy.web.url import HttpUrl, InvalidUrl, parse_url

Connector: TypeAlias = Callable[[HttpUrl], Awaitable[Streams]]
"""Checks whether a URL may be requested and connects to its host. Raises `ToolFailure`."""

MAX_HEAD_BYTES = 256 << 10
HEAD_TIMEOUT = 30.0
CHUNK_BYTES = 1 << 16
REFUSED_HEADER = "x-wieldy-refused"
DROPPED_HEADERS = frozenset({b"connection", b"host", b"keep-alive"})
"""Headers that the proxy sets itself or that are meant for it, besides `proxy-*`."""


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
    start = f"{method} {url.target} HTTP/1.1\r\nConnection: close\r\nHost: {url.authority}\r\n".encode("latin-1")
    return url, start + _forwarded_headers(headers) + b"\r\n"


def _forwarded_headers(headers: bytes) -> bytes:
    """The headers for the server, as h11 reads them. A `Host` of the client could name a host that was not checked."""
    import h11

    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=2 * MAX_HEAD_BYTES)
    connection.receive_data(b"GET / HTTP/1.0\r\n" + headers)
    try:
        request = connection.next_event()
    except h11.RemoteProtocolError as error:
        raise InvalidUrl(f"The headers of the request are malformed: {error}.") from None
    assert isinstance(request, h11.Request)
    names = {name for name, _ in request.headers}
    # With both, servers disagree about where a body ends: what follows it could pass as a request of its own.
    dropped = DROPPED_HEADERS | {b"content-length"} if b"transfer-encoding" in names else DROPPED_HEADERS
    return b"".join(
        b"%s: %s\r\n" % (name, value)
        for name, value in request.headers.raw_items()
        if name.lower() not in dropped and not name.lower().startswith(b"proxy-")
    )


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


DEFAULT_PORTS = (80, 443)


class SandboxProxy:
    """The proxy of a workspace: `workspace.services.sandbox_proxy`. The first command that needs it opens it."""

    def __init__(self, workspace: Workspace, fetcher: Fetcher) -> None:
        self._allowed: Sequence[str] = workspace.setting("sandbox.allowedDomains")
        self._fetcher = fetcher
        self._proxy = ForwardProxy(self._connect)
        self._opening = asyncio.Lock()
        self._endpoint: ProxyEndpoint | None = None

    async def open(self) -> ProxyEndpoint:
        """Start listening at the first call."""
        async with self._opening:
            if self._endpoint is None:
                # The path of a socket is limited to about a hundred bytes: a session's own folder can be too deep.
                path = str(Path(tempfile.mkdtemp(prefix="wieldy-"), "proxy"))
                self._endpoint = ProxyEndpoint(await self._proxy.listen(path), path)
            return self._endpoint

    async def aclose(self) -> None:
        await self._proxy.aclose()
        if self._endpoint is not None:
            shutil.rmtree(Path(self._endpoint.socket).parent, ignore_errors=True)

    async def _connect(self, url: HttpUrl) -> Streams:
        if not is_allowed(url.host, url.port, self._allowed):
            raise HostRefused(f"sandbox: {url.host}:{url.port} is not in sandbox.allowedDomains")
        # A host that the user named by its address, or as this machine, may be private.
        private_hosts = [url.host] if _is_local_name(url.host) else []
        addresses = await self._fetcher.address_policy(*private_hosts).resolve(url)
        return await self._fetcher.connect_any(url, addresses)


def is_allowed(host: str, port: int, patterns: Sequence[str]) -> bool:
    """Whether a pattern covers a host: `example.com` itself, `*.example.com` all below it, `host:8080` another port."""
    name = host.lower().rstrip(".")
    for pattern in patterns:
        pattern_host, _, pattern_port = pattern.lower().partition(":")
        if port not in DEFAULT_PORTS if not pattern_port else pattern_port != str(port):
            continue
        if name == pattern_host or (pattern_host.startswith("*.") and name.endswith(pattern_host[1:])):
            return True
    return False


def _is_local_name(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost"
    return True
