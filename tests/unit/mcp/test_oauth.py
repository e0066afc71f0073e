"""Signing in: tokens that only their owner can read, and a port that opens for one visitor and believes only a code."""

from __future__ import annotations

import asyncio
import json
import socket
import stat
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from wieldy.mcp.oauth import FILE_NAME, CallbackServer, TokenStorage


async def visit(address: str, path: str) -> bytes:
    where = urlsplit(address)
    reader, writer = await asyncio.open_connection(where.hostname, where.port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    await writer.drain()
    said = await reader.read()
    writer.close()
    await writer.wait_closed()
    return said


@pytest.mark.asyncio
async def test_the_code_is_taken_from_the_browser_and_nonsense_is_not():
    callback = CallbackServer(0)
    try:
        await callback.listen()
        waiting = asyncio.create_task(callback.wait_for_code())
        assert b"400" in await visit(callback.url, "/favicon.ico")
        assert not waiting.done()
        assert b"200 OK" in await visit(callback.url, "/callback?code=abc&state=s&iss=i")
        brought = await asyncio.wait_for(waiting, 5)
        assert (brought.code, brought.state, brought.iss) == ("abc", "s", "i")
    finally:
        callback.close()


@pytest.mark.asyncio
async def test_a_refused_sign_in_is_over_at_once():
    callback = CallbackServer(0)
    try:
        await callback.listen()
        waiting = asyncio.create_task(callback.wait_for_code())
        await asyncio.sleep(0)
        assert b"400" in await visit(callback.url, "/callback?error=access_denied")
        with pytest.raises(ConnectionRefusedError, match="refused: access_denied"):
            await asyncio.wait_for(waiting, 5)
    finally:
        callback.close()


def test_the_port_is_shut_until_somebody_has_to_sign_in():
    callback = CallbackServer(0)
    try:
        where = urlsplit(callback.url)
        with pytest.raises(OSError), socket.create_connection((str(where.hostname), where.port), timeout=2):
            pass
    finally:
        callback.close()


@pytest.mark.asyncio
async def test_tokens_are_kept_by_server_and_readable_by_their_owner_alone(tmp_path: Path):
    from mcp.shared.auth import OAuthToken

    env = {"WIELDY_HOME": str(tmp_path)}
    one, other = TokenStorage("https://one.org/mcp", {}, env), TokenStorage("https://two.org/mcp", {}, env)
    assert await one.get_tokens() is None
    await one.set_tokens(OAuthToken(access_token="secret", refresh_token="again"))
    kept = await TokenStorage("https://one.org/mcp", {}, env).get_tokens()
    assert kept is not None
    assert kept is not None
    assert (kept.access_token, kept.refresh_token) == ("secret", "again")
    assert await other.get_tokens() is None
    file = tmp_path / FILE_NAME
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.write_text(json.dumps({"https://one.org/mcp": {"tokens": {"odd": 1}}}))
    assert await one.get_tokens() is None
    file.write_text("{broken")
    assert await one.get_tokens() is None


@pytest.mark.asyncio
async def test_a_configured_client_is_used_as_it_is(tmp_path: Path):
    given = {"client_id": "me", "client_secret": "s", "redirect_uris": ["http://127.0.0.1:1/callback"]}
    info = await TokenStorage("https://one.org/mcp", given, {"WIELDY_HOME": str(tmp_path)}).get_client_info()
    assert info is not None
    assert info is not None
    assert (info.client_id, info.client_secret) == ("me", "s")


class Protected:
    """An MCP server and its authorization server in one; `valid` is the only token that it takes."""

    def __init__(self) -> None:
        self.issued = 0
        self.valid = ""
        self.base = ""
        self.both_called = asyncio.Event()
        self.waiting = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        lines = dict(line.split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line)
        headers = {name.lower(): value for name, value in lines.items()}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        method, path, _ = head.split(" ", 2)
        status, answer = await self._answer(method, path, headers, body)
        data = json.dumps(answer).encode()
        challenge = f'WWW-Authenticate: Bearer resource_metadata="{self.base}/.well-known/oauth-protected-resource"\r\n'
        writer.write(f"HTTP/1.1 {status} X\r\n{challenge if status == 401 else ''}".encode())
        writer.write(b"Content-Type: application/json\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(data))
        writer.write(data)
        writer.close()

    async def _answer(self, method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, object]:
        if path.startswith("/.well-known/oauth-protected-resource"):
            return 200, {"resource": f"{self.base}/mcp", "authorization_servers": [self.base]}
        if path.startswith("/.well-known/oauth-authorization-server"):
            endpoints = {"authorization_endpoint": f"{self.base}/authorize", "token_endpoint": f"{self.base}/token"}
            return 200, {"issuer": self.base, "response_types_supported": ["code"], **endpoints}
        if path == "/token":
            self.issued += 1
            self.valid = f"token-{self.issued}"
            return 200, {"access_token": self.valid, "token_type": "Bearer", "expires_in": 3600}
        if path != "/mcp" or method != "POST":
            return 405, {}
        if headers.get("authorization") != f"Bearer {self.valid}" or not self.valid:
            return 401, {}
        return 200, await self._reply(json.loads(body))

    async def _reply(self, message: dict[str, object]) -> object:
        match message["method"]:
            case "initialize":
                info = {"name": "p", "version": "1"}
                result: object = {"protocolVersion": "2025-06-18", "serverInfo": info, "capabilities": {"tools": {}}}
            case "tools/list":
                hints = {"annotations": {"readOnlyHint": True}, "inputSchema": {"type": "object"}}
                result = {"tools": [{"name": "look", **hints}]}
            case "tools/call":
                self.waiting += 1
                if self.waiting == 2:
                    self.both_called.set()
                await self.both_called.wait()
                result = {"content": [{"type": "text", "text": "seen"}]}
            case _:
                return {"jsonrpc": "2.0", "id": message.get("id"), "error": {"code": -32601, "message": "unknown"}}
        return {"jsonrpc": "2.0", "id": message.get("id"), "result": result}


@pytest.mark.asyncio
async def test_calls_run_side_by_side_with_a_token_and_get_a_new_one_when_it_is_refused(stage):
    server = Protected()
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.base = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    oauth = {"grantType": "client_credentials", "clientId": "me", "clientSecret": "s", "issuer": server.base}
    try:
        async with stage.box(p={"type": "http", "url": f"{server.base}/mcp", "oauth": oauth}) as box:
            async with asyncio.timeout(30):
                await box.connected()
                results = await box.call_many([("mcp__p__look", {})] * 2)  # each is answered when both have come
                assert [result.text for result in results] == ["seen", "seen"]
                assert server.issued == 1
                server.valid = "expired"
                results = await box.call_many([("mcp__p__look", {})] * 3)
                assert [result.text for result in results] == ["seen"] * 3
                assert server.issued == 2
    finally:
        listening.close()
