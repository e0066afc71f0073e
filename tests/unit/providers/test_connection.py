"""A connection by itself, and what is kept of it between two requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.unit.providers.wire import STREAMS, Asked, heard, loopback, provider, stream

from wieldy.core.provider import ProviderFailure
from wieldy.providers.connection import MOST_HELD, READ_BYTES, Connection, Silence
from wieldy.providers.http1 import END

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


@asynccontextmanager
async def told(data: bytes) -> AsyncIterator[Connection]:
    """A connection to somebody who says this and nothing more."""
    writers: list[asyncio.StreamWriter] = []

    async def say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        writer.write(data)

    server = await asyncio.start_server(say, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    _, connection = await asyncio.get_running_loop().create_connection(Connection, "127.0.0.1", port)
    try:
        async with asyncio.timeout(20):
            yield connection
    finally:
        connection.close()
        server.close()
        for writer in writers:
            writer.transport.abort()
        await asyncio.sleep(0.01)


@pytest.mark.asyncio
@pytest.mark.parametrize("wire", ["anthropic", "openai"])
async def test_an_answer_whose_last_bytes_stay_out_costs_its_connection_and_no_time(wire):
    async def reply(asked: Asked, writer: asyncio.StreamWriter) -> None:
        data = STREAMS[wire]([("text", "hi")])
        writer.write(HEAD + b"%x\r\n%s\r\n" % (len(data), data))  # and never the chunk that ends it

    async with asyncio.timeout(20), loopback(reply) as server:
        model = provider(wire, server.url)
        for number in range(1, 4):
            assert (await heard(model, keep=True)).content()[0]["text"] == "hi"
            assert server.connections == number
        await model.aclose()


@pytest.mark.asyncio
async def test_a_server_that_sends_faster_than_it_is_heard_is_held_up_and_nothing_is_lost():
    size, got = 8 * MOST_HELD, 0
    async with told(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size + b"x" * size) as connection:
        await asyncio.sleep(0.1)
        assert len(connection.answers._waiting) <= MOST_HELD + READ_BYTES
        while (part := connection.answers.take()) is not END:
            if part is None:
                await connection.more()
            elif isinstance(part, bytes):
                got += len(part)
    assert got == size


@pytest.mark.asyncio
async def test_an_earlier_time_is_kept_although_a_later_one_was_waited_for_before():
    async with told(b"H") as connection:
        await connection.more(connection.time() + 300)
        with pytest.raises(Silence):
            await connection.more(connection.time() + 0.02)


@pytest.mark.asyncio
@pytest.mark.parametrize("wire", ["anthropic", "openai"])
async def test_who_is_approached_is_connected_to_before_the_request_and_once(wire):
    async with asyncio.timeout(20), loopback(stream(STREAMS[wire]([("text", "hi")]))) as server:
        model = provider(wire, server.url)
        model.approach()
        model.approach()
        while not server.connections:
            await asyncio.sleep(0.01)
        assert server.asked == []
        for _ in range(2):
            assert (await heard(model, keep=True)).content()[0]["text"] == "hi"
        assert server.connections == 1
        await model.aclose()


@pytest.mark.asyncio
async def test_an_approach_that_fails_is_heard_of_with_the_request():
    async with asyncio.timeout(20), loopback(stream(b"")) as server:
        url = server.url
    model = provider("anthropic", url)
    model.approach()
    await asyncio.sleep(0.05)
    with pytest.raises(ProviderFailure, match="nothing listens there"):
        await heard(model)


@pytest.mark.asyncio
@pytest.mark.parametrize("later", [0, 0.05])
async def test_an_approach_that_nobody_follows_up_leaves_nothing_behind(later):
    async with asyncio.timeout(20), loopback(stream(b"")) as server:
        model = provider("openai", server.url)
        model.approach()
        await asyncio.sleep(later)
        await model.aclose()
        while len(asyncio.all_tasks()) > 1:  # the server's too: it ends when it is left
            await asyncio.sleep(0.01)
        assert server.connections == 1 or not later
        assert server.asked == []
