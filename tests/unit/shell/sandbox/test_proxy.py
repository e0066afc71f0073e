"""The proxy of a sandbox reaches the hosts that the settings name, and no others."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from tests.unit.web.loopback import Names, Recorder

from wieldy.core.workspace import Workspace
from wieldy.engine.workspace_services import open_workspace
from wieldy.shell.running.shell import CommandResult, collect_result
from wieldy.shell.sandbox.sandbox import choose_wrapper
from wieldy.web.proxy import is_allowed

GREETING = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello"


@pytest_asyncio.fixture
async def origin() -> AsyncIterator[int]:
    """A server on this machine that says hello."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(GREETING)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()


def place(tmp_path, *allowed: str, **sandbox) -> Workspace:
    settings = {"sandbox": {"enabled": True, "allowedDomains": list(allowed), **sandbox}}
    return open_workspace(tmp_path, session_dir=tmp_path / "session", settings=settings)


async def said(workspace: Workspace, request: bytes) -> bytes:
    try:
        endpoint = await workspace.services.sandbox_proxy.open()
        reader, writer = await asyncio.open_unix_connection(endpoint.socket)
        writer.write(request)
        if request.startswith(b"CONNECT"):
            established = await reader.readuntil(b"\r\n\r\n")
            if b" 200 " not in established:
                writer.close()
                return established
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
        answer = await asyncio.wait_for(reader.read(), 20)
        writer.close()
        return answer
    finally:
        await workspace.aclose()


@pytest.mark.asyncio
@pytest.mark.parametrize("request_line", ["GET http://localhost:{port}/ HTTP/1.1", "CONNECT localhost:{port} HTTP/1.1"])
async def test_a_named_host_is_reached(tmp_path, origin, request_line):
    request = f"{request_line.format(port=origin)}\r\nHost: x\r\nProxy-Authorization: x\r\n\r\n".encode()
    assert await said(place(tmp_path, f"localhost:{origin}"), request) == GREETING


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "request_line",
    [
        "GET http://127.0.0.1:{port}/ HTTP/1.1",
        "CONNECT 127.0.0.1:{port} HTTP/1.1",
        "CONNECT localhost:22 HTTP/1.1",
        "CONNECT localhost HTTP/1.1",
        "CONNECT other.example:443 HTTP/1.1",
        "CONNECT localhost:{port}.example:443 HTTP/1.1",
        "GET /relative HTTP/1.1",
        "GET ftp://localhost:{port}/ HTTP/1.1",
        "nonsense",
    ],
)
async def test_anything_else_is_refused_by_name(tmp_path, origin, request_line):
    answer = await said(place(tmp_path, f"localhost:{origin}"), f"{request_line.format(port=origin)}\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 403")


@pytest.mark.asyncio
@pytest.mark.parametrize("address", ["127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "::127.0.0.1", "169.254.169.254"])
async def test_a_named_host_that_resolves_to_an_internal_address_is_refused(tmp_path, address):
    workspace = place(tmp_path, "intra.example")
    connect = Recorder()
    fetcher = workspace.services.fetcher
    fetcher.client.connect, fetcher.resolver = connect, Names(intra_example=[[address]])
    answer = await said(workspace, b"GET http://intra.example/ HTTP/1.1\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 403")
    assert connect.attempts == []


@pytest.mark.parametrize(
    ("host", "port", "pattern", "expected"),
    [
        ("example.com", 443, "example.com", True),
        ("EXAMPLE.com.", 443, "example.COM", True),
        ("example.com", 80, "example.com", True),
        ("example.com", 22, "example.com", False),
        ("example.com", 8080, "example.com:8080", True),
        ("example.com", 443, "example.com:8080", False),
        ("a.example.com", 443, "example.com", False),
        ("a.b.example.com", 443, "*.example.com", True),
        ("example.com", 443, "*.example.com", False),
        ("badexample.com", 443, "*.example.com", False),
        ("example.com.evil.org", 443, "example.com", False),
    ],
)
def test_patterns_cover_what_they_say(host, port, pattern, expected):
    assert is_allowed(host, port, [pattern]) is expected


async def ran(workspace: Workspace, command: str) -> CommandResult:
    session = workspace.services.shells
    confine = await workspace.services.sandbox.confinement(also_writable=(str(session.folder),))
    shell = session.start(command, cwd=workspace.cwd, confine=confine)
    while await shell.next_progress(shell.started + 30):
        pass
    return await collect_result(shell)


FETCH = "import sys, urllib.request as u\ntry: print(u.urlopen(sys.argv[1], timeout=9).read())\nexcept Exception as e: print(e)"


each_mechanism = pytest.mark.parametrize(
    "mechanism",
    [
        pytest.param(
            name,
            marks=pytest.mark.skipif(
                choose_wrapper(None, name).mechanism != name,
                reason=f"NOT TESTED: the proxy with {name}: it does not work here",
            ),
        )
        for name in ("bubblewrap", "landlock")
    ],
)


@pytest.mark.asyncio
@each_mechanism
async def test_every_command_of_a_session_reaches_named_hosts(tmp_path, origin, mechanism):
    (tmp_path / "fetch.py").write_text(FETCH)
    workspace = place(tmp_path, f"localhost:{origin}", mechanism=mechanism)
    fetch = f"{sys.executable} -I -S fetch.py http://localhost:{origin}/"
    try:
        assert [(await ran(workspace, fetch)).text for _ in range(3)] == ["b'hello'\n"] * 3
    finally:
        await workspace.aclose()


@pytest.mark.asyncio
@each_mechanism
async def test_programs_in_a_sandbox_reach_named_hosts_through_it_and_nothing_else(tmp_path, origin, mechanism):
    (tmp_path / "fetch.py").write_text(FETCH)
    workspace = place(tmp_path, f"localhost:{origin}", mechanism=mechanism)
    fetch = f"{sys.executable} -I -S fetch.py"
    result = await ran(
        workspace,
        f"{fetch} http://localhost:{origin}/; {fetch} http://127.0.0.1:{origin}/; "
        f"unset http_proxy HTTP_PROXY; {fetch} http://localhost:{origin}/; jobs; wait; echo $?",
    )
    await workspace.aclose()
    allowed, refused, direct, code = result.text.strip().split("\n")
    assert allowed == "b'hello'"
    assert "403" in refused
    assert "hello" not in direct
    assert code == "0"
    assert result.code == 0
