"""A model on loopback that says what its script says, over three wires, and stamps every request."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bench.peers.script import Say, Scenario, Turn
from bench.peers.wires import PATHS, Named, Piece, Wire, results, stream

LARGEST = 64 << 20


@dataclass(slots=True)
class Stamped:
    """One request: when all of it had arrived, when the first call of the answer was out, when the answer ended.

    The end is stamped before its last bytes are given to the kernel, so a gap never comes out too small.
    """

    arrived: float
    size: int
    results: list[str]
    called: float = 0.0
    ended: float = 0.0


class Model:
    """The server. `load` gives it a script and forgets what was asked before."""

    def __init__(self) -> None:
        self.requests: list[Stamped] = []
        self.complaints: list[str] = []
        self._scenario = Scenario("", ())
        self._named: Named = lambda call: ("", {})
        self._server: asyncio.Server | None = None

    async def start(self) -> str:
        """Listen; the address."""
        self._server = await asyncio.start_server(self._connection, "127.0.0.1", 0, limit=LARGEST)
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def load(self, scenario: Scenario, named: Named) -> None:
        """From now on say this."""
        self._scenario, self._named = scenario, named
        self.requests, self.complaints = [], []

    def close(self) -> None:
        """Listen no more."""
        if self._server:
            self._server.close()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
                body = await _body(reader, fields)
                arrived = time.time()
                method, path, _ = head[0].split(" ", 2)
                await self._respond(writer, method, path.partition("?")[0], body, arrived)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the agent has gone
        finally:
            writer.close()

    async def _respond(self, writer: asyncio.StreamWriter, method: str, path: str, body: bytes, arrived: float) -> None:
        wire = next((wire for end, wire in PATHS.items() if method == "POST" and path.endswith(end)), None)
        if wire is None:
            known = path.endswith("/models")
            _plain(writer, 200 if known else 404, {"object": "list", "data": []} if known else {"error": "not here"})
            return
        request: dict[str, Any] = json.loads(body)
        if not request.get("tools"):
            # A title or a summary, which some agents ask for beside their work.
            await _send(writer, stream(wire, (Say("A title"),), self._named, 0), Stamped(arrived, len(body), []))
            return
        stamped = Stamped(arrived, len(body), results(wire, request))
        turn = self._scenario.turn_after(len(stamped.results))
        if turn is None:
            self.complaints.append(f"no turn begins after {len(stamped.results)} results")
            _plain(writer, 400, {"error": {"type": "invalid_request_error", "message": self.complaints[-1]}})
            return
        self.requests.append(stamped)
        await self._speak(writer, wire, turn, stamped)

    async def _speak(self, writer: asyncio.StreamWriter, wire: Wire, turn: Turn, stamped: Stamped) -> None:
        if self._scenario.thought and not stamped.results:
            await asyncio.sleep(self._scenario.thought)
        await _send(writer, stream(wire, turn, self._named, len(self.requests)), stamped)


async def _body(reader: asyncio.StreamReader, fields: dict[str, str]) -> bytes:
    if "chunked" not in fields.get("transfer-encoding", ""):
        return await reader.readexactly(int(fields.get("content-length", "0")))
    parts = []
    while size := int(await reader.readline(), 16):
        parts.append((await reader.readexactly(size + 2))[:-2])
    await reader.readline()
    return b"".join(parts)


async def _send(writer: asyncio.StreamWriter, pieces: Iterator[Piece], stamped: Stamped) -> None:
    """What has no pause between goes out in one write, as from a server that has it all at once."""
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    waiting, calls = head, False
    together = b""
    for piece in pieces:
        if piece.pause:
            if calls and not stamped.called:
                stamped.called = time.time()
            writer.write(waiting + _chunk(together))
            waiting = together = b""
            await asyncio.sleep(piece.pause)
        together += piece.data
        calls = calls or piece.ends_call
    stamped.ended = time.time()
    if calls and not stamped.called:
        stamped.called = stamped.ended
    writer.write(waiting + _chunk(together) + b"0\r\n\r\n")
    await writer.drain()


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data) if data else b""


def _plain(writer: asyncio.StreamWriter, status: int, answer: dict[str, Any]) -> None:
    body = json.dumps(answer).encode()
    head = f"HTTP/1.1 {status} -\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
