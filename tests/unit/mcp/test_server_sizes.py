"""What a server sends is bounded before it is in memory: bodies, values, requests, tools, refreshes, files."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import resource
import sys
import time
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from wieldy.engine.workspace_services import HostServices
from wieldy.mcp.config import KINDS
from wieldy.mcp.definitions import MAX_ITEMS
from wieldy.mcp.transport import (
    MAX_MESSAGE_BYTES,
    MAX_MESSAGE_VALUES,
    MAX_OPEN_REQUESTS,
    MessageMeter,
    MessageTooLarge,
    ServerStreams,
)

pytestmark = pytest.mark.asyncio

INFO = {"protocolVersion": "2025-06-18", "serverInfo": {"name": "h", "version": "1"}, "capabilities": {"tools": {}}}
TOOLS = {"tools": [{"name": "go", "inputSchema": {"type": "object"}}]}
ANSWERS: dict[Any, Any] = {"initialize": INFO, "tools/list": TOOLS}
JSON = b"Content-Type: application/json\r\n"


@asynccontextmanager
async def server_that(
    answers_a_call: Callable[[asyncio.StreamWriter, dict[str, Any]], Any], heads: list[str] | None = None
) -> AsyncIterator[str]:
    """A server over streamable HTTP that is like any other until a tool is called."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            if heads is not None:
                heads.append(head)
            lengths = [int(line.split(":")[1]) for line in head.split("\r\n") if line.startswith("content-length")]
            message = json.loads(await reader.readexactly(lengths[0])) if lengths else {}
            if message.get("method") == "tools/call":
                await answers_a_call(writer, message)
            elif (result := ANSWERS.get(message.get("method"))) is not None:
                body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()
                head_of_it = b"HTTP/1.1 200 OK\r\n" + JSON + b"Connection: close\r\n"
                writer.write(head_of_it + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            else:
                writer.write(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/mcp"
    finally:
        listening.close()


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


async def result_of(stage: Any, url: str) -> str:
    entry = {"type": "http", "url": url, "timeout": 30_000}
    async with asyncio.timeout(60), stage.box(h=entry) as box:
        await box.connected()
        assert box.workspace.services.mcp_servers.states()["h"].name == "ready"
        before = peak_mb()
        result = await box.call("mcp__h__go", {})
        assert result.is_error, result.text[:200]
        assert peak_mb() - before < 400, "the answer was held in memory"
        return str(result.text)


@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
async def test_a_small_body_that_is_large_when_decoded_is_refused(stage, kind):
    packed = gzip.compress(b'data: "' + b"a" * (MAX_MESSAGE_BYTES * 4), 1)  # a quarter gigabyte

    async def bomb(writer: asyncio.StreamWriter, message: dict[str, Any]) -> None:
        head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Encoding: gzip\r\nContent-Length: {len(packed)}\r\n\r\n"
        writer.write(head.encode() + packed)
        await writer.drain()

    async with server_that(bomb) as url:
        assert f"more than {MAX_MESSAGE_BYTES >> 20} MiB" in await result_of(stage, url)


@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
async def test_a_body_without_end_is_read_no_further_than_the_bound(stage, kind):
    sent = 0

    async def endless(writer: asyncio.StreamWriter, message: dict[str, Any]) -> None:
        nonlocal sent
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\n\r\ndata: ".encode())
        while sent < 3 * MAX_MESSAGE_BYTES:
            writer.write(b"x" * (1 << 20))
            sent += 1 << 20
            await writer.drain()

    async with server_that(endless) as url:
        assert f"more than {MAX_MESSAGE_BYTES >> 20} MiB" in await result_of(stage, url)
    assert sent < 2 * MAX_MESSAGE_BYTES


async def test_a_message_of_very_many_values_is_refused_and_one_of_much_text_is_not(stage):
    async def lists(writer: asyncio.StreamWriter, message: dict[str, Any]) -> None:
        values = b"[" + b"[]," * (2 * MAX_MESSAGE_VALUES) + b"[]]"
        result = b'{"content": [], "structuredContent": {"a": ' + values + b"}}"
        body = b'{"jsonrpc": "2.0", "id": %d, "result": %b}' % (message["id"], result)
        writer.write(b"HTTP/1.1 200 OK\r\n" + JSON + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        await writer.drain()

    async with server_that(lists) as url:
        assert f"more than {MAX_MESSAGE_VALUES:,} values" in await result_of(stage, url)
    meter = MessageMeter()
    text = json.dumps({"text": '[{,"\\' * MAX_MESSAGE_VALUES}).encode()
    for start in range(0, len(text), 65_536):
        meter.add(text[start : start + 65_536])
    assert meter.take() == text
    with pytest.raises(MessageTooLarge):
        meter.add(b"[" * (MAX_MESSAGE_VALUES + 1))


async def test_no_compression_is_asked_for_and_a_compressed_answer_is_read_all_the_same(stage):
    heads: list[str] = []

    async def answer(writer: asyncio.StreamWriter, message: dict[str, Any]) -> None:
        result = {"content": [{"type": "text", "text": "went"}]}
        body = gzip.compress(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode())
        head = b"HTTP/1.1 200 OK\r\n" + JSON + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n"
        writer.write(head % len(body) + body)

    async with server_that(answer, heads) as url, stage.box(h={"type": "http", "url": url}) as box:
        await box.connected()
        assert (await box.call("mcp__h__go", {})).text == "went"
    assert heads and all("accept-encoding: identity" in head for head in heads)


class Hostile:
    """A server that goes over one bound, whatever carries its messages."""

    def __init__(self, bound: str) -> None:
        self.bound = bound
        self.lists: list[float] = []  # when its tools were listed, by its clock
        self.over = asyncio.Event()

    @property
    def is_deaf(self) -> bool:
        """Whether it reads no answers to what it asks."""
        return self.bound == "requests"

    def replies(self, message: Mapping[str, Any]) -> list[dict[str, Any]]:
        """What it sends for a message, the answer last."""
        method, first = message.get("method"), list[dict[str, Any]]()
        if method is None or "id" not in message:
            return []
        if method == "initialize":
            result: dict[str, Any] = {**INFO, "capabilities": {"tools": {"listChanged": True}}}
        elif method == "tools/list":
            self.lists.append(time.monotonic())
            number = 10_000 if self.bound == "tools" else 1
            result = {"tools": [{"name": f"t{n}", "inputSchema": {"type": "object"}} for n in range(number)]}
            if self.bound == "refreshes":
                first = [{"method": "notifications/tools/list_changed"}] * 20
        elif method == "tools/call" and self.bound == "requests":
            first, result = [{"id": number, "method": "ping"} for number in range(60_000)], {"content": []}
        elif method == "tools/call":
            result = self._result()
        else:
            return [{"id": message["id"], "error": {"code": -32601, "message": "unknown"}}]
        return [*first, {"id": message["id"], "result": result}]

    def _result(self) -> dict[str, Any]:
        if self.bound == "size":
            return {"content": [{"type": "text", "text": "x" * (MAX_MESSAGE_BYTES + 1)}]}
        if self.bound == "values":
            return {"content": [], "structuredContent": {"a": [[]] * (2 * MAX_MESSAGE_VALUES)}}
        audio = {"type": "audio", "mimeType": "audio/wav", "data": "aGVsbG8="}
        image = {"type": "image", "mimeType": "image/png", "data": "iVBORw0KGgo="}
        text = {"type": "text", "text": ("data:image/x;base64," + "QUJD" * 60 + " ") * 500}
        return {"content": [image] * 1500 + [audio] * 1500 + [text]}

    def lines(self, message: Mapping[str, Any]) -> list[bytes]:
        return [json.dumps({"jsonrpc": "2.0", **reply}).encode() for reply in self.replies(message)]


@asynccontextmanager
async def listening(
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]], server: Hostile
) -> AsyncIterator[int]:
    """The port of what serves each connection; a connection is closed when it has been served."""

    async def serve_and_close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await serve(reader, writer)
        writer.close()

    listener = await asyncio.start_server(serve_and_close, "127.0.0.1", 0, limit=1 << 20)
    try:
        yield listener.sockets[0].getsockname()[1]
    finally:
        server.over.set()
        listener.close()


async def read_request(reader: asyncio.StreamReader) -> tuple[str, dict[str, Any]]:
    """The method of an HTTP request, and its message."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    lengths = [int(line.split(":")[1]) for line in head.split("\r\n") if line.startswith("content-length")]
    return head.split(" ")[0], json.loads(await reader.readexactly(lengths[0])) if lengths else {}


ACCEPTED = b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Encoding: gzip\r\nConnection: close\r\n\r\n"


class Events:
    """Writes a compressed stream of events: what is bounded is what it decodes to."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._packer = zlib.compressobj(1, wbits=31)
        writer.write(EVENTS)

    async def send(self, *events: bytes) -> None:
        packed = self._packer.compress(b"".join(event + b"\n\n" for event in events))
        self._writer.write(packed + self._packer.flush(zlib.Z_SYNC_FLUSH))
        await self._writer.drain()


@asynccontextmanager
async def http_kind(server: Hostile, stage: Any) -> AsyncIterator[dict[str, Any]]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        method, message = await read_request(reader)
        if method != "post":
            writer.write(b"HTTP/1.1 405 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        elif "method" not in message and server.is_deaf:
            await server.over.wait()
        elif lines := server.lines(message):
            await Events(writer).send(*(b"data: " + line for line in lines))
        else:
            writer.write(ACCEPTED)

    async with listening(serve, server) as port:
        yield {"type": "http", "url": f"http://127.0.0.1:{port}/mcp"}


@asynccontextmanager
async def sse_kind(server: Hostile, stage: Any) -> AsyncIterator[dict[str, Any]]:
    streams: list[Events] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        method, message = await read_request(reader)
        if method == "get":
            streams.append(Events(writer))
            await streams[-1].send(b"event: endpoint\ndata: /post")
            await server.over.wait()
        elif "method" not in message and server.is_deaf:
            await server.over.wait()
        else:
            writer.write(ACCEPTED)
            writer.close()
            await streams[-1].send(*(b"event: message\ndata: " + line for line in server.lines(message)))

    async with listening(serve, server) as port:
        yield {"type": "sse", "url": f"http://127.0.0.1:{port}/sse"}


PUMP = """
import os, socket, sys, threading
link = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
def forward():
    while data := os.read(0, 65536):
        link.sendall(data)
        if "deaf" in sys.argv and b"tools/call" in data: return  # and reads no more
    link.shutdown(socket.SHUT_WR)
threading.Thread(target=forward, daemon=True).start()
while data := link.recv(65536):
    while data: data = data[os.write(1, data):]
"""


@asynccontextmanager
async def stdio_kind(server: Hostile, stage: Any) -> AsyncIterator[dict[str, Any]]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(b"".join(each + b"\n" for each in server.lines(json.loads(line))))
            await writer.drain()

    async with listening(serve, server) as port:
        args = ["-I", "-S", "-c", PUMP, str(port), "deaf" if server.is_deaf else "hears"]
        yield {"command": sys.executable, "args": args}


@asynccontextmanager
async def sdk_kind(server: Hostile, stage: Any) -> AsyncIterator[dict[str, Any]]:
    yield {"type": "sdk"}


SERVERS_OF_KINDS = {"stdio": stdio_kind, "http": http_kind, "sse": sse_kind, "sdk": sdk_kind}
BOUNDS = ("size", "values", "tools", "refreshes", "requests", "files")
ONLY_ANSWERS = frozenset({"sdk"})
"""Kinds whose servers can send nothing but the answer to a request."""


@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("kind", sorted(set(KINDS.values())))
async def test_every_kind_of_server_is_bounded(stage, kind, bound):
    server = Hostile(bound)

    async def relay(name: str, message: Mapping[str, Any]) -> Mapping[str, Any]:
        return (server.replies(message) or [{}])[0]

    async with (
        SERVERS_OF_KINDS[kind](server, stage) as entry,
        asyncio.timeout(60),
        stage.box(
            host=HostServices(mcp_relay=relay), h={**entry, "timeout": 1_000 if server.is_deaf else 20_000}
        ) as box,
    ):
        await box.connected()
        managed = box.workspace.services.mcp_servers.servers["h"]
        if bound == "refreshes" and kind in ONLY_ANSWERS:
            assert managed.connection.state.name == "failed"
            assert "neither a result nor an error" in managed.connection.state.why
            return
        assert managed.connection.state.name == "ready", managed.connection.state
        if bound == "tools":
            assert len(managed.tools) == MAX_ITEMS
            why = f"it and those after it: the first {MAX_ITEMS:,} tools of a server are used"
            assert managed.quarantined == {f"t{MAX_ITEMS}": why}
            return
        if bound == "refreshes":
            while len(server.lists) < 3:
                await asyncio.sleep(0.02)
            assert server.lists[2] - server.lists[1] > 0.9
            return
        before, most = len(asyncio.all_tasks()), 0
        call = asyncio.ensure_future(box.call("mcp__h__t0", {}))
        while not call.done():
            await asyncio.sleep(0.01)
            most = max(most, len(asyncio.all_tasks()) - before)
        result = await call
        if bound == "files":
            assert not result.is_error and "more files are left out" in result.text
            assert len(list((box.workspace.session_dir / "tool-results").iterdir())) <= 200
            return
        assert result.is_error and len(result.text) < 1_000
        if bound == "requests":
            assert most < MAX_OPEN_REQUESTS + 40
        elif kind != "sse":  # whose events the SDK bounds itself
            told = {"size": f"more than {MAX_MESSAGE_BYTES >> 20} MiB", "values": f"{MAX_MESSAGE_VALUES:,} values"}
            assert told[bound] in result.text


class Message:
    """A message as the SDK's streams carry it."""

    def __init__(self, id: int | None = None, method: str | None = None, params: Any = None) -> None:
        self.message = self
        self.id = id
        self.params = params
        if method is not None:
            self.method = method


class Source:
    """A read stream with these messages, which counts how many were taken."""

    def __init__(self, messages: list[Message]) -> None:
        self.messages = messages
        self.taken = 0

    async def receive(self) -> Message:
        self.taken += 1
        return self.messages[self.taken - 1]


class Sink:
    async def send(self, item: Any) -> None: ...


async def test_a_server_whose_requests_have_no_answers_yet_is_heard_no_further():
    source = Source([Message(number, "ping") for number in range(1_000)])
    read, write = ServerStreams(source, Sink()).streams
    for _ in range(MAX_OPEN_REQUESTS):
        await read.receive()
    waiting = asyncio.ensure_future(read.receive())
    await asyncio.sleep(0)
    assert not waiting.done() and source.taken == MAX_OPEN_REQUESTS
    await write.send(Message(0))
    assert (await asyncio.wait_for(waiting, 5)).id == MAX_OPEN_REQUESTS


async def test_requests_of_one_number_count_once_and_cancelled_ones_no_more():
    same = [Message(1, "ping") for _ in range(500)]
    cancelled = [
        each
        for number in range(2, 500)
        for each in (Message(number, "ping"), Message(None, "notifications/cancelled", {"requestId": number}))
    ]
    read, _ = ServerStreams(Source([*same, *cancelled, Message(999)]), Sink()).streams
    seen = [await asyncio.wait_for(read.receive(), 5) for _ in range(1 + len(cancelled) + 1)]
    assert [each.id for each in seen[:2]] == [1, 2] and seen[-1].id == 999
