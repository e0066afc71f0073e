from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.unit.web.loopback import Names, Recorder, response, serving, workspace

from wieldy.core.errors import ToolFailure
from wieldy.web.address_policy import HostRefused
from wieldy.web.fetch import FetchedResponse, Fetcher, FetchFailure, HttpRedirect
from wieldy.web.http import Streams, open_streams
from wieldy.web.proxy import ForwardProxy
from wieldy.web.url import HttpUrl, parse_url

LOCAL = ["127.0.0.1"]


def fetcher(folder: Path, **options: object) -> Fetcher:
    return Fetcher(workspace(folder, allowPrivateHosts=LOCAL), **options)  # type: ignore[arg-type]


async def body_of(fetch: Fetcher, url: str) -> bytes:
    answer = await fetch.fetch(parse_url(url))
    assert isinstance(answer, FetchedResponse)
    return answer.body


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "url",
    [
        *("http://169.254.169.254/latest/meta-data/", "http://[::ffff:127.0.0.1]/", "http://[0:0:0:0:0:0:0:1]/"),
        *("http://0/", "http://metadata.google.internal/computeMetadata/v1/", "http://localhost:8080/"),
        *("http://inside.example/", "https://mixed.example/", "http://2852039166/", "http://0x7f.0.0.1/"),
    ],
)
async def test_nothing_inside_is_ever_connected_to(tmp_path: Path, url: str) -> None:
    connect = Recorder()
    names = Names(inside_example=[["10.0.0.5"]], mixed_example=[["93.184.216.34", "127.0.0.1"]])
    fetch = Fetcher(workspace(tmp_path), resolver=names, connect=connect)
    with pytest.raises(HostRefused):
        await fetch.fetch(parse_url(url))
    assert connect.attempts == []


@pytest.mark.asyncio
async def test_the_judged_address_is_connected_to_and_the_name_is_what_the_certificate_must_show(
    tmp_path: Path,
) -> None:
    connect = Recorder()
    names = Names(e_org=[["93.184.216.34"], ["127.0.0.1"]])
    fetch = Fetcher(workspace(tmp_path), resolver=names, connect=connect)
    with pytest.raises(FetchFailure, match=r"e\.org cannot be reached: the connection was refused"):
        await fetch.fetch(parse_url("https://e.org/"))
    assert connect.attempts == [("93.184.216.34", 443, True, "e.org")]
    assert names.asked == ["e.org"]


@pytest.mark.asyncio
async def test_every_address_of_a_host_is_tried(tmp_path: Path) -> None:
    connect = Recorder()
    fetch = Fetcher(workspace(tmp_path), resolver=Names(e_org=[["2606:4700::1", "93.184.216.34"]]), connect=connect)
    with pytest.raises(FetchFailure):
        await fetch.fetch(parse_url("http://e.org/"))
    assert [wanted[0] for wanted in connect.attempts] == ["2606:4700::1", "93.184.216.34"]


@pytest.mark.asyncio
async def test_a_name_that_leads_inside_the_second_time_is_refused_on_the_redirect(tmp_path: Path) -> None:
    async with serving({"/": response(status="302 Found", location="/secret"), "/secret": response(b"s")}) as site:
        names = Names(e_org=[["127.0.0.1"], ["169.254.169.254"]])
        fetch = Fetcher(workspace(tmp_path, allowPrivateHosts=["e.org"]), resolver=names)
        with pytest.raises(HostRefused, match=r"169\.254\.169\.254"):
            await fetch.fetch(parse_url(f"http://e.org:{site.port}/"))
        assert site.asked == ["/"]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "location",
    ["http://localhost:{port}/", "http://169.254.169.254/", "//other.example/x", "https://[::1]/", "http://127.1.1.1/"],
)
async def test_a_redirect_to_another_host_is_reported_and_not_followed(tmp_path: Path, location: str) -> None:
    async with serving() as site:
        site.says["/"] = response(status="301 Moved", location=location.format(port=site.port))
        answer = await fetcher(tmp_path).fetch(parse_url(f"{site.origin}/"))
        assert isinstance(answer, HttpRedirect)
        assert answer.location.host != "127.0.0.1"
        assert site.asked == ["/"]


