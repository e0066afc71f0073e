"""OAuth sign-in: the SDK does the protocol; we store the tokens and receive the redirect on a loopback port.

No request of a sign-in is sent before a person starts it. A secret of the settings goes to the issuer that they name only.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any, TypeVar
from urllib.parse import parse_qs, urlsplit

import httpx2
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider, OAuthFlowError
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider
from mcp.client.auth.utils import issuers_match
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthMetadata, OAuthToken
from pydantic import BaseModel

from wieldy.core.state_dirs import config_home
from wieldy.core.threads import in_thread
from wieldy.files.writing.locked_update import JsonRecords
from wieldy.mcp.config import ServerConfig
from wieldy.mcp.http import SIGN_IN, AddressCheck

FILE_NAME = "mcp-tokens.json"
SIGN_IN_SECONDS = 300.0
Model = TypeVar("Model", bound=BaseModel)
PAGE = b"<!doctype html><title>wieldy</title><p>You are signed in. You can close this page.</p>"


class TokenStorage:
    """The SDK's token storage: tokens and registrations by server URL, in a file that only its owner can read.

    The metadata of the authorization server is stored too: without it the SDK sends a refresh to the MCP server.
    """

    def __init__(self, url: str, registration: Mapping[str, Any], env: Mapping[str, str] = os.environ) -> None:
        self._url = url
        self._registration = registration
        self._records = JsonRecords(config_home(env) / FILE_NAME)

    async def get_tokens(self) -> OAuthToken | None:
        return await self._load(OAuthToken, "tokens")

    async def set_tokens(self, tokens: OAuthToken) -> None:
        await self._save("tokens", tokens)

    async def get_metadata(self) -> OAuthMetadata | None:
        return await self._load(OAuthMetadata, "metadata")

    async def set_metadata(self, metadata: OAuthMetadata) -> None:
        await self._save("metadata", metadata)

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """Return our registration: the configured one, else the one the server made."""
        if self._registration:
            return OAuthClientInformationFull.model_validate(self._registration)
        return await self._load(OAuthClientInformationFull, "client")

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        await self._save("client", client_info)

    async def _load(self, model: type[Model], key: str) -> Model | None:
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

    async def wait_for_code(self) -> AuthorizationCodeResult:
        """Return the authorization code the browser brought."""
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


class SignInRequired(OAuthFlowError):
    """The server wants a sign-in, which no person has started."""


class SideBySideAuth(httpx2.Auth):
    """A provider of the SDK whose requests do not wait for each other, and which signs in only when it may.

    The provider holds a lock until a request has its answer, which is the end of the call at a server that answers with plain
    JSON. So only the first request goes through it, which loads the tokens, and whatever needs new ones.
    """

    def __init__(self, provider: OAuthClientProvider, storage: TokenStorage, issuer: str, may_sign_in: bool) -> None:
        self._context = provider.context
        self._provider = provider
        self._storage = storage
        self._issuer = issuer
        self._may_sign_in = may_sign_in
        self._is_first = True

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        context = self._context
        if not self._is_first and (context.is_token_valid() or not context.can_refresh_token()):
            if context.is_token_valid() and context.current_tokens is not None:
                request.headers["Authorization"] = f"Bearer {context.current_tokens.access_token}"
            response = yield request
            if not needs_sign_in(response):
                return
        if context.oauth_metadata is None:
            metadata = await self._storage.get_metadata()
            context.oauth_metadata = metadata if self._is_issuer(metadata) else None
        known, is_done = context.oauth_metadata, False
        for may_refresh in (True, False):
            flow = self._provider.async_auth_flow(request)
            try:
                outgoing = await flow.__anext__()
                while True:
                    if outgoing is not request:
                        self._check(outgoing)
                        outgoing.extensions = {**outgoing.extensions, SIGN_IN: None}
                    response = yield outgoing
                    if outgoing is request and needs_sign_in(response):
                        if may_refresh and context.can_refresh_token() and self._is_issuer(context.oauth_metadata):
                            context.token_expiry_time = 1.0  # the SDK takes a stored token for one that never expires
                            break
                        # A person who has signed in is asked for another scope in the same way.
                        if not self._may_sign_in and (response.status_code == 401 or not context.current_tokens):
                            raise SignInRequired("no person has started it")
                    outgoing = await flow.asend(response)
            except StopAsyncIteration:
                is_done = True
                break
            finally:
                await flow.aclose()
        self._is_first = not is_done
        if context.oauth_metadata is not None and context.oauth_metadata is not known:
            await self._storage.set_metadata(context.oauth_metadata)

    def _is_issuer(self, metadata: OAuthMetadata | None) -> bool:
        return not self._issuer or (metadata is not None and issuers_match(str(metadata.issuer), self._issuer))

    def _check(self, outgoing: httpx2.Request) -> None:
        """Register for a person only; send codes and secrets to the configured issuer only: the server names others at will."""
        if outgoing.headers.get("content-type") == "application/json" and not self._may_sign_in:
            raise SignInRequired("no person has started it")
        if outgoing.method == "POST" and not self._is_issuer(self._context.oauth_metadata):
            self._context.clear_tokens()
            named = self._context.oauth_metadata.issuer if self._context.oauth_metadata else "no known one"
            raise OAuthFlowError(f"the server leads to the issuer {named}, and the secret belongs to {self._issuer}")


def needs_sign_in(response: httpx2.Response) -> bool:
    """Whether a server refused a request for want of a token, or of a scope."""
    if response.status_code == 403:
        return "insufficient_scope" in response.headers.get("www-authenticate", "")
    return response.status_code == 401


class SignIn:
    """OAuth for one server. `on_sign_in` is called with the address a person must visit, where `by_person` says one is there."""

    def __init__(
        self,
        config: ServerConfig,
        env: Mapping[str, str],
        check: AddressCheck,
        on_sign_in: Callable[[str], None],
        *,
        by_person: bool,
    ) -> None:
        self._url = config.url
        self._options = config.oauth or {}
        self._env = env
        self._check = check
        self._on_sign_in = on_sign_in
        self._by_person = by_person
        port = self._options.get("callbackPort")
        self._callback = CallbackServer(port if isinstance(port, int) else 0)

    def auth(self) -> SideBySideAuth:
        """Return what signs requests; it acts only when the server asks for a sign-in."""
        registration, issuer = self._registration(), str(self._options.get("issuer") or "")
        storage = TokenStorage(self._url, registration, self._env)
        is_program = self._options.get("grantType") == "client_credentials"  # it signs in as itself
        provider = self._program(storage, registration) if is_program else self._person(storage)
        return SideBySideAuth(provider, storage, issuer, self._by_person or is_program)

    def _program(self, storage: TokenStorage, registration: Mapping[str, Any]) -> OAuthClientProvider:
        return ClientCredentialsOAuthProvider(
            self._url,
            storage,
            registration.get("client_id", ""),
            registration.get("client_secret") or "",
            scope=self._options.get("scopes"),
            issuer=self._options.get("issuer"),
        )

    def _person(self, storage: TokenStorage) -> OAuthClientProvider:
        metadata = {
            "client_name": "wieldy",
            "redirect_uris": [self._callback.url],
            "scope": self._options.get("scopes"),
        }
        return OAuthClientProvider(
            self._url,
            OAuthClientMetadata.model_validate(metadata),
            storage,
            redirect_handler=self._redirect,
            callback_handler=self._callback.wait_for_code,
            client_metadata_url=self._options.get("clientMetadataUrl"),
        )

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
        await self._check.check(url)
        await self._callback.listen()
        self._on_sign_in(url)

    def close(self) -> None:
        self._callback.close()
