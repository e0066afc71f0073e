"""A sign-in begins with a person, reaches hosts as `WebFetch` may, and gives a secret to its issuer only."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from wieldy.core.errors import SettingsError, ToolFailure
from wieldy.web.address_policy import AddressPolicy

pytestmark = pytest.mark.asyncio


class Listener:
    """An MCP server that wants a sign-in; it notes each request. `leads_to` names its authorization server."""

    def __init__(self, leads_to: str = "") -> None:
        self.leads_to = leads_to
        self.base = ""
        self.endpoints: dict[str, str] = {}
        self.requests: list[str] = []
        self.bodies: list[str] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        lengths = [int(line.split(":")[1]) for line in head.lower().split("\r\n") if line.startswith("content-length")]
        self.bodies.append(head + (await reader.readexactly(lengths[0])).decode() if lengths else head)
        path = " ".join(head.split(" ")[:2])
        self.requests.append(path)
        status, answer = self.answer(path)
        body = json.dumps(answer).encode()
        challenge = f'WWW-Authenticate: Bearer resource_metadata="{self.base}/.well-known/oauth-protected-resource"\r\n'
        writer.write(f"HTTP/1.1 {status} X\r\n{challenge if status == 401 else ''}".encode())
        writer.write(
            b"Content-Type: application/json\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        )
        writer.close()

    def answer(self, path: str) -> tuple[int, Any]:
        issuer = self.leads_to or self.base
        if "oauth-protected-resource" in path:
            return 200, {"resource": f"{self.base}/mcp", "authorization_servers": [issuer]}
        if "oauth-authorization-server" in path or "openid-configuration" in path:
            endpoints = {name: f"{self.base}/{name}" for name in ("token", "authorize", "register")}
            named = {
                f"{key if key != 'authorize' else 'authorization'}_endpoint": url for key, url in endpoints.items()
            }
            named["registration_endpoint"] = named.pop("register_endpoint")
            named |= self.endpoints
            return 200, {"issuer": issuer, "response_types_supported": ["code"], **named}
        if "/register" in path:
            return 201, {"client_id": "made", "redirect_uris": ["http://127.0.0.1:1/callback"]}
        if "/token" in path:
            return 200, {"access_token": "t", "token_type": "Bearer", "expires_in": 3600}
        return 401, {}


@asynccontextmanager
async def listening(server: Listener) -> AsyncIterator[str]:
    at = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.base = f"http://127.0.0.1:{at.sockets[0].getsockname()[1]}"
    try:
        yield f"{server.base}/mcp"
    finally:
        at.close()


async def test_a_refusal_at_the_start_fetches_and_registers_nothing_until_a_person_signs_in(stage):
    server = Listener()
    async with listening(server) as url, asyncio.timeout(60), stage.box(p={"type": "http", "url": url}) as box:
        await box.connected()
        connection = box.workspace.services.mcp_servers.connections["p"]
        assert str(connection.state) == "needs approval: run `wieldy mcp reconnect p` to sign in"
        assert set(server.requests) == {"POST /mcp"}
        connection.reconnect()  # as a call of the model does
        refused = await box.call("mcp__p__look", {})
        assert refused.is_error and set(server.requests) == {"POST /mcp"}
        connection.reconnect(sign_in=True)
        await connection.wait_settled()
        assert f"sign in at {server.base}/authorize" in connection.state.why
        assert "POST /register" in server.requests


@pytest.mark.parametrize("host", ["10.0.0.1", "169.254.169.254", "internal.test", "public.test"])
async def test_a_sign_in_is_not_led_to_other_hosts_inside_or_without_https(stage, host):
    server = Listener(f"http://{host}:1")
    async with listening(server) as url, asyncio.timeout(60), stage.box(p={"type": "http", "url": url}) as box:
        await box.connected()
        connection = box.workspace.services.mcp_servers.connections["p"]
        connection.reconnect(sign_in=True)
        await connection.wait_settled()
        assert connection.state.name == "failed" and f"{host}:1 without https" in connection.state.why
        assert "POST /register" not in server.requests


@pytest.mark.parametrize("endpoint", ["registration_endpoint", "authorization_endpoint"])
@pytest.mark.parametrize("place", ["http://10.0.0.1/x", "https://169.254.169.254/x", "http://public.test/x"])
async def test_no_endpoint_of_a_sign_in_leads_elsewhere(stage, endpoint, place):
    server = Listener()
    server.endpoints = {endpoint: place}
    async with listening(server) as url, asyncio.timeout(60), stage.box(p={"type": "http", "url": url}) as box:
        await box.connected()
        connection = box.workspace.services.mcp_servers.connections["p"]
        connection.reconnect(sign_in=True)
        await connection.wait_settled()
        assert connection.state.name == "failed", connection.state
        assert "without https" in connection.state.why or "is not allowed" in connection.state.why


async def test_a_secret_needs_an_issuer_and_goes_nowhere_else(stage):
    server = Listener()
    oauth: dict[str, Any] = {"clientId": "me", "clientSecret": "s3cret-value"}
    async with listening(server) as url, asyncio.timeout(60):
        with pytest.raises(SettingsError, match=r"`oauth\.clientSecret` needs `oauth\.issuer`"):
            stage.box(p={"type": "http", "url": url, "oauth": oauth})
        for grant in ({}, {"grantType": "client_credentials"}):
            entry = {"type": "http", "url": url, "oauth": {**oauth, **grant, "issuer": "https://issuer.example"}}
            async with stage.box(p=entry) as box:
                await box.connected()
                connection = box.workspace.services.mcp_servers.connections["p"]
                if not grant:
                    connection.reconnect(sign_in=True)
                    await connection.wait_settled()
                    where = connection.state.why.partition("sign in at ")[2]
                    state = where.partition("state=")[2].partition("&")[0]
                    back = where.partition("redirect_uri=")[2].partition("&")[0]
                    from urllib.parse import unquote, urlsplit

                    port = urlsplit(unquote(back)).port
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                    writer.write(f"GET /callback?code=c0de&state={state} HTTP/1.1\r\n\r\n".encode())
                    await connection.wait_signed_in()
                    await connection.wait_settled()
                    writer.close()
                assert connection.state.name == "failed" and "issuer" in connection.state.why, connection.state
        assert "POST /token" not in server.requests
        assert not any("s3cret" in body or "czNjcmV0" in body or "c0de" in body for body in server.bodies)


def resolver_of(**hosts: str) -> Any:
    async def resolve(host: str, port: int) -> Sequence[str]:
        if host not in hosts:
            raise OSError("unknown")
        return [hosts[host]]

    return resolve


@pytest.mark.parametrize(
    ("server", "url", "address"),
    [
        ("https://public/mcp", "https://other/token", "1.2.3.4"),
        ("https://public/mcp", "http://other/token", None),
        ("https://public/mcp", "https://private/token", None),
        ("https://public/mcp", "https://10.1.2.3/token", None),
        ("https://public/mcp", "https://[::1]/token", None),
        ("https://public/mcp", "https://localhost/token", None),
        ("https://public/mcp", "https://user:pw@other/token", None),
        ("https://public/mcp", "https://unknown/token", None),
        ("https://private/mcp", "https://private:8443/token", "10.0.0.1"),
        ("https://private/mcp", "https://private2/token", None),
        ("http://private/mcp", "http://private/token", None),
        ("http://127.0.0.1:80/mcp", "http://localhost:9/token", "127.0.0.1"),
        ("http://localhost/mcp", "https://other/token", "1.2.3.4"),
        ("http://localhost/mcp", "http://other/token", None),
        ("http://localhost/mcp", "https://private/token", None),
    ],
)
async def test_each_address_of_a_sign_in_is_judged_by_the_policy_of_web_fetch(server, url, address):
    import httpx2
    from mcp.client.auth import OAuthFlowError

    from wieldy.mcp.http import SIGN_IN, AddressCheck

    names = {
        "public": "1.1.1.1",
        "other": "1.2.3.4",
        "private": "10.0.0.1",
        "private2": "10.0.0.2",
        "localhost": "127.0.0.1",
    }
    check = AddressCheck(server, lambda *hosts: AddressPolicy(hosts, resolver_of(**names)), {})
    request = httpx2.Request("GET", url, extensions={SIGN_IN: None})
    if address is None:
        with pytest.raises((OAuthFlowError, ToolFailure)):
            await check.before(request)
        return
    await check.before(request)
    assert request.url.host == address and request.headers["host"].split(":")[0] == request.extensions["sni_hostname"]
    await check.after(httpx2.Response(200, request=request))
    assert str(request.url) == url


async def test_tokens_are_refreshed_at_the_issuer_that_gave_them_out_also_after_a_restart(stage):
    from mcp.shared.auth import OAuthClientInformationFull, OAuthMetadata, OAuthToken

    from wieldy.mcp.oauth import TokenStorage

    server, issuer = Listener(), Listener()
    async with listening(server) as url, listening(issuer), asyncio.timeout(60):
        storage = TokenStorage(url, {}, {"WIELDY_HOME": str(stage.folder.parent / "home")})
        await storage.set_tokens(OAuthToken(access_token="old", refresh_token="again"))
        await storage.set_client_info(OAuthClientInformationFull(client_id="made", redirect_uris=None))
        await storage.set_metadata(OAuthMetadata.model_validate(issuer.answer("oauth-authorization-server")[1]))
        async with stage.box(p={"type": "http", "url": url}) as box:
            await box.connected()
            state = box.workspace.services.mcp_servers.connections["p"].state
        assert state.name == "needs approval", "the server refuses the new token as well"
        assert set(server.requests) == {"POST /mcp"} and set(issuer.requests) == {"POST /token"}
        new = await storage.get_tokens()
        assert new is not None
        assert (new.access_token, new.refresh_token) == ("t", "again")
