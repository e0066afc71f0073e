"""Lines in, messages out: however a line is cut into pieces, and whatever it is not."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCRequest, JSONRPCResponse

from wieldy.faces.mcp_server.stdio import MessageReader, MessageWriter, repair_surrogates

PING = b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n'


class Pipes:
    """Both streams of a server, and the client's ends of them."""

    def __init__(self, max_bytes: int) -> None:
        source, self.to = os.pipe()
        self.back, sink = os.pipe()
        self._own = (source, sink)
        self.writer = MessageWriter(sink)
        self.reader = MessageReader(source, self.writer, max_bytes=max_bytes)

    def said(self) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(os.read(self.back, 65536))
        return message

    def close(self) -> None:
        for descriptor in (*self._own, self.to, self.back):
            try:
                os.close(descriptor)
            except OSError:
                continue


@asynccontextmanager
async def pipes(max_bytes: int = 1 << 20) -> AsyncIterator[Pipes]:
    made = Pipes(max_bytes)
    try:
        yield made
    finally:
        await made.reader.aclose()
        made.close()


async def method(reader: MessageReader) -> str:
    message = (await asyncio.wait_for(reader.receive(), 5)).message
    assert isinstance(message, JSONRPCRequest)
    return message.method


@pytest.mark.asyncio
async def test_a_message_may_come_in_any_pieces():
    async with pipes() as at:
        for byte in PING:
            os.write(at.to, bytes((byte,)))
            await asyncio.sleep(0)
        assert await method(at.reader) == "ping"
        os.write(at.to, PING * 3)
        assert [await method(at.reader) for _ in range(3)] == ["ping"] * 3


@pytest.mark.asyncio
async def test_a_message_that_is_too_long_is_refused_and_the_next_one_read():
    async with pipes(max_bytes=1000) as at:
        writing = asyncio.to_thread(os.write, at.to, b'{"x": "' + b"y" * 5000 + b'"}\n' + PING)
        reading = method(at.reader)
        assert (await asyncio.gather(writing, reading))[1] == "ping"
        assert "1,000 bytes" in at.said()["error"]["message"]


@pytest.mark.parametrize("odd", ["[]", "{}", "null", "true", "1.5", '"x"'])
@pytest.mark.asyncio
async def test_an_odd_cancellation_harms_nothing(odd: str):
    async with pipes() as at:
        os.write(
            at.to,
            b'{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": %s}}\n' % odd.encode(),
        )
        os.write(at.to, PING)
        await asyncio.wait_for(at.reader.receive(), 5)
        assert await method(at.reader) == "ping"


@pytest.mark.asyncio
async def test_the_last_line_needs_no_end():
    async with pipes() as at:
        os.write(at.to, PING.strip())
        os.close(at.to)
        assert await method(at.reader) == "ping"
        at.writer.remove_request(1)
        with pytest.raises(anyio.EndOfStream):
            await asyncio.wait_for(at.reader.receive(), 5)


@pytest.mark.asyncio
async def test_the_end_waits_for_answers_that_are_owed():
    async with pipes() as at:
        os.write(at.to, PING)
        os.close(at.to)
        await method(at.reader)
        end = asyncio.ensure_future(at.reader.receive())
        await asyncio.sleep(0.05)
        assert not end.done()
        await at.writer.send(SessionMessage(JSONRPCResponse(jsonrpc="2.0", id=1, result={})))
        with pytest.raises(anyio.EndOfStream):
            await asyncio.wait_for(end, 1)
        assert at.said() == {"jsonrpc": "2.0", "id": 1, "result": {}}


@pytest.mark.asyncio
async def test_lines_stay_whole_when_whoever_waits_for_one_is_cancelled():
    async with pipes() as at:
        long = json.dumps({"x": "y" * 300_000}).encode()
        waiting = asyncio.ensure_future(at.writer.write(long))
        await asyncio.sleep(0.05)
        waiting.cancel()
        next_one = asyncio.ensure_future(at.writer.write(b'{"next": 1}'))

        def read() -> list[Any]:
            data = b""
            while data.count(b"\n") < 2:
                data += os.read(at.back, 65536)
            return [json.loads(line) for line in data.splitlines()]

        first, second = await asyncio.to_thread(read)
        await next_one
    assert len(first["x"]) == 300_000
    assert second == {"next": 1}


@pytest.mark.asyncio
async def test_what_is_no_pipe_holds_up_nothing_when_it_is_full():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        writer = MessageWriter(ours.fileno())
        line = b'{"x": "' + b"y" * 2_000 + b'"}'
        writing = asyncio.ensure_future(_all(writer, [line] * 1_000))
        for _ in range(100):
            await asyncio.sleep(0.001)  # the loop goes on, though nobody reads
        assert not writing.done()
        size = 1_000 * (len(line) + 1)
        received = await asyncio.to_thread(_drained, theirs, size)
        await writing
    assert received == (line + b"\n") * 1_000


async def _all(writer: MessageWriter, lines: list[bytes]) -> None:
    for line in lines:
        await writer.write(line)


def _drained(source: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        data += source.recv(1 << 20)
    return data


@pytest.mark.asyncio
async def test_a_reader_that_left_is_a_closed_stream():
    async with pipes() as at:
        os.close(at.back)
        with pytest.raises(anyio.ClosedResourceError):
            await at.writer.write(b"{}")


def test_halves_of_characters_are_replaced_and_whole_ones_kept():
    assert json.loads(repair_surrogates(rb'{"a": "\ud99c"}')) == {"a": "\ufffd"}
    assert json.loads(repair_surrogates(rb'{"a": "\ud83d\ude00 \ude00"}')) == {"a": "😀 \ufffd"}
    assert repair_surrogates('{"a": "\\u00e9 😀"}'.encode()) == '{"a": "\\u00e9 😀"}'.encode()
    assert repair_surrogates(rb'{"a": "\ud99c') == rb'{"a": "\ud99c'
