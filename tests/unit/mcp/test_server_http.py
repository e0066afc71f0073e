"""The server over HTTP on loopback: sessions, the guard at the door, and the official SDK's client in both revisions."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import mcp_types as types
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from wieldy import Toolbox, tool
from wieldy.engine.workspace_services import HostServices
from wieldy.faces.mcp_server.http import (
    AccessGuard,
    Address,
    ConnectionLimits,
    SessionPool,
    parse_address,
    serve_http,
)
from wieldy.faces.mcp_server.server import MAX_CALLS

TOKEN = "a-token-of-enough-length"
HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "a test", "version": "1"},
    },
}
HEADERS = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
both_eras = pytest.mark.parametrize("era", ("legacy", "2026-07-28"))


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "state"))


class Running:
    """A server on a free port of this machine."""

    def __init__(self, pool: SessionPool) -> None:
        self.pool = pool
        self.where: asyncio.Future[Address] = asyncio.get_running_loop().create_future()
        self.told = asyncio.Event()

    @property
    def url(self) -> str:
        return f"http://{self.where.result()}/mcp"


@asynccontextmanager
async def running(
    root: Path,
    *,
    token: str | None = None,
    tools: tuple[Any, ...] = (),
    toolbox: type[Toolbox] = Toolbox,
    bounds: ConnectionLimits | None = None,
    **limits: Any,
) -> AsyncIterator[Running]:
    def make(ask: Any, host: HostServices) -> Toolbox:
        return toolbox(root, ask=ask, settings={}, tools=tools, host=host)

    server = Running(SessionPool(make, **limits))
    async with asyncio.TaskGroup() as group:
        group.create_task(
            serve_http(
                server.pool,
                Address("127.0.0.1", 0),
                server.told,
                token=token,
                on_ready=server.where.set_result,
                limits=bounds,
            )
        )
        await server.where
        try:
            yield server
        finally:
            server.told.set()


def text(result: types.CallToolResult) -> str:
    return "\n".join(block.text for block in result.content if isinstance(block, types.TextContent))


@both_eras
@pytest.mark.asyncio
async def test_a_client_lists_calls_is_told_and_is_asked_over_http(tmp_path: Path, era: str):
    asked: list[str] = []
    heard: list[str | None] = []

    async def elicited(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        asked.append(params.message)
        return types.ElicitResult(action="accept", content={"decision": "Allow once"})

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        heard.append(message)

    async with (
        running(tmp_path) as server,
        Client(server.url, mode=era, elicitation_callback=elicited) as client,
    ):
        assert "Read" in {one.name for one in (await client.list_tools()).tools}
        written = await client.call_tool("Write", {"file_path": "a.txt", "content": "hi\n"})
        assert not written.is_error, text(written)
        shown = await client.call_tool(
            "Bash", {"command": "echo begun; sleep 1; cat a.txt"}, progress_callback=on_progress
        )
    assert len(asked) == 1
    assert "hi" in text(shown)
    assert heard


@both_eras
@pytest.mark.asyncio
async def test_a_cancelled_call_is_interrupted_over_http(tmp_path: Path, era: str):
    started, stopped = asyncio.Event(), asyncio.Event()

    @tool(read_only=True)
    async def endless() -> str:
        """Never come back by itself."""
        started.set()
        try:
            await asyncio.sleep(60)
        finally:
            stopped.set()
        return "never"

    async with running(tmp_path, tools=(endless,)) as server, Client(server.url, mode=era) as client:
        call = asyncio.ensure_future(client.call_tool("endless", {}))
        await started.wait()
        call.cancel()
        await asyncio.wait_for(stopped.wait(), 10)
        assert text(await client.call_tool("Think", {"thought": "on"})) == "Noted."


@pytest.mark.asyncio
async def test_every_session_has_a_toolbox_of_its_own_and_loses_it_when_it_ends(tmp_path: Path):
    (tmp_path / "below").mkdir()
    async with running(tmp_path) as server:
        async with Client(server.url, mode="legacy") as one, Client(server.url, mode="legacy") as other:
            await one.call_tool("Bash", {"command": "cd below"})
            assert text(await one.call_tool("Bash", {"command": "pwd"})).startswith(str(tmp_path / "below"))
            assert text(await other.call_tool("Bash", {"command": "pwd"})).splitlines()[0] == str(tmp_path)
            assert len(server.pool) == 2
        assert len(server.pool) == 0


class UnclosableToolbox(Toolbox):
    async def aclose(self) -> None:
        await super().aclose()
        raise OSError("no space left on device")


@pytest.mark.asyncio
async def test_a_session_that_cannot_be_closed_ends_no_other(tmp_path: Path):
    async with running(tmp_path, toolbox=UnclosableToolbox) as server:
        async with Client(server.url, mode="legacy") as one:
            await one.call_tool("LS", {"path": "."})
        while len(server.pool):
            await asyncio.sleep(0.01)
        async with Client(server.url, mode="legacy") as other:
            assert not (await other.call_tool("LS", {"path": "."})).is_error


@pytest.mark.asyncio
async def test_idle_rooms_are_closed_and_busy_ones_kept(tmp_path: Path):
    async with (
        running(tmp_path, idle_seconds=0.2) as server,
        Client(server.url, mode="2026-07-28") as client,
    ):
        await client.call_tool("Bash", {"command": "sleep 0.5"})
        assert len(server.pool) == 1
        await asyncio.sleep(0.6)
        assert len(server.pool) == 0
        assert text(await client.call_tool("Think", {"thought": "on"})) == "Noted."


@pytest.mark.asyncio
async def test_there_are_only_so_many_rooms_and_the_one_idle_longest_gives_way(tmp_path: Path):
    async with running(tmp_path, max_sessions=2) as server, AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(Client(server.url, mode="legacy")) for _ in range(3)]
        for client in (*clients, *clients):
            assert text(await client.call_tool("Think", {"thought": "on"})) == "Noted."
            assert len(server.pool) <= 2


@pytest.mark.asyncio
async def test_there_are_only_so_many_sessions(tmp_path: Path):
    async with running(tmp_path, max_sessions=1) as server, httpx2.AsyncClient(headers=HEADERS) as web:
        codes = [(await web.post(server.url, json=HELLO)).status_code for _ in range(17)]
    assert codes == [*([200] * 16), 503]


@pytest.mark.asyncio
async def test_a_session_of_another_is_not_entered_by_the_revision_without_sessions(tmp_path: Path):
    (tmp_path / "below").mkdir()
    async with running(tmp_path) as server, httpx2.AsyncClient(headers=HEADERS) as web:
        session = (await web.post(server.url, json=HELLO)).headers["mcp-session-id"]
        async with (
            httpx2.AsyncClient(headers={"mcp-session-id": session}) as disguised,
            Client(streamable_http_client(server.url, http_client=disguised), mode="2026-07-28") as client,
        ):
            await client.call_tool("Think", {"thought": "on"})
        assert f"session {session}" not in server.pool


@pytest.mark.asyncio
async def test_a_client_that_ends_what_is_not_its_session_ends_no_work(tmp_path: Path):
    async with (
        running(tmp_path) as server,
        httpx2.AsyncClient(headers=HEADERS) as web,
        Client(server.url, mode="2026-07-28") as modern,
        Client(server.url, mode="legacy") as legacy,
    ):
        await modern.call_tool("Think", {"thought": "on"})
        await legacy.call_tool("Think", {"thought": "on"})
        keys = list(server.pool._entries)
        assert len(keys) == 2
        guesses = [guess for key in keys for guess in (key, key.partition(" ")[2])]
        for guess in ("", "mcp", "client mcp", *(each for each in guesses if not each.startswith("session"))):
            for version in ("2025-11-25", "2026-07-28"):
                headers = {"mcp-session-id": guess, "mcp-protocol-version": version}
                if len(guess) != 32:  # the number of a session is what its owner knows
                    await web.request("DELETE", server.url, headers=headers)
        assert list(server.pool._entries) == keys
        own = next(key.partition(" ")[2] for key in keys if key.startswith("session "))
        ended = await web.request(
            "DELETE", server.url, headers={"mcp-session-id": own, "mcp-protocol-version": "1999-01-01"}
        )
        assert (len(server.pool) == 2) == (ended.status_code >= 400), "removed is what was closed"


@pytest.mark.asyncio
async def test_connections_that_send_no_whole_request_are_closed_and_lock_nobody_out(tmp_path: Path):
    async with running(tmp_path, token=TOKEN) as server, httpx2.AsyncClient(headers=HEADERS) as web:
        address = server.where.result()
        halves = []
        for start in (b"", b"POST /mcp HTTP/1.1\r\nHost: loc"):
            for _ in range(ConnectionLimits().waiting):
                reader, writer = await asyncio.open_connection(address.host, address.port)
                writer.write(start)
                halves.append((reader, writer))
        answer = await web.post(server.url, json=HELLO, headers={"authorization": f"Bearer {TOKEN}"})
        assert answer.status_code == 200
        closed = sum(reader.at_eof() for reader, _ in halves)
        assert closed >= ConnectionLimits().waiting
        for _, writer in halves:
            writer.close()


@pytest.mark.asyncio
async def test_a_request_whose_headers_do_not_come_to_an_end_is_closed_in_time(tmp_path: Path):
    async with running(tmp_path, bounds=ConnectionLimits(header_seconds=0.3, body_seconds=0.3)) as server:
        address = server.where.result()
        reader, writer = await asyncio.open_connection(address.host, address.port)
        writer.write(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\n")

        async def dribble() -> None:
            while not writer.is_closing():
                writer.write(b"X-Slow: 1\r\n")
                await asyncio.sleep(0.05)

        dribbling = asyncio.ensure_future(dribble())
        assert await asyncio.wait_for(reader.read(), 10) == b""
        dribbling.cancel()
        writer.close()
        # A request that has come is answered however long its tool takes.
        async with Client(server.url, mode="legacy") as client:
            assert not (await client.call_tool("Bash", {"command": "sleep 0.8"})).is_error


BODY_HEAD = "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n"


@asynccontextmanager
async def open_body(server: Running, size: int, start: bytes = b"{") -> AsyncIterator[asyncio.StreamReader]:
    """A request whose body of so many bytes has only begun."""
    address = server.where.result()
    reader, writer = await asyncio.open_connection(address.host, address.port)
    writer.write(BODY_HEAD.format(size).encode() + start)
    await writer.drain()
    try:
        yield reader
    finally:
        writer.close()


@asynccontextmanager
async def open_get(server: Running) -> AsyncIterator[None]:
    """A stream of events, which stays open."""
    async with httpx2.AsyncClient(headers=HEADERS) as web:
        hello = await web.post(server.url, json=HELLO, headers={"connection": "close"})
        session = {"mcp-session-id": hello.headers["mcp-session-id"], "mcp-protocol-version": "2025-11-25"}
        async with web.stream("GET", server.url, headers=session) as answer:
            assert answer.status_code == 200
            yield


async def closed(reader: asyncio.StreamReader) -> bool:
    """Wait for the end of a connection that gets no answer."""
    with contextlib.suppress(ConnectionError):
        return await asyncio.wait_for(reader.read(), 10) == b""
    return True


@pytest.mark.asyncio
async def test_a_request_whose_body_does_not_come_to_an_end_is_closed_in_time(tmp_path: Path):
    bounds = ConnectionLimits(body_seconds=0.3)
    async with running(tmp_path, bounds=bounds) as server, open_body(server, 1000) as reader:
        assert await closed(reader)


@pytest.mark.asyncio
async def test_bodies_under_way_hold_so_many_bytes_and_the_oldest_gives_way(tmp_path: Path):
    part = b" " * (1 << 16)
    bounds = ConnectionLimits(request_bytes=5 << 16)
    async with running(tmp_path, bounds=bounds) as server, AsyncExitStack() as stack:
        slow = [await stack.enter_async_context(open_body(server, 8 << 16, part)) for _ in range(8)]
        assert await closed(slow[0])
        async with Client(server.url, mode="legacy") as client:  # others are served, with bodies of the usual size
            assert text(await client.call_tool("Think", {"thought": "x" * (2 << 16)})) == "Noted."
        assert not slow[-1].at_eof()
        async with Client(server.url, mode="legacy") as client:  # what was answered counts no more
            for _ in range(4):
                assert text(await client.call_tool("Think", {"thought": "x" * (2 << 16)})) == "Noted."


@pytest.mark.asyncio
async def test_all_connections_are_bounded_and_one_with_a_request_is_kept(tmp_path: Path):
    began, release = asyncio.Event(), asyncio.Event()

    @tool(read_only=True)
    async def hold() -> str:
        """Wait until all are let go."""
        began.set()
        await release.wait()
        return "held"

    bounds = ConnectionLimits(connections=8)
    async with running(tmp_path, tools=(hold,), bounds=bounds) as server, AsyncExitStack() as stack:
        client = await stack.enter_async_context(Client(server.url, mode="legacy"))
        call = asyncio.ensure_future(client.call_tool("hold", {}))
        await began.wait()
        slow = [await stack.enter_async_context(open_body(server, 1000)) for _ in range(10)]
        assert await closed(slow[0])  # gives way to the others
        release.set()
        assert text(await call) == "held"

    async with running(tmp_path, bounds=ConnectionLimits(connections=1)) as server, AsyncExitStack() as stack:
        address = server.where.result()
        await stack.enter_async_context(open_get(server))
        reader, writer = await asyncio.open_connection(address.host, address.port)
        answer = await asyncio.wait_for(reader.read(), 10)
        assert answer.startswith(b"HTTP/1.1 503") and b"too many connections" in answer
        writer.close()


@both_eras
@pytest.mark.asyncio
async def test_so_many_calls_of_all_clients_run_side_by_side(tmp_path: Path, era: str):
    under_way, most = 0, 0
    enough, go_on = asyncio.Event(), asyncio.Event()

    @tool(read_only=True)
    async def hold() -> str:
        """Wait until all are let go."""
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        if under_way >= MAX_CALLS:
            enough.set()
        await go_on.wait()
        under_way -= 1
        return "held"

    async with running(tmp_path, tools=(hold,)) as server, AsyncExitStack() as stack:
        info = [types.Implementation(name=f"c{number}", version="1") for number in range(5)]
        clients = [await stack.enter_async_context(Client(server.url, mode=era, client_info=each)) for each in info]
        calls = [asyncio.ensure_future(client.call_tool("hold", {})) for client in clients for _ in range(20)]
        await asyncio.wait_for(enough.wait(), 30)
        await asyncio.gather(*(client.list_tools() for client in clients))  # the server has read all calls
        assert most == MAX_CALLS
        go_on.set()
        assert {text(result) for result in await asyncio.gather(*calls)} == {"held"}
        assert most == MAX_CALLS


@pytest.mark.asyncio
async def test_a_malformed_body_is_answered_as_such(tmp_path: Path):
    async with running(tmp_path) as server, httpx2.AsyncClient(headers=HEADERS) as web:
        answer = await web.post(server.url, content=b"this is not JSON")
        assert answer.status_code == 400
        assert answer.json()["error"]["code"] == -32700
        assert (await web.post(server.url, json=HELLO)).status_code == 200


@pytest.mark.asyncio
async def test_a_body_of_more_than_32_mib_is_taken(tmp_path: Path):
    async with running(tmp_path) as server, Client(server.url) as client:
        assert text(await client.call_tool("Think", {"thought": "x" * (33 << 20)})) == "Noted."


@pytest.mark.asyncio
async def test_the_token_is_asked_for_and_taken(tmp_path: Path):
    async with running(tmp_path, token=TOKEN) as server, httpx2.AsyncClient(headers=HEADERS) as web:
        for given in (None, "Bearer", "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}x", "Bearer \xfc"):
            headers = [(b"authorization", given.encode("latin-1"))] if given else []
            answer = await web.post(server.url, json=HELLO, headers=headers)
            assert answer.status_code == 401, given
            assert answer.headers["www-authenticate"] == "Bearer"
        answer = await web.post(server.url, json=HELLO, headers={"authorization": f"Bearer {TOKEN}"})
        assert answer.status_code == 200
        keyed = httpx2.AsyncClient(headers={"authorization": f"Bearer {TOKEN}"})
        async with Client(streamable_http_client(server.url, http_client=keyed)) as client:
            assert text(await client.call_tool("Think", {"thought": "on"})) == "Noted."
        await keyed.aclose()


@pytest.mark.asyncio
async def test_foreign_hosts_and_origins_are_turned_away(tmp_path: Path):
    async with running(tmp_path) as server, httpx2.AsyncClient(headers=HEADERS) as web:

        async def status(**headers: str) -> int:
            return (await web.post(server.url, json=HELLO, headers=headers)).status_code

        port = server.where.result().port
        assert await status(host="evil.example") == 403
        assert await status(host=f"evil.example:{port}") == 403
        assert await status(origin="http://evil.example") == 403
        assert await status(origin="null") == 403
        assert await status(origin=f"http://localhost.evil.example:{port}") == 403
        assert await status(host=f"localhost:{port}", origin="http://localhost:3000") == 200


def test_the_guard_knows_the_names_it_was_given():
    async def nothing(*_: Any) -> None: ...

    loopback = AccessGuard(nothing, Address("127.0.0.1", 1), hosts=("Box.example",))
    assert loopback.reject({"host": "box.example:1", "origin": "https://box.example"}) is None
    assert loopback.reject({}) is not None
    assert loopback.reject({"host": "[::1]:1"}) is None
    assert loopback.reject({"host": "[::1"}) is not None
    everywhere = AccessGuard(nothing, Address("0.0.0.0", 1), token=TOKEN)
    bearer = {"authorization": f"Bearer {TOKEN}"}
    assert everywhere.reject({"host": "any.example", **bearer}) is None
    assert everywhere.reject({"host": "any.example", "origin": "http://any.example", **bearer}) is not None
    assert everywhere.reject({"host": "any.example"}) is not None


def test_an_address_without_a_host_is_this_machine_alone():
    assert parse_address("8931") == parse_address(":8931") == Address("127.0.0.1", 8931)
    assert parse_address("[::1]:80") == Address("::1", 80)
    assert str(parse_address("[::1]:80")) == "[::1]:80"
    assert parse_address("localhost:80").is_loopback
    assert not parse_address("example.org:80").is_loopback
    for wrong in ("", "host", "host:", "host:x", "host:65536", "host:-1", "host:" + "9" * 5000):
        with pytest.raises(ValueError, match="HOST:PORT"):
            parse_address(wrong)
