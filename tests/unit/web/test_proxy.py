from __future__ import annotations

import asyncio
import contextlib

import pytest
from tests.unit.web.loopback import response, serving

from wieldy.core.errors import ToolFailure
from wieldy.web.http import Streams, open_streams
from wieldy.web.proxy import ForwardProxy
from wieldy.web.url import HttpUrl


async def only_shop(url: HttpUrl) -> Streams:
    if url.host != "shop.test":
        raise ToolFailure(f"{url.host} is closed")
    return await open_streams("127.0.0.1", url.port, None, url.host)


async def ask(port: int, request: str) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request.encode())
    async with asyncio.timeout(5):
        answer = await reader.read()
    writer.close()
    return answer


@pytest.mark.asyncio
async def test_a_request_goes_to_the_judged_address_without_what_is_the_proxys() -> None:
    proxy = ForwardProxy(only_shop)
    async with serving({"/tea": response(b"hot" * 100_000)}) as site:
        request = f"GET http://shop.test:{site.port}/tea?a HTTP/1.1\r\nHost: shop.test\r\nProxy-Connection: keep-alive\r\n\r\n"
        answer = await ask(await proxy.listen(), request)
        await proxy.aclose()
        assert answer.endswith(b"\r\n\r\n" + b"hot" * 100_000)
        host = f"shop.test:{site.port}".encode()
        assert site.heads == [b"GET /tea?a HTTP/1.1\r\nConnection: close\r\nHost: %s\r\n\r\n" % host]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "headers",
    [
        "Host: bank.test\r\n",
        "hOsT:bank.test\r\nHost: shop.test\r\n",
        "X: 1\nHost: bank.test\r\n",
        "Host:\r\n bank.test\r\n",
        "Host : bank.test\r\n",
        "X: 1\r\n Host: bank.test\r\n",
    ],
)
async def test_the_host_header_is_that_of_the_judged_address(headers: str) -> None:
    proxy = ForwardProxy(only_shop)
    async with serving({"/": response(b"tea")}) as site:
        await ask(await proxy.listen(), f"GET http://shop.test:{site.port}/ HTTP/1.1\r\n{headers}\r\n")
        await proxy.aclose()
        for head in site.heads:
            lines = [line for line in head.split(b"\n") if line.lstrip().lower().startswith(b"host")]
            assert lines == [f"Host: shop.test:{site.port}\r".encode()]


@pytest.mark.asyncio
async def test_a_body_has_one_length() -> None:
    proxy = ForwardProxy(only_shop)
    async with serving({"/": response(b"tea")}) as site:
        head = f"POST http://shop.test:{site.port}/ HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"
        await ask(await proxy.listen(), f"{head}0\r\n\r\n")
        await proxy.aclose()
        assert b"content-length" not in site.heads[0].lower()
        assert b"Transfer-Encoding: chunked\r\n" in site.heads[0]


@pytest.mark.asyncio
async def test_a_tunnel_passes_bytes_both_ways() -> None:
    proxy = ForwardProxy(only_shop)
    async with serving({"/": response(b"inside")}) as site:
        tunnel = f"CONNECT shop.test:{site.port} HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n"
        answer = await ask(await proxy.listen(), tunnel)
        await proxy.aclose()
        assert answer.startswith(b"HTTP/1.1 200 Connection established\r\n\r\nHTTP/1.1 200 OK")
        assert answer.endswith(b"inside")


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("request_line", "why"),
    [
        ("GET http://bank.test/ HTTP/1.1", b"bank.test is closed"),
        ("CONNECT bank.test:443 HTTP/1.1", b"bank.test is closed"),
        ("CONNECT 2130706433:443 HTTP/1.1", b"127.0.0.1 is closed"),
        ("GET ftp://shop.test/ HTTP/1.1", b"Only http"),
        ("GET /tea HTTP/1.1", b"Only http"),
        ("CONNECT a@shop.test:1 HTTP/1.1", b"user name"),
        ("GET", b"Only http"),
    ],
)
async def test_what_is_not_let_through_is_answered_with_the_reason(request_line: str, why: bytes) -> None:
    proxy = ForwardProxy(only_shop)
    answer = await ask(await proxy.listen(), f"{request_line}\r\n\r\n")
    await proxy.aclose()
    assert answer.startswith(b"HTTP/1.1 403 ")
    assert why in answer


@pytest.mark.asyncio
async def test_closing_ends_what_is_under_way() -> None:
    async def silent(writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(30)

    proxy = ForwardProxy(only_shop)
    async with serving({"/": silent}) as site:
        reader, writer = await asyncio.open_connection("127.0.0.1", await proxy.listen())
        writer.write(f"GET http://shop.test:{site.port}/ HTTP/1.1\r\n\r\n".encode())
        await writer.drain()
        while not site.asked:
            await asyncio.sleep(0.01)
        await proxy.aclose()
        async with asyncio.timeout(5):
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
        writer.close()
