"""The HTTP client against a real server on loopback."""

# ruff: noqa: SIM117 - the server, its client and a request are clearer apart

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import pytest
from tests.unit.models.wire import ReceivedRequest, loopback, status, stream

from wieldy.web.http import MAX_HEADER_BYTES, HttpClient, HttpError, HttpResponse, NoResponse, PermanentError

HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


@asynccontextmanager
async def client(**options: float) -> AsyncIterator[HttpClient]:
    http = HttpClient(env={}, **options)  # type: ignore[arg-type]
    try:
        async with asyncio.timeout(20):
            yield http
    finally:
        await http.aclose()


async def body_of(response: HttpResponse) -> bytes:
    body = b""
    while data := await response.read():
        body += data
    return body


def sends(data: bytes, *, close: bool = False):
    async def reply(received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await writer.drain()
        if close:
            writer.close()

    return reply


@pytest.mark.asyncio
async def test_method_path_query_and_headers_are_sent():
    async with loopback(status(200, "hi")) as server, client() as http:
        async with http.request("GET", urlsplit(f"{server.url}/a/b?c=d"), {"x-one": "1"}) as response:
            assert (response.status, response.reason, await response.text()) == (200, "X", "hi")
            assert response.headers["content-type"] == "text/html"
    assert server.received[0].line == "GET /a/b?c=d HTTP/1.1"
    assert server.received[0].headers["x-one"] == "1"
    assert server.received[0].headers["host"] == urlsplit(server.url).netloc


@pytest.mark.asyncio
async def test_a_pinned_address_is_connected_to_instead_of_the_host():
    async with loopback(status(200, "hi")) as server, client() as http:
        url = urlsplit(server.url.replace("127.0.0.1", "nowhere.invalid"))
        async with http.request("GET", url, {}, addresses=("127.0.0.1",)) as response:
            assert await response.text() == "hi"
        assert server.received[0].headers["host"] == url.netloc


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "framing",
    [
        b"content-length: 5\r\n\r\nhello",
        b"transfer-encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
        b"\r\nhello",
    ],
)
async def test_a_body_ends_by_length_last_chunk_or_close(framing):
    data = b"HTTP/1.1 200 OK\r\n" + framing
    async with loopback(sends(data, close=framing.startswith(b"\r\n"))) as server, client() as http:
        async with http.request("GET", urlsplit(server.url), {}) as response:
            assert await body_of(response) == b"hello"


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhel",
        HEAD + b"5\r\nhel",
        HEAD + b"5\r\nhello\r\n",
        HEAD + b"zz\r\nhello\r\n",
    ],
)
async def test_a_body_that_breaks_off_is_an_error(data):
    async with loopback(sends(data, close=True)) as server, client() as http:
        with pytest.raises(HttpError):
            async with http.request("GET", urlsplit(server.url), {}) as response:
                await body_of(response)


@pytest.mark.asyncio
async def test_a_head_without_end_is_an_error():
    async with (
        loopback(sends(b"HTTP/1.1 200 OK\r\nx: " + b"y" * (MAX_HEADER_BYTES + 70_000))) as server,
        client() as http,
    ):
        with pytest.raises(HttpError, match="does not speak HTTP"):
            async with http.request("GET", urlsplit(server.url), {}):
                pass


@pytest.mark.asyncio
async def test_a_closed_connection_is_no_response():
    async with loopback(sends(b"", close=True)) as server, client() as http:
        with pytest.raises(NoResponse):
            async with http.request("GET", urlsplit(server.url), {}):
                pass


@pytest.mark.asyncio
async def test_a_header_that_cannot_be_sent_is_refused_without_showing_it():
    async with loopback(status(200, "hi")) as server, client() as http:
        for value in ("secret\n", "secret\r\nx: y", "sécret"):
            with pytest.raises(PermanentError, match="the header x-api-key") as failed:
                async with http.request("GET", urlsplit(server.url), {"x-api-key": value}):
                    pass
            assert "cret" not in str(failed.value)


@pytest.mark.asyncio
async def test_a_connection_is_reused_only_after_its_response_has_been_read():
    async with loopback(stream(b"x" * 500_000, 1000)) as server, client() as http:
        url = urlsplit(server.url)
        for connections in (1, 1, 2):
            async with http.request("GET", url, {}) as response:
                if connections == 2:
                    await response.read()
                else:
                    assert len(await body_of(response)) == 500_000
            if connections == 1:
                assert server.connections == 1
        async with http.request("GET", url, {}) as response:
            assert len(await body_of(response)) == 500_000
        assert server.connections == 2


@pytest.mark.asyncio
async def test_a_complete_response_whose_end_does_not_come_costs_its_connection_and_no_time():
    async with loopback(sends(HEAD + b"5\r\nhello\r\n")) as server, client() as http:
        for number in range(1, 4):
            async with http.request("GET", urlsplit(server.url), {}) as response:
                assert await response.read() == b"hello"
                response.complete = True
            assert server.connections == number


@pytest.mark.asyncio
async def test_a_response_with_more_behind_it_is_not_followed_by_another_on_its_connection():
    async with loopback(sends(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhiHTTP/1.1 200 OK\r\n\r\n")) as server:
        async with client() as http:
            for number in (1, 2):
                async with http.request("GET", urlsplit(server.url), {}) as response:
                    assert await body_of(response) == b"hi"
                assert server.connections == number


@pytest.mark.asyncio
async def test_a_server_that_sends_faster_than_it_is_read_is_held_up_and_nothing_is_lost():
    size = 8 << 20
    sent = asyncio.Event()

    async def reply(received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size)
        for _ in range(size >> 16):
            writer.write(b"x" * (1 << 16))
            await writer.drain()
        sent.set()

    async with loopback(reply) as server, client() as http, http.request("GET", urlsplit(server.url), {}) as response:
        await asyncio.sleep(0.2)
        assert not sent.is_set()
        assert len(await body_of(response)) == size
