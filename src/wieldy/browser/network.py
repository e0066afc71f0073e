"""The browser's only way to the network: a proxy on loopback that has every host judged and connects to what was judged."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable
from typing import TypeAlias
from urllib.parse import urlsplit

from wieldy.core.call import PlannedCall, ToolCall
from wieldy.core.decision import Decision, Judge
from wieldy.core.effects import Fetches
from wieldy.core.errors import ToolFailure
from wieldy.core.tool import Tool
from wieldy.web.address import BadAddress, WebAddress, parse_address
from wieldy.web.fetch import Streams

Reach: TypeAlias = Callable[[WebAddress], Awaitable[Streams]]
"""Judges where a connection wants to go, and makes it. Raises `ToolFailure`."""

LONGEST_HEAD = 256 << 10
HEAD_SECONDS = 30.0
PIECE = 1 << 16
REFUSED_BY_US = "x-wieldy-refused"
HOP_BY_HOP = re.compile(rb"(?im)^(proxy-[a-z-]+|connection|keep-alive):[^\r\n]*\r\n")


class WayOut:
    """The proxy. It is closed together with every connection through it."""

    def __init__(self, reach: Reach) -> None:
        self._reach = reach
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[None]] = set()

    async def open(self) -> str:
        """Start to listen; the address for the browser."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=LONGEST_HEAD)
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def aclose(self) -> None:
        """Let nothing more through, and end what is being let through."""
        if self._server is not None:
            self._server.close()
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            async with asyncio.timeout(HEAD_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
            await self._answer(head, reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            return
        except asyncio.CancelledError:
            # Only `aclose` cancels, and the server behind this task would report a cancellation as an error.
            writer.transport.abort()
        finally:
            self._serving.discard(task)
            writer.close()

    async def _answer(self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            where, onward = _request(head)
            there_reader, there = await self._reach(where)
        except (BadAddress, ToolFailure) as no:
            writer.write(_no(str(no)))
            await writer.drain()
            return
        try:
            if onward:
                there.write(onward)
            else:
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            await asyncio.gather(_pass_on(reader, there), _pass_on(there_reader, writer))
        finally:
            there.close()


def _request(head: bytes) -> tuple[WebAddress, bytes]:
    """Where a request wants to go, and what to send on; nothing for a tunnel. Raises `BadAddress`."""
    line, _, rest = head.partition(b"\r\n")
    method, _, target = line.decode("latin-1").rpartition(" ")[0].partition(" ")
    if method == "CONNECT":
        return parse_address(f"https://{target}"), b""
    if not target.startswith("http://"):
        raise BadAddress("Only http and https are passed on.")
    where = parse_address(target)
    # One request a connection: a second one on it might be for another host, and would not be judged.
    start = f"{method} {where.target} HTTP/1.1\r\nConnection: close\r\n".encode("latin-1")
    return where, start + HOP_BY_HOP.sub(b"", rest)


def _no(why: str) -> bytes:
    body = why.encode()
    head = (
        "HTTP/1.1 403 Forbidden",
        "Content-Type: text/plain; charset=utf-8",
        f"Content-Length: {len(body)}",
        f"{REFUSED_BY_US}: yes",
        "Connection: close",
    )
    return "\r\n".join((*head, "", "")).encode() + body


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(PIECE):
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()


class _Visit(Tool):
    """What is judged when a page leads to another: the same as a call of BrowserNavigate."""

    name = "BrowserNavigate"
    description = "Go to a page."


class Visits:
    """What was permitted so far, and who judges what was not."""

    def __init__(self) -> None:
        self.judge: Judge | None = None
        self._permitted: set[str] = set()
        self._tool = _Visit()

    def permit(self, where: WebAddress) -> None:
        """Take note that somebody allowed going to this host; while the browser is open its pages may be shown."""
        self._permitted.add(where.host)

    def forbidden(self, where: WebAddress) -> str | None:
        """Why nothing may be loaded from an address, not even a picture for another page; None where it may."""
        decision = self._decide(where)
        return next((str(r) for r in decision.reasons if r.behavior == "deny" and r.kind != "mode"), None)

    def refused(self, where: WebAddress) -> str | None:
        """Why a page may not be shown; None where it may."""
        if (why := self.forbidden(where)) is not None:
            return why
        decision = self._decide(where)
        return None if decision.behavior == "allow" or where.host in self._permitted else decision.why

    def _decide(self, where: WebAddress) -> Decision:
        if self.judge is None:
            return Decision("ask", ())
        input = {"url": where.url}
        call = ToolCall("", self._tool.name, input)
        return self.judge.decide(PlannedCall(call, self._tool, input, input, (Fetches(where.url),)), ())


PATIENCE = 2.0


class Wanted:
    """Hosts by request. Who connects may be quicker than who tells of the request, and then waits a moment."""

    def __init__(self) -> None:
        self._hosts: set[str] = set()
        self._waiting: dict[str, list[asyncio.Future[None]]] = {}

    def note(self, url: str) -> None:
        """A page has asked for this address."""
        try:
            host = urlsplit(url).hostname
        except ValueError:
            return
        if host and host not in self._hosts:
            self._hosts.add(host)
            for waiter in self._waiting.pop(host, ()):
                if not waiter.done():
                    waiter.set_result(None)

    async def has(self, host: str, patience: float = PATIENCE) -> bool:
        """Whether a page has asked for this host, or does so within a moment."""
        if host in self._hosts:
            return True
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(host, []).append(waiter)
        try:
            async with asyncio.timeout(patience):
                await waiter
        except TimeoutError:
            return host in self._hosts
        return True