@pytest.mark.asyncio
async def test_redirects_within_a_host_are_followed_and_circles_end(tmp_path: Path) -> None:
    async with serving({"/end": response(b"here"), "/loop": response(status="307 x", location="/loop")}) as site:
        site.says["/a"] = response(status="301 x", location="b?q=1")
        site.says["/b"] = response(status="308 x", location=f"{site.origin}/end#part")
        assert await body_of(fetcher(tmp_path), f"{site.origin}/a") == b"here"
        assert site.asked == ["/a", "/b?q=1", "/end"]
        with pytest.raises(FetchFailure, match="circles"):
            await fetcher(tmp_path).fetch(parse_url(f"{site.origin}/loop"))


@pytest.mark.asyncio
async def test_a_redirect_to_a_file_is_refused(tmp_path: Path) -> None:
    async with serving({"/": response(status="302 x", location="file:///etc/passwd")}) as site:
        with pytest.raises(HostRefused, match="not followed"):
            await fetcher(tmp_path).fetch(parse_url(f"{site.origin}/"))


@pytest.mark.asyncio
@pytest.mark.parametrize("encoding", ["gzip", "x-gzip", "deflate", "raw deflate", "identity"])
async def test_packed_bodies_are_unpacked(tmp_path: Path, encoding: str) -> None:
    text = b"many words, " * 1000
    raw = zlib.compressobj(wbits=-15)
    packed = {
        "gzip": gzip.compress(text),
        "x-gzip": gzip.compress(text),
        "deflate": zlib.compress(text),
        "raw deflate": raw.compress(text) + raw.flush(),
        "identity": text,
    }[encoding]

    async def byte_by_byte(writer: asyncio.StreamWriter) -> None:
        head = response(packed, content_encoding=encoding.removeprefix("raw "))
        writer.write(head[: len(head) - len(packed)])
        for at in range(3):
            writer.write(packed[at : at + 1])
            await writer.drain()
            await asyncio.sleep(0.005)
        writer.write(packed[3:])
        await writer.drain()

    async with serving(
        {"/": response(packed, content_encoding=encoding.removeprefix("raw ")), "/slow": byte_by_byte}
    ) as site:
        assert await body_of(fetcher(tmp_path), f"{site.origin}/") == text
        assert await body_of(fetcher(tmp_path), f"{site.origin}/slow") == text


@pytest.mark.asyncio
async def test_a_bomb_is_unpacked_up_to_the_limit_only(tmp_path: Path) -> None:
    bomb = gzip.compress(bytes(50 << 20))
    assert len(bomb) < 1 << 20
    async with serving({"/": response(bomb, content_encoding="gzip")}) as site:
        answer = await fetcher(tmp_path, max_bytes=100_000).fetch(parse_url(f"{site.origin}/"))
        assert isinstance(answer, FetchedResponse)
        assert (len(answer.body), answer.truncated) == (100_000, True)


