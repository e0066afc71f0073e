"""Tools start while the model still speaks: shown by who waits for whom, on all wires."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.models.wire import STREAMS, ReceivedRequest, loopback, provider, stream

from wieldy import Session, tool
from wieldy.core.events import RunEnded, ToolSucceeded


@pytest.mark.asyncio
@pytest.mark.parametrize("wire", ["anthropic", "openai", "responses"])
@pytest.mark.parametrize("rest", ["text", "call"])
async def test_the_stream_goes_on_only_after_the_first_tool_has_run(wire, rest, tmp_path, monkeypatch):
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))
    ran, ended = asyncio.Event(), asyncio.Event()

    @tool(read_only=True)
    async def note(word: str) -> str:
        """Note a word."""
        ran.set()
        return word

    second = ("text", "and so on") if rest == "text" else ("call", "b", "note", '{"word": "second"}')
    data = STREAMS[wire]([("call", "a", "note", '{"word": "first"}'), second])
    ends = {"anthropic": b"content_block_stop", "openai": b'\\"}', "responses": b"response.output_item.done"}
    closed = data.index(ends[wire])
    at = data.index(b"\n\n", closed) + 2

    async def holding(received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        """Sends the first call, and not another byte until its tool has ended."""
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n")
        writer.write(f"content-length: {len(data)}\r\n\r\n".encode() + data[:at])
        await ended.wait()
        writer.write(data[at:])

    async with asyncio.timeout(30), loopback(holding, stream(STREAMS[wire]([("text", "done")]))) as server:
        model = provider(wire, server.url)
        async with Session(tmp_path, model=model, tools=[note], builtins=False, settings={}) as session:
            async for event in session.run("go"):
                if isinstance(event, ToolSucceeded):
                    ended.set()
            assert isinstance(event, RunEnded)
            assert (event.why, event.text) == ("done", "done")
    assert ran.is_set()
    assert len(server.received) == 2


@pytest.mark.asyncio
@pytest.mark.parametrize("wire", ["anthropic", "openai", "responses"])
async def test_an_interrupt_in_mid_stream_drops_the_connection_and_the_session_goes_on(wire, tmp_path, monkeypatch):
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))
    gone = asyncio.Event()

    async def endless(received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        data = STREAMS[wire]([("text", "word " * 20)], 5)
        half = data[: data.index(b"\n\n", len(data) // 2) + 2]
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n" + half)
        await writer.drain()
        while not writer.is_closing():
            writer.write(b": still here\n\n")
            await asyncio.sleep(0.01)
        gone.set()

    async with asyncio.timeout(30), loopback(endless, stream(STREAMS[wire]([("text", "done")]))) as server:
        model = provider(wire, server.url)
        async with Session(tmp_path, model=model, builtins=False, settings={}) as session:
            said = 0
            async for event in session.run("go"):
                said += event.kind == "model.said"
                if said == 3:
                    session.abort()
            assert isinstance(event, RunEnded)
            assert (event.why, event.detail) == ("interrupted", "interrupted by the user")
            await gone.wait()
            assert session.messages[1]["content"][0]["text"].startswith("word word")
            assert await session.ask("again") == "done"
    assert server.connections == 2
