"""An answer that nobody follows piece by piece is heard some pieces at a time, and its end, its calls and its faults at once."""

from __future__ import annotations

import asyncio
import time

import pytest
from tests.unit.providers.wire import STREAMS, Asked, heard, loopback, provider, request, stream

from wieldy import Session, tool
from wieldy.agent.answer import Answer
from wieldy.core.events import RunEnded, ToolSucceeded
from wieldy.core.provider import BlockGrew, ProviderFailure

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
WIRES = pytest.mark.parametrize("wire", ["anthropic", "openai"])


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def events_in(data: bytes) -> list[bytes]:
    return [event + b"\n\n" for event in data.split(b"\n\n") if event]


@pytest.mark.asyncio
@WIRES
@pytest.mark.parametrize("closely", [True, False])
async def test_pieces_are_heard_one_by_one_by_who_follows_closely_and_together_else(wire, stream_deltas, monkeypatch):
    monkeypatch.setattr("wieldy.providers.leisure.LONGEST", 60)
    data = STREAMS[wire]([("text", "a word and " * 20)], 11)
    sent = 0

    async def paced(asked: Asked, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(HEAD)
        for sent, event in enumerate(events_in(data), 1):  # noqa: B007
            writer.write(chunk(event))
            await asyncio.sleep(0.005)
        writer.write(b"0\r\n\r\n")

    async with asyncio.timeout(30), loopback(paced) as server:
        model = provider(wire, server.url)
        async with model.stream(request(stream_deltas=stream_deltas)) as deltas:
            heard_at = [sent async for delta in deltas if isinstance(delta, BlockGrew)]
        await model.aclose()
    assert len(heard_at) == 20
    assert len(set(heard_at)) >= 15 if stream_deltas else len(set(heard_at[1:])) == 1


@pytest.mark.asyncio
@WIRES
async def test_a_call_starts_although_the_stream_then_rests(wire, tmp_path, monkeypatch):
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))
    ran = asyncio.Event()

    @tool(read_only=True)
    async def note(word: str) -> str:
        """Note a word."""
        ran.set()
        return word

    steps = [("text", "Let me see."), ("call", "a", "note", '{"word": "first"}')]
    *first, last, done = events_in(STREAMS[wire](steps, 4))

    async def resting(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD)
        for event in first:
            writer.write(chunk(event))
            await asyncio.sleep(0.001)
        await ran.wait()
        writer.write(chunk(last) + chunk(done) + b"0\r\n\r\n")

    async with asyncio.timeout(30), loopback(resting, stream(STREAMS[wire]([("text", "done")]))) as server:
        model = provider(wire, server.url)
        async with Session(tmp_path, model=model, tools=[note], builtins=False, settings={}) as session:
            events = [event async for event in session.run("go", stream_deltas=False)]
    assert isinstance(events[-1], RunEnded)
    assert events[-1].text == "done"
    assert sum(isinstance(event, ToolSucceeded) for event in events) == 1


@pytest.mark.asyncio
@WIRES
async def test_a_server_that_speaks_in_pieces_is_not_silent_and_one_that_stops_is(wire):
    *words, _ = events_in(STREAMS[wire]([("text", "word" * 30)], 4))[:30]
    stopped = 0.0

    async def stopping(asked: Asked, writer: asyncio.StreamWriter) -> None:
        nonlocal stopped
        writer.write(HEAD)
        for event in words:
            writer.write(chunk(event))
            await asyncio.sleep(0.02)
        stopped = time.monotonic()
        await asyncio.sleep(30)

    async with asyncio.timeout(30), loopback(stopping) as server:
        model = provider(wire, server.url, idle_seconds=0.3)
        with pytest.raises(ProviderFailure, match=r"nothing came from the server for 0\.3 s"):
            await heard(model)
        assert 0.2 < time.monotonic() - stopped < 5


@pytest.mark.asyncio
@WIRES
async def test_pieces_that_came_before_a_connection_broke_are_heard(wire):
    events = events_in(STREAMS[wire]([("text", "word" * 10)], 4))
    told = [event for event in events if b'"word"' in event]

    async def breaking(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD)
        for event in events[: events.index(told[0]) + len(told)]:
            writer.write(chunk(event))
            await asyncio.sleep(0.001)
        writer.close()

    async with asyncio.timeout(30), loopback(breaking) as server:
        model = provider(wire, server.url)
        answer = Answer()
        with pytest.raises(ProviderFailure):
            async with model.stream(request()) as deltas:
                async for delta in deltas:
                    answer.take(delta)
        await model.aclose()
    assert [block.text("text") for block in answer.open.values()] == ["word" * 10]
