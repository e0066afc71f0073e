"""Signing in: tokens that only their owner can read, and a port that opens for one visitor and believes only a code."""

from __future__ import annotations

import asyncio
import json
import socket
import stat
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from wieldy.mcp.client.oauth import FILE_NAME, CallbackServer, TokenStorage


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
    assert (info.client_id, info.client_secret) == ("me", "s")
