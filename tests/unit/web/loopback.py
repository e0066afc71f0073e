"""A web server on loopback whose answers are bytes, and a record of connections that were never made."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wieldy.core.workspace import Workspace
from wieldy.engine.workspace_services import open_workspace
from wieldy.web.http import Streams

Say = Callable[[asyncio.StreamWriter], Awaitable[None]]


def response(body: bytes = b"", status: str = "200 OK", **headers: str) -> bytes:
    """An HTTP answer; header names are written with `_` for `-`."""
    lines = [f"HTTP/1.1 {status}", f"content-length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


@dataclass
class Server:
    """What is said at which path, and what was asked."""

    port: int = 0
    says: dict[str, bytes | Say] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    heads: list[bytes] = field(default_factory=list)

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            path = head.split(b" ", 2)[1].decode()
            self.asked.append(path)
            self.heads.append(head)
            said = self.says.get(path.partition("?")[0], response(b"no such page", "404 Not Found"))
            if isinstance(said, bytes):
                writer.write(said)
                await writer.drain()
            else:
                await said(writer)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def serving(
    says: dict[str, bytes | Say] | None = None, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Server]:
    """A server on a free port of loopback."""
    site = Server(says=says or {})
    server = await asyncio.start_server(site.serve, "127.0.0.1", 0, ssl=tls)
    site.port = server.sockets[0].getsockname()[1]
    try:
        yield site
    finally:
        server.close()


class Recorder:
    """A connector that notes where a connection would have gone, and refuses."""

    def __init__(self) -> None:
        self.attempts: list[tuple[str, int, bool, str]] = []

    async def __call__(self, address: str, port: int, tls: ssl.SSLContext | None, name: str) -> Streams:
        self.attempts.append((address, port, tls is not None, name))
        raise ConnectionRefusedError(111, "recorded, not connected")


class Names:
    """A resolver with answers of its own: for each name a list of answers, the last of which is repeated."""

    def __init__(self, **answers: Sequence[Sequence[str]]) -> None:
        self._answers = {name.replace("__", "-").replace("_", "."): list(found) for name, found in answers.items()}
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        found = self._answers.get(host)
        if not found:
            raise OSError(-2, "Name or service not known")
        return found.pop(0) if len(found) > 1 else found[0]


def workspace(folder: Path, env: dict[str, str] | None = None, **web: Any) -> Workspace:
    """A workspace with these settings of `web`."""
    return open_workspace(folder, session_dir=folder / "session", settings={"web": web}, env=env or {})
