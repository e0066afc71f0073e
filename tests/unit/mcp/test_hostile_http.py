"""Servers behind a URL that break off or only seem to be alive: bounded in time, said in words, and the toolbox goes on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from wieldy.core.errors import ToolFailure

pytestmark = pytest.mark.asyncio

TOOLS = [{"name": "go", "description": "Go.", "inputSchema": {"type": "object"}}]
INFO = {"protocolVersion": "2025-06-18", "serverInfo": {"name": "h", "version": "1"}, "capabilities": {"tools": {}}}

LOST_ANSWERS = {
    "closes without an answer": b"",
    "accepts and answers nothing": b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n",
    "ends the events before the answer": b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n",
    "ends in an event": b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: {",
    "ends in a chunk": b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nx",
    "ends after an event that can be resumed": b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\nid: 1\ndata:\n\n",
    "cuts the body": b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 900\r\n\r\n{"jsonrpc',
    "sends half of an answer": b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{"jsonrpc',
    "sends no HTTP": b"\x00\x00\x00\r\n\r\n",
}


class Shaky:
    """Speaks just enough of streamable HTTP to be called, and then does what its habit is."""

    def __init__(self, habit: str) -> None:
        self.habit = habit
        self.calls = 0
        self.sessions = 0
        self.other_has_ended = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            length = next(
                (int(line.split(":")[1]) for line in head.split("\r\n") if line.startswith("content-length")), 0
            )
            message = json.loads(await reader.readexactly(length)) if length else {}
            if self.habit == "answers the second call first" and message.get("method") == "tools/call":
                await self._answer_second_first(message, writer)
            else:
                await self._answer(message, writer)
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer_second_first(self, message: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        self.calls += 1
        if self.calls == 1:
            await self.other_has_ended.wait()
        self.other_has_ended.set()
        result = {"content": [{"type": "text", "text": "went"}]}
        await _json(writer, {"jsonrpc": "2.0", "id": message["id"], "result": result})

    async def _answer(self, message: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        match message.get("method"):
            case "initialize":
                self.sessions += 1
                answer = {"jsonrpc": "2.0", "id": message["id"], "result": INFO}
                await _json(writer, answer, b"Mcp-Session-Id: %d\r\n" % self.sessions)
            case "tools/list" | None if self.habit == "silent after the handshake":
                await writer.drain()
                await asyncio.sleep(60)
            case "tools/list":
                await _json(writer, {"jsonrpc": "2.0", "id": message["id"], "result": {"tools": TOOLS}})
            case "tools/call" if self.habit.isdigit() and not self.calls:
                self.calls += 1
                writer.write(b"HTTP/1.1 %b X\r\nContent-Length: 0\r\n\r\n" % self.habit.encode())
            case "tools/call" if self.habit.isdigit():
                self.calls += 1
                result = {"content": [{"type": "text", "text": "went"}]}
                await _json(writer, {"jsonrpc": "2.0", "id": message["id"], "result": result})
            case "tools/call" if self.habit in LOST_ANSWERS:
                self.calls += 1
                if self.calls == 1:
                    writer.write(LOST_ANSWERS[self.habit])
                    return
                result = {"content": [{"type": "text", "text": "went"}]}
                await _json(writer, {"jsonrpc": "2.0", "id": message["id"], "result": result})
            case "tools/call" if self.habit == "fails beside another call" and self.calls:
                self.calls += 1
                writer.write(b"HTTP/1.1 400 X\r\nContent-Length: 0\r\n\r\n")
            case "tools/call" if self.habit == "fails beside another call":
                self.calls += 1
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
                await self.other_has_ended.wait()
                error = {"code": -32000, "message": "Session not found"}
                event = json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error})
                writer.write(f"event: message\ndata: {event}\n\n".encode())
            case "tools/call" if self.habit == "no session of its own":
                self.calls += 1
                error = {"code": -32000, "message": "Session not found"}
                await _json(writer, {"jsonrpc": "2.0", "id": message["id"], "error": error})
            case "tools/call":
                self.calls += 1
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
                await writer.drain()
                while self.habit == "keep-alives only":
                    writer.write(b": still here\n\n")
                    await writer.drain()
                    await asyncio.sleep(0.05)
            case "notifications/initialized" | "notifications/cancelled":
                writer.write(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n")
            case _:
                writer.write(b"HTTP/1.1 405 Method Not Allowed\r\nContent-Length: 0\r\n\r\n")


async def _json(writer: asyncio.StreamWriter, value: Any, headers: bytes = b"") -> None:
    body = json.dumps(value).encode()
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n" + headers)
    writer.write(b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    await writer.drain()


@asynccontextmanager
async def shaky(habit: str) -> AsyncIterator[tuple[Shaky, str]]:
    server = Shaky(habit)
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    try:
        yield server, f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/mcp"
    finally:
        listening.close()


@pytest.mark.parametrize(
    ("habit", "said"), [("dies after the headers", ""), ("keep-alives only", "did not answer within 1.5 s")]
)
async def test_a_call_ends_in_time_and_the_toolbox_goes_on(stage, habit: str, said: str):
    async with shaky(habit) as (server, url):
        entry = {"type": "http", "url": url, "timeout": 1_500}
        async with asyncio.timeout(30), stage.box(h=entry) as box:
            await box.connected()
            result = await box.call("mcp__h__go", {})
            assert result.is_error and "MCP server h" in result.text
            assert said in result.text
            assert server.calls >= 1
            assert not (await box.call("LS", path=".")).is_error


async def test_a_call_whose_session_has_expired_is_made_in_a_new_one(stage):
    async with shaky("404") as (server, url), stage.box(h={"type": "http", "url": url}) as box:
        await box.connected()
        assert (await box.call("mcp__h__go", {})).text == "went"
        assert (server.calls, server.sessions) == (2, 2)


async def test_an_error_status_is_named_and_the_call_not_repeated(stage):
    async with shaky("503") as (server, url), stage.box(h={"type": "http", "url": url}) as box:
        await box.connected()
        text = (await box.call("mcp__h__go", {})).text
        assert "HTTP 503. Unknown: the call may or may not have happened" in text  # a proxy may have said that
        assert (server.calls, server.sessions) == (1, 1)


async def test_a_call_that_fails_with_the_words_for_an_expired_session_is_not_repeated(stage):
    async with shaky("no session of its own") as (server, url), stage.box(h={"type": "http", "url": url}) as box:
        await box.connected()
        assert "Session not found" in (await box.call("mcp__h__go", {})).text
        assert (server.calls, server.sessions) == (1, 1)


@pytest.mark.parametrize("habit", LOST_ANSWERS)
async def test_a_call_whose_answer_is_lost_ends_with_a_reason_and_the_next_one_works(stage, habit: str):
    async with shaky(habit) as (server, url), asyncio.timeout(30), stage.box(h={"type": "http", "url": url}) as box:
        await box.connected()
        lost = await box.call("mcp__h__go", {})
        assert lost.is_error and "MCP server h" in lost.text
        assert server.calls == 1, "it may have had an effect: it is not repeated"
        assert (await box.call("mcp__h__go", {})).text == "went"


async def test_a_server_that_falls_silent_after_the_handshake_is_given_up_in_time(stage):
    entry = {"type": "http", "startupTimeout": 500}
    async with shaky("silent after the handshake") as (_, url), stage.box(h={**entry, "url": url}) as box:
        await asyncio.wait_for(box.connected(), 15)
        assert "no answer within 0.5 s" in box.workspace.services.mcp_servers.states()["h"].why


async def test_the_status_of_a_call_is_not_taken_for_that_of_another(stage):
    async with shaky("fails beside another call") as (server, url), stage.box(h={"type": "http", "url": url}) as box:
        await box.connected()
        connection = box.workspace.services.mcp_servers.connections["h"]  # the toolbox would run one after the other

        async def call() -> str:
            with pytest.raises(ToolFailure) as failure:
                await connection.request(lambda client: client.call_tool("go", {}))
            return str(failure.value)

        slow = asyncio.create_task(call())
        while not server.calls:
            await asyncio.sleep(0.01)
        assert "HTTP 400" in await call()
        server.other_has_ended.set()
        assert "Session not found" in await slow
        assert (server.calls, server.sessions) == (2, 1)


async def test_a_call_that_takes_long_holds_up_no_other(stage):
    async with shaky("answers the second call first") as (_, url), stage.box(h={"type": "http", "url": url}) as box:
        await box.connected()
        tool: Any = box.catalog.find("mcp__h__go")
        async with asyncio.timeout(20):
            results = await asyncio.gather(tool.call({}), tool.call({}))
        assert [result.content[0].text for result in results] == ["went", "went"]