@pytest.mark.asyncio
async def test_an_endless_body_is_cut(tmp_path: Path) -> None:
    async def endless(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        for _ in range(10_000):
            writer.write(b"x" * 1000)
            await writer.drain()

    async with serving({"/": endless}) as site:
        answer = await fetcher(tmp_path, max_bytes=50_000).fetch(parse_url(f"{site.origin}/"))
        assert isinstance(answer, FetchedResponse)
        assert (len(answer.body), answer.truncated) == (50_000, True)


@pytest.mark.asyncio
@pytest.mark.parametrize("first", [b"", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nab"])
async def test_a_server_that_falls_silent_is_given_up(tmp_path: Path, first: bytes) -> None:
    async def silent(writer: asyncio.StreamWriter) -> None:
        writer.write(first)
        await writer.drain()
        await asyncio.sleep(5)

    async with serving({"/": silent}) as site:
        with pytest.raises(FetchFailure, match=r"within 0\.2 s"):
            await fetcher(tmp_path, timeout=0.2).fetch(parse_url(f"{site.origin}/"))


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("said", "message"),
    [
        (b"", "without an answer"),
        (b"SSH-2.0-OpenSSH_9\r\n", "does not speak HTTP|middle of its answer"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\nshort", "middle of its answer"),
        (b"HTTP/1.1 200 OK\r\n" + b"x: " + b"y" * 400_000 + b"\r\n\r\n", "does not speak HTTP"),
        (response(b"not gzip", content_encoding="gzip"), "damaged"),
        (response(gzip.compress(bytes(range(250)))[:60], content_encoding="gzip"), "breaks off"),
        (response(b"?", content_encoding="br"), "`br`"),
    ],
)
async def test_a_broken_answer_is_said_to_be_one(tmp_path: Path, said: bytes, message: str) -> None:
    async with serving({"/": said}) as site:
        with pytest.raises(ToolFailure, match=message):
            await fetcher(tmp_path).fetch(parse_url(f"{site.origin}/"))


@pytest.mark.asyncio
async def test_nothing_listens_there(tmp_path: Path) -> None:
    async with serving() as site:
        gone = site.origin
    with pytest.raises(FetchFailure, match="cannot be reached"):
        await fetcher(tmp_path).fetch(parse_url(gone))


@pytest.mark.asyncio
async def test_the_request_names_the_host_and_carries_no_more_than_it_must(tmp_path: Path) -> None:
    async with serving({"/a": response(b"x")}) as site:
        await body_of(fetcher(tmp_path), f"{site.origin}/a?b=c")
        head = site.heads[0].decode().lower()
        assert head.startswith("get /a?b=c http/1.1\r\n")
        assert f"host: 127.0.0.1:{site.port}\r\n" in head
        assert "cookie" not in head
        assert "authorization" not in head


async def any_host(url: HttpUrl) -> Streams:
    return await open_streams("127.0.0.1", url.port, None, url.host)


@asynccontextmanager
async def corporate_proxy() -> AsyncIterator[dict[str, str]]:
    """A proxy that knows every name, and the environment of somebody behind it."""
    proxy = ForwardProxy(any_host)
    address = f"http://127.0.0.1:{await proxy.listen()}"
    try:
        yield {"HTTP_PROXY": address, "HTTPS_PROXY": address, "NO_PROXY": "direct.example"}
    finally:
        await proxy.aclose()


@pytest.mark.asyncio
@pytest.mark.parametrize("names", [Names(), Names(shop_example=[["93.184.216.34"]])])
async def test_a_proxy_of_the_environment_connects_and_resolves_the_name(tmp_path: Path, names: Names) -> None:
    async with serving({"/tea": response(b"hot")}) as site, corporate_proxy() as env:
        fetch = Fetcher(workspace(tmp_path, env=env), resolver=names)
        assert await body_of(fetch, f"http://shop.example:{site.port}/tea") == b"hot"
        assert site.heads[0].startswith(b"GET /tea HTTP/1.1")


@pytest.mark.asyncio
@pytest.mark.parametrize("host", ["10.0.0.5", "169.254.169.254", "wiki", "db.internal", "inside.example", "[fd00::1]"])
async def test_behind_a_proxy_what_is_known_to_be_inside_is_still_refused(tmp_path: Path, host: str) -> None:
    async with serving({"/": response(b"secret")}) as site, corporate_proxy() as env:
        fetch = Fetcher(workspace(tmp_path, env=env), resolver=Names(inside_example=[["10.0.0.5"]]))
        with pytest.raises(HostRefused):
            await fetch.fetch(parse_url(f"http://{host}:{site.port}/"))
        assert site.asked == []


@pytest.mark.asyncio
async def test_a_host_in_no_proxy_is_resolved_and_connected_to_here(tmp_path: Path) -> None:
    connect = Recorder()
    async with corporate_proxy() as env:
        names = Names(direct_example=[["93.184.216.34"]])
        fetch = Fetcher(workspace(tmp_path, env=env), resolver=names, connect=connect)
        with pytest.raises(FetchFailure):
            await fetch.fetch(parse_url("http://direct.example/"))
    assert [attempt[0] for attempt in connect.attempts] == ["93.184.216.34"]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("proxy", "says"), [("socks5://127.0.0.1:1", "only http:// proxies"), ("http://127.0.0.1:1", "the proxy 127.0.0.1")]
)
async def test_a_proxy_that_cannot_be_used_is_named(tmp_path: Path, proxy: str, says: str) -> None:
    fetch = Fetcher(workspace(tmp_path, env={"HTTPS_PROXY": proxy}), resolver=Names())
    with pytest.raises(FetchFailure, match=says):
        await fetch.fetch(parse_url("https://shop.example/"))
