"""OAuth sign-in: the SDK does the protocol; we store the tokens and receive the redirect on a loopback port."""

from __future__ import annotations

import asyncio
import os
import socket
import warnings
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

from wieldy.core.state_dirs import config_home
from wieldy.core.threads import in_thread
from wieldy.mcp.config import ServerConfig
from wieldy.mcp.json_records import JsonRecords

FILE_NAME = "mcp-tokens.json"
SIGN_IN_SECONDS = 300.0
PAGE = b"<!doctype html><title>wieldy</title><p>You are signed in. You can close this page.</p>"


class TokenStorage:
    """The SDK's token storage: tokens and registrations by server URL, in a file that only its owner can read."""

    def __init__(self, url: str, registration: Mapping[str, Any], env: Mapping[str, str] = os.environ) -> None:
        self._url = url
        self._registration = registration
        self._records = JsonRecords(config_home(env) / FILE_NAME)

    async def get_tokens(self) -> Any:
        from mcp.shared.auth import OAuthToken

        return await self._load(OAuthToken, "tokens")

    async def set_tokens(self, tokens: Any) -> None:
        await self._save("tokens", tokens)

    async def get_client_info(self) -> Any:
        """Return our registration: the configured one, else the one the server made."""
        from mcp.shared.auth import OAuthClientInformationFull

        if self._registration:
            return OAuthClientInformationFull.model_validate(self._registration)
        return await self._load(OAuthClientInformationFull, "client")

    async def set_client_info(self, client_info: Any) -> None:
        await self._save("client", client_info)

    async def _load(self, model: Any, key: str) -> Any:
        value = (await in_thread(self._records.read, self._url)).get(key)
        try:
            return None if value is None else model.model_validate(value)
        except ValueError:
            return None

    async def _save(self, key: str, value: Any) -> None:
        fields = value.model_dump(mode="json", exclude_none=True)
        await in_thread(self._records.merge, {key: fields}, self._url)


class CallbackServer:
    """Waits on a loopback port for the browser to return with a code. The port is reserved at once and opened by `listen`."""

    def __init__(self, port: int) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("127.0.0.1", port))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}/callback"
        self._server: asyncio.Server | None = None
        self._query: asyncio.Future[dict[str, str]] | None = None

    async def listen(self) -> None:
        if self._server is None:
            self._query = asyncio.get_running_loop().create_future()
            self._server = await asyncio.start_server(self._handle, sock=self._socket)

    async def wait_for_code(self) -> Any:
        """Return the authorization code the browser brought."""
        from mcp.client.auth import AuthorizationCodeResult

        assert self._query is not None
        async with asyncio.timeout(SIGN_IN_SECONDS):
            query = await self._query
        self._query = asyncio.get_running_loop().create_future()
        return AuthorizationCodeResult(code=query["code"], state=query.get("state"), iss=query.get("iss"))

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        self._socket.close()

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(10):
                line = (await reader.readline()).decode("latin-1")
            values = parse_qs(urlsplit(line.split(" ")[1] if " " in line else "").query)
            query = {name: value[0] for name, value in values.items()}
            status = b"200 OK" if "code" in query else b"400 Bad Request"
            head = b"HTTP/1.1 %s\r\nContent-Type: text/html\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
            writer.write(head % (status, len(PAGE)) + PAGE)
            await writer.drain()
            if self._query is None or self._query.done():
                return
            if "code" in query:
                self._query.set_result(query)
            elif "error" in query:
                self._query.set_exception(ConnectionRefusedError(f"the sign-in was refused: {query['error']}"))
        except (OSError, TimeoutError, ValueError):
            return
        finally:
            writer.close()


def run_side_by_side(provider: Any) -> Any:
    """Wrap a provider of the SDK so that requests do not wait for each other.

    It holds a lock until a request has its answer, which is the end of the call at a server that answers with plain JSON. So
    only the first request goes through it, which loads the tokens, and whatever needs new ones.
    """
    import httpx2

    class SideBySideAuth(httpx2.Auth):
        is_first = True

        async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
            context = provider.context
            if not self.is_first and (context.is_token_valid() or not context.can_refresh_token()):
                if context.is_token_valid():
                    request.headers["Authorization"] = f"Bearer {context.current_tokens.access_token}"
                response = yield request
                if not needs_sign_in(response):
                    return
            flow = provider.async_auth_flow(request)
            try:
                outgoing = await flow.__anext__()
                while True:
                    response = yield outgoing
                    outgoing = await flow.asend(response)
            except StopAsyncIteration:
                self.is_first = False
            finally:
                await flow.aclose()

    return SideBySideAuth()


def needs_sign_in(response: Any) -> bool:
    """Whether a server refused a request for want of a token, or of a scope."""
    if response.status_code == 403:
        return "insufficient_scope" in response.headers.get("www-authenticate", "")
    return bool(response.status_code == 401)


class SignIn:
    """OAuth for one server. `on_sign_in` is called with the address a person must visit."""

    def __init__(self, config: ServerConfig, env: Mapping[str, str], on_sign_in: Callable[[str], None]) -> None:
        self._url = config.url
        self._options = config.oauth or {}
        self._env = env
        self._on_sign_in = on_sign_in
        port = self._options.get("callbackPort")
        self._callback = CallbackServer(port if isinstance(port, int) else 0)

    def provider(self) -> Any:
        """Return the SDK's provider, which acts only when the server asks for a sign-in."""
        from mcp.client.auth import OAuthClientProvider
        from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider
        from mcp.shared.auth import OAuthClientMetadata
        from mcp.shared.exceptions import MCPDeprecationWarning

        registration, scopes = self._registration(), self._options.get("scopes")
        storage = TokenStorage(self._url, registration, self._env)
        if self._options.get("grantType") == "client_credentials":  # a program signs in as itself
            client_id, secret = registration.get("client_id", ""), registration.get("client_secret") or ""
            issuer = self._options.get("issuer")
            with warnings.catch_warnings():  # the documentation says what a missing issuer means
                warnings.simplefilter("ignore", MCPDeprecationWarning)
                credentials = ClientCredentialsOAuthProvider(
                    self._url, storage, client_id, secret, scope=scopes, issuer=issuer
                )
            return run_side_by_side(credentials)
        metadata = {"client_name": "wieldy", "redirect_uris": [self._callback.url], "scope": scopes}
        provider = OAuthClientProvider(
            self._url,
            OAuthClientMetadata.model_validate(metadata),
            storage,
            redirect_handler=self._redirect,
            callback_handler=self._callback.wait_for_code,
            client_metadata_url=self._options.get("clientMetadataUrl"),
        )
        return run_side_by_side(provider)

    def _registration(self) -> dict[str, Any]:
        """Return our registration where the settings hold one."""
        client_id, secret = self._options.get("clientId"), self._options.get("clientSecret")
        if not client_id:
            return {}
        return {
            "client_id": client_id,
            "client_secret": secret,
            "redirect_uris": [self._callback.url],
            "token_endpoint_auth_method": "client_secret_basic" if secret else "none",
        }

    async def _redirect(self, url: str) -> None:
        await self._callback.listen()
        self._on_sign_in(url)

    def close(self) -> None:
        self._callback.close()
