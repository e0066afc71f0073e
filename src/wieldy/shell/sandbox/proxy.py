"""The one door of a sandbox without network: an HTTP proxy that lets through to the hosts the settings name, and no others."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import re
import shutil
import socket
import tempfile
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from msgspec import Struct

from wieldy.core.workspace import Workspace

USUAL_PORTS = (80, 443)
LONGEST_HEAD = 64 << 10
SECONDS = 30.0


class Door(Struct, frozen=True):
    """Where the proxy listens: on a loopback port, and on a socket in the file system for those with a loopback of their own."""

    port: int
    socket: str


class NotAllowed(Exception):
    """A connection the settings do not allow; the message is for the program that asked."""


class Proxy:
    """The proxy of a workspace: `workspace.service(Proxy)`. It is opened by the first command that needs it."""

    def __init__(self, workspace: Workspace) -> None:
        self._allowed: Sequence[str] = workspace.setting("sandbox.allowedDomains", list[str]())
        self._folder = Path(tempfile.gettempdir())
        self._servers: list[asyncio.Server] = []
        self._connections: set[asyncio.StreamWriter] = set()
        self._opening = asyncio.Lock()
        self._door: Door | None = None

    async def open(self) -> Door:
        """Where it listens; it begins to at the first call."""
        async with self._opening:
            if self._door is None:
                # Names of sockets may hardly be longer than a hundred bytes: a session's own folder can be too deep.
                self._folder = Path(tempfile.mkdtemp(prefix="wieldy-"))
                path = str(self._folder / "proxy")
                by_port = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=LONGEST_HEAD)
                self._servers = [by_port, await asyncio.start_unix_server(self._serve, path, limit=LONGEST_HEAD)]
                self._door = Door(by_port.sockets[0].getsockname()[1], path)
            return self._door

    async def aclose(self) -> None:
        """Close the door and every connection through it."""
        for server in self._servers:
            server.close()
        for writer in list(self._connections):
            writer.close()
        if self._door is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError):
                head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), SECONDS)
                await self._answer(head, reader, writer)
        finally:
            self._connections.discard(writer)
            writer.close()

    async def _answer(self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            host, port, onward = _request(head)
            address = await self._address(host, port)
        except NotAllowed as no:
            writer.write(f"HTTP/1.1 403 Forbidden\r\nConnection: close\r\n\r\nsandbox: {no}\n".encode())
            await writer.drain()
            return
        there_reader, there = await asyncio.wait_for(asyncio.open_connection(address, port), SECONDS)
        self._connections.add(there)
        try:
            if onward:
                there.write(onward)
            else:
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            await asyncio.gather(_pass_on(reader, there), _pass_on(there_reader, writer))
        finally:
            self._connections.discard(there)
            there.close()

    async def _address(self, host: str, port: int) -> str:
        """The address to connect to: resolved once, so that what was judged is what is used."""
        if not is_allowed(host, port, self._allowed):
            raise NotAllowed(f"{host}:{port} is not in sandbox.allowedDomains")
        try:
            found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as problem:
            raise NotAllowed(f"{host} cannot be resolved: {problem.strerror}") from None
        address = str(found[0][4][0])
        if not _is_public(address) and not _is_local_name(host):
            raise NotAllowed(f"{host} leads to {address}, which is not a public address")
        return address


def is_allowed(host: str, port: int, patterns: Sequence[str]) -> bool:
    """Whether a pattern covers a host: `example.com` itself, `*.example.com` all below it, `host:8080` another port."""
    name = host.lower().rstrip(".")
    for pattern in patterns:
        wanted, _, wanted_port = pattern.lower().partition(":")
        if port not in USUAL_PORTS if not wanted_port else wanted_port != str(port):
            continue
        if name == wanted or (wanted.startswith("*.") and name.endswith(wanted[1:])):
            return True
    return False


def proxy_environment(port: int) -> dict[str, str]:
    """The variables by which programs find the proxy."""
    address = f"http://127.0.0.1:{port}"
    names = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")
    return {**dict.fromkeys(names, address), "NO_PROXY": "", "no_proxy": ""}


def _request(head: bytes) -> tuple[str, int, bytes]:
    """Host and port a request wants, and what to send on; nothing for a tunnel."""
    line, _, rest = head.partition(b"\r\n")
    words = line.decode("latin-1").split(" ")
    if len(words) != 3:
        raise NotAllowed("this is no HTTP request")
    method, target, version = words
    parts = urlsplit(f"//{target}" if method == "CONNECT" else target)
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or (method == "CONNECT" and port is None) or (method != "CONNECT" and parts.scheme != "http"):
        raise NotAllowed("only CONNECT and plain http requests are passed on")
    if method == "CONNECT":
        return host, port or 443, b""
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    # One request a connection: a second one on it would not be judged.
    kept = re.sub(rb"(?im)^(proxy-[a-z-]+|connection|keep-alive):[^\r\n]*\r\n", b"", rest)
    return host, port or 80, f"{method} {path} {version}\r\nConnection: close\r\n".encode("latin-1") + kept


def _is_public(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_global


def _is_local_name(host: str) -> bool:
    """Whether a host was named by its address, or as this very machine: then the user meant it."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return host.lower() == "localhost"
    return True


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
