"""Proxies and certificates, for real, on loopback."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import trustme
from tests.unit.models.wire import Loopback, failure_of, loopback, openai_stream, provider, receive, request, stream

from wieldy.core.messages import Message
from wieldy.core.provider import ProviderFailure
from wieldy.web.http import ProxyError, proxy_for

HELLO = stream(openai_stream([("text", "hi")]))


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def tls(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(context)
    return context


@pytest.fixture
def trusted(authority: trustme.CA, tmp_path: Path) -> str:
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    return str(tmp_path / "ca.pem")


@asynccontextmanager
async def proxy(seen: list[str], answer: bytes = b"HTTP/1.1 200 OK\r\n\r\n") -> AsyncIterator[str]:
    """A proxy that tunnels CONNECT to this machine, and forwards plain requests to it."""
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        seen.append(head.decode("latin-1"))
        method, target, _ = head.decode("latin-1").split(" ", 2)
        port = int(target.rpartition(":")[2]) if method == "CONNECT" else urlsplit(target).port
        if not answer.startswith(b"HTTP/1.1 200"):
            writer.write(answer)
            writer.close()
            return
        there_reader, there = await asyncio.open_connection("127.0.0.1", port)
        if method == "CONNECT":
            writer.write(answer)
        else:
            there.write(head.replace(target.encode(), urlsplit(target).path.encode(), 1))
        for source, sink in ((reader, there), (there_reader, writer)):
            task = asyncio.get_running_loop().create_task(_pump(source, sink))
            tasks.add(task)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    try:
        with contextlib.suppress(OSError):
            while data := await source.read(65536):
                sink.write(data)
                await sink.drain()
    finally:
        sink.transport.abort()


def renamed(server: Loopback, host: str) -> str:
    """The server under a name that is not loopback's, so that the proxy is not passed by."""
    return server.url.replace("127.0.0.1", host).replace("localhost", host)


@pytest.mark.asyncio
async def test_plain_requests_are_forwarded_by_the_proxy_with_its_credentials():
    seen: list[str] = []
    async with loopback(HELLO) as server, proxy(seen) as there:
        env = {"HTTP_PROXY": f"http://me:p%40ss@{there}"}
        answer = await receive(provider("openai", renamed(server, "model.test"), env))
    assert answer.content()[0]["text"] == "hi"
    assert seen[0].startswith("POST http://model.test:")
    assert base64.b64encode(b"me:p@ss").decode() in seen[0]


@pytest.mark.asyncio
async def test_secure_requests_are_tunnelled_and_the_proxy_never_sees_the_key(tmp_path):
    authority = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("model.test").configure_cert(context)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    seen: list[str] = []
    async with loopback(HELLO, tls=context, host="model.test") as server, proxy(seen) as there:
        model = provider("openai", server.url, {"ALL_PROXY": there, "WIELDY_CA_FILE": str(tmp_path / "ca.pem")})
        assert (await receive(model, keep=True)).content()[0]["text"] == "hi"
        assert (await receive(model)).content()[0]["text"] == "hi"
        assert server.connections == 1
    assert len(seen) == 1
    assert seen[0].startswith("CONNECT model.test:")
    assert "Bearer" not in seen[0]


@pytest.mark.asyncio
async def test_a_proxy_that_refuses_is_said():
    async with proxy([], b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n") as there:
        failure = await failure_of(provider("openai", "https://model.test", {"https_proxy": there}))
    assert "407 Proxy Authentication Required" in str(failure)
    assert not failure.transient


@pytest.mark.asyncio
async def test_an_authority_of_our_own_is_trusted_when_named_and_not_otherwise(tls, trusted):
    async with loopback(HELLO, tls=tls, host="localhost") as server:
        failure = await failure_of(provider("openai", server.url, {}))
        assert "WIELDY_CA_FILE" in str(failure)
        assert not failure.transient
        answer = await receive(provider("openai", server.url, {"WIELDY_CA_FILE": trusted}))
        assert answer.content()[0]["text"] == "hi"
        answer = await receive(provider("openai", server.url, {"SSL_CERT_FILE": trusted}))
        assert answer.content()[0]["text"] == "hi"
        failure = await failure_of(provider("openai", server.url, {"WIELDY_CA_FILE": "/nowhere.pem"}))
        assert "cannot be read" in str(failure)


@pytest.mark.parametrize(
    ("url", "env", "host"),
    [
        ("https://api.test", {"https_proxy": "http://p:1"}, "p"),
        ("https://api.test", {"HTTPS_PROXY": "p:1"}, "p"),
        ("https://api.test", {"http_proxy": "http://p:1"}, None),
        ("http://api.test", {"http_proxy": "http://p:1", "no_proxy": "other,.test"}, None),
        ("http://api.test", {"http_proxy": "http://p:1", "NO_PROXY": "*"}, None),
        ("http://api.test", {"http_proxy": "http://p:1", "no_proxy": "pi.test"}, "p"),
        ("http://10.1.2.3:8000", {"http_proxy": "http://p:1", "no_proxy": "x, 10.0.0.0/8"}, None),
        ("http://11.1.2.3:8000", {"http_proxy": "http://p:1", "no_proxy": "10.0.0.0/8,11.1/x"}, "p"),
        ("http://[fd00::1]", {"http_proxy": "http://p:1", "no_proxy": "fd00::/8"}, None),
        ("http://api.test:81", {"http_proxy": "http://p:1", "no_proxy": "api.test:81"}, None),
        ("http://api.test:82", {"http_proxy": "http://p:1", "no_proxy": "api.test:81"}, "p"),
        ("http://localhost:1", {"http_proxy": "http://p:1"}, None),
        ("http://[::1]:1", {"all_proxy": "http://p:1"}, None),
    ],
)
def test_which_proxy_is_taken(url, env, host):
    found = proxy_for(urlsplit(url), env)
    assert (found.host if found else None) == host


@pytest.mark.parametrize("odd", ["socks5://p:1", "https://p:1", "http://p:port", "http://"])
def test_a_proxy_that_cannot_be_used_is_said(odd):
    with pytest.raises(ProxyError):
        proxy_for(urlsplit("http://api.test"), {"all_proxy": odd})


@pytest.mark.asyncio
async def test_a_long_request_that_is_refused_before_it_is_read_still_says_why():
    enough = asyncio.Event()

    async def refusing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\nno")
        await enough.wait()
        writer.transport.abort()

    server = await asyncio.start_server(refusing, "127.0.0.1", 0)
    model = provider("openai", f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    with pytest.raises(ProviderFailure) as failed:
        await receive(model, request(Message.user("x" * 20_000_000)))
    enough.set()
    server.close()
    await asyncio.sleep(0.05)
    assert failed.value.kind == "too_large"
