"""What a server sends is bounded before it is in memory: bodies, values, requests, tools, refreshes, files."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import resource
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from wieldy.engine.workspace_services import HostServices
from wieldy.mcp.config import KINDS
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


def huge_answer(message: Mapping[str, Any]) -> dict[str, Any]:
    """What a server answers: to a call, more values than it may."""
    if message.get("method") == "tools/call":
        result: Any = {"content": [], "structuredContent": {"a": [[]] * (2 * MAX_MESSAGE_VALUES)}}
    elif (result := ANSWERS.get(message.get("method"))) is None:
        return {"error": {"code": -32601, "message": "unknown"}}
    return {"result": result}


@asynccontextmanager
async def http_kind(stage: Any) -> AsyncIterator[dict[str, Any]]:
    async def answer(writer: asyncio.StreamWriter, message: dict[str, Any]) -> None:
        body = json.dumps({"jsonrpc": "2.0", "id": message["id"], **huge_answer(message)}).encode()
        writer.write(b"HTTP/1.1 200 OK\r\n" + JSON + b"Content-Length: %d\r\n\r\n" % len(body) + body)

    async with server_that(answer) as url:
        yield {"type": "http", "url": url}


@asynccontextmanager
async def sse_kind(stage: Any) -> AsyncIterator[dict[str, Any]]:
    events: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            if head.startswith("get"):
                events.append(writer)
                writer.write(
                    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\nevent: endpoint\ndata: /post\n\n"
                )
                return
            lengths = [int(line.split(":")[1]) for line in head.split("\r\n") if line.startswith("content-length")]
            message = json.loads(await reader.readexactly(lengths[0]))
            writer.write(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            writer.close()
            if "id" in message:
                answer = json.dumps({"jsonrpc": "2.0", "id": message["id"], **huge_answer(message)})
                events[-1].write(f"event: message\ndata: {answer}\n\n".encode())
                await events[-1].drain()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield {"type": "sse", "url": f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/sse"}
    finally:
        for writer in events:
            writer.close()
        listening.close()


@asynccontextmanager
async def stdio_kind(stage: Any) -> AsyncIterator[dict[str, Any]]:
    yield flood(stage, "values")


@asynccontextmanager
async def sdk_kind(stage: Any) -> AsyncIterator[dict[str, Any]]:
    yield {"type": "sdk"}


async def relay(server: str, message: Mapping[str, Any]) -> Mapping[str, Any]:
    return huge_answer(message)


SERVERS_OF_KINDS = {"stdio": stdio_kind, "http": http_kind, "sse": sse_kind, "sdk": sdk_kind}


@pytest.mark.parametrize("kind", sorted(set(KINDS.values())))
async def test_every_kind_of_server_is_bounded(stage, kind):
    host = HostServices(mcp_relay=relay)
    async with (
        SERVERS_OF_KINDS[kind](stage) as entry,
        asyncio.timeout(60),
        stage.box(host=host, h={**entry, "timeout": 10_000}) as box,
    ):
        await box.connected()
        tool = next(name for name in box.catalog if name.startswith("mcp__h__"))
        result = await box.call(tool, {})
        assert result.is_error and len(result.text) < 1_000
        if kind != "sse":  # whose events the SDK bounds itself
            assert f"more than {MAX_MESSAGE_VALUES:,} values" in result.text


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


FLOODS = """
import json, sys, time
mode = sys.argv[1]
def say(message): sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\\n"); sys.stdout.flush()
for line in sys.stdin:
    message = json.loads(line)
    match message.get("method"):
        case "initialize":
            info = {"name": "f", "version": "1"}
            capabilities = {"tools": {"listChanged": True}}
            version = message["params"]["protocolVersion"]
            say({"id": message["id"], "result": {"protocolVersion": version, "serverInfo": info, "capabilities": capabilities}})
        case "tools/list":
            with open(sys.argv[2], "a") as log: log.write(f"{time.monotonic()}\\n")
            number = 10_000 if mode == "tools" else 3
            tools = [{"name": f"t{n}", "inputSchema": {"type": "object"}} for n in range(number)]
            say({"id": message["id"], "result": {"tools": tools}})
            if mode == "changes":
                for _ in range(20): say({"method": "notifications/tools/list_changed"})
        case "tools/call" if mode == "files":
            part = {"type": "audio", "mimeType": "audio/wav", "data": "aGVsbG8="}
            text = {"type": "text", "text": ("data:image/x;base64," + "QUJD" * 60 + " ") * 500}
            image = {"type": "image", "mimeType": "image/png", "data": "iVBORw0KGgo="}
            parts = {"t0": [part] * 3000 + [text], "t1": [image] * 3500}[message["params"]["name"]]
            say({"id": message["id"], "result": {"content": parts}})
        case "tools/call" if mode == "values":
            values = "[" + "[]," * 2_000_000 + "[]]"
            result = '{"content": [], "structuredContent": {"a": ' + values + "}}"
            sys.stdout.write('{"jsonrpc": "2.0", "id": ' + json.dumps(message["id"]) + ', "result": ' + result + "}\\n")
            sys.stdout.flush()
        case "tools/call" if mode == "pings":
            for number in range(60_000):
                say({"id": number, "method": "ping"})
            say({"id": message["id"], "result": {"content": [{"type": "text", "text": "went"}]}})
        case _ if "id" in message and "method" in message:
            say({"id": message["id"], "error": {"code": -32601, "message": "unknown"}})
"""


def flood(stage: Any, mode: str) -> dict[str, Any]:
    script = stage.folder.parent / "flood.py"
    script.write_text(FLOODS)
    args = ["-I", "-S", str(script), mode, str(stage.folder / "log")]
    return {"command": sys.executable, "args": args, "timeout": 3_000}


async def test_a_server_has_so_many_tools_and_the_others_are_left_out_with_a_word(stage):
    async with asyncio.timeout(60), stage.box(f=flood(stage, "tools")) as box:
        await box.connected()
        server = box.workspace.services.mcp_servers.servers["f"]
        assert len(server.tools) == 1_000
        assert server.quarantined == {"t1000": "it and those after it: the first 1,000 tools of a server are used"}


async def test_a_flood_of_changes_is_a_refresh_a_second_at_most(stage):
    async with asyncio.timeout(60), stage.box(f=flood(stage, "changes")) as box:
        await box.connected()
        log = stage.folder / "log"
        while len(times := [float(line) for line in log.read_text().splitlines()]) < 4:
            await asyncio.sleep(0.02)
    assert times[2] - times[1] > 0.9 and times[3] - times[2] > 0.9


async def test_a_server_that_asks_and_does_not_read_takes_no_memory(stage):
    async with asyncio.timeout(60), stage.box(f=flood(stage, "pings")) as box:
        await box.connected()
        before, tasks = peak_mb(), 0
        call = asyncio.ensure_future(box.call("mcp__f__t0", {}))
        while not call.done():
            await asyncio.sleep(0.02)
            tasks = max(tasks, len(asyncio.all_tasks()))
        assert tasks < MAX_OPEN_REQUESTS + 60 and peak_mb() - before < 60
        assert (await call).is_error


async def test_of_a_result_only_so_many_files_are_taken(stage):
    async with asyncio.timeout(60), stage.box(f=flood(stage, "files")) as box:
        await box.connected()
        for tool in ("mcp__f__t0", "mcp__f__t1"):
            result = await box.call(tool, {})
            assert not result.is_error
            assert "3,400 more files are left out" in result.text, result.text[-500:]
        assert len(list((box.workspace.session_dir / "tool-results").iterdir())) <= 200
