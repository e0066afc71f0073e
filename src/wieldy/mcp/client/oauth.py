"""Signing in to a server: the SDK does the protocol; tokens are kept for the next time, and a person is shown where to go."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from wieldy.core.state_dirs import config_home
from wieldy.core.threads import in_thread
from wieldy.files.writing.locked_update import update_locked
from wieldy.mcp.client.config import ServerConfig

FILE_NAME = "mcp-tokens.json"
SIGN_IN_SECONDS = 300.0
PAGE = b"<!doctype html><title>wieldy</title><p>You are signed in. You can close this page.</p>"


class Tokens:
    """What a server has given us, by its URL, in a file that only its owner can read. The SDK's token storage."""

    def __init__(self, url: str, given: Mapping[str, Any], env: Mapping[str, str] = os.environ) -> None:
        self._url = url
        self._given = given
        self._file: Path = config_home(env) / FILE_NAME

    async def get_tokens(self) -> Any:
        """The tokens of the last time, if any."""
        from mcp.shared.auth import OAuthToken

        return self._model(OAuthToken, (await in_thread(self._record)).get("tokens"))

    async def set_tokens(self, tokens: Any) -> None:
        """Keep tokens."""
        await in_thread(self._keep, "tokens", tokens.model_dump(mode="json", exclude_none=True))

    async def get_client_info(self) -> Any:
        """How we are registered: as configured, else as the server registered us."""
        from mcp.shared.auth import OAuthClientInformationFull

        if self._given:
            return OAuthClientInformationFull.model_validate(self._given)
        return self._model(OAuthClientInformationFull, (await in_thread(self._record)).get("client"))

    async def set_client_info(self, client_info: Any) -> None:
        """Keep how we are registered."""
        await in_thread(self._keep, "client", client_info.model_dump(mode="json", exclude_none=True))

    def _model(self, kind: Any, value: Any) -> Any:
        try:
            return None if value is None else kind.model_validate(value)
        except ValueError:
            return None

    def _record(self) -> dict[str, Any]:
        try:
            found = _parsed(self._file.read_text("utf-8")).get(self._url)
        except (OSError, UnicodeDecodeError):
            return {}
        return found if isinstance(found, dict) else {}

    def _keep(self, key: str, value: Any) -> None:
        def update(text: str | None) -> str:
            records = _parsed(text or "{}")
            held = records.get(self._url)
            records[self._url] = {**(held if isinstance(held, dict) else {}), key: value}
            return json.dumps(records, indent=1, sort_keys=True) + "\n"

        update_locked(self._file, update)


class Callback:
    """Waits on a loopback port for the browser to come back with a code. The port is kept from the start, and open only then."""

    def __init__(self, port: int) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("127.0.0.1", port))
        self.address = f"http://127.0.0.1:{self._socket.getsockname()[1]}/callback"
        self._server: asyncio.Server | None = None
        self._came: asyncio.Future[dict[str, str]] | None = None

    async def listen(self) -> None:
        """Open the port."""
        if self._server is None:
            self._came = asyncio.get_running_loop().create_future()
            self._server = await asyncio.start_server(self._visited, sock=self._socket)

    async def code(self) -> Any:
        """What the browser brought."""
        from mcp.client.auth import AuthorizationCodeResult

        assert self._came is not None
        async with asyncio.timeout(SIGN_IN_SECONDS):
            brought = await self._came
        self._came = asyncio.get_running_loop().create_future()
        return AuthorizationCodeResult(code=brought["code"], state=brought.get("state"), iss=brought.get("iss"))

    def close(self) -> None:
        """Listen no longer."""
        if self._server is not None:
            self._server.close()
        self._socket.close()

    async def _visited(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(10):
                line = (await reader.readline()).decode("latin-1")
            query = parse_qs(urlsplit(line.split(" ")[1] if " " in line else "").query)
            found = {name: values[0] for name, values in query.items()}
            status = b"200 OK" if "code" in found else b"400 Bad Request"
            head = b"HTTP/1.1 %s\r\nContent-Type: text/html\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
            writer.write(head % (status, len(PAGE)) + PAGE)
            await writer.drain()
            if self._came is None or self._came.done():
                return
            if "code" in found:
                self._came.set_result(found)
            elif "error" in found:
                self._came.set_exception(ConnectionRefusedError(f"the sign-in was refused: {found['error']}"))
        except (OSError, TimeoutError, ValueError):
            return
        finally:
            writer.close()


class SignIn:
    """The way to be let in by one server. `shown` is called with the address a person must visit."""

    def __init__(self, config: ServerConfig, env: Mapping[str, str], shown: Callable[[str], None]) -> None:
        self._config = config
        self._env = env
        self._shown = shown
        wanted = (config.oauth or {}).get("callbackPort")
        self._callback = Callback(wanted if isinstance(wanted, int) else 0)

    def provider(self) -> Any:
        """The SDK's provider, which acts only when the server asks for a sign-in."""
        from mcp.client.auth import OAuthClientProvider
        from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider
        from mcp.shared.auth import OAuthClientMetadata

        url, said = self._config.url, self._config.oauth or {}
        given = self._given(said)
        tokens = Tokens(url, given, self._env)
        if said.get("grantType") == "client_credentials":
            # A program signs in as itself: nobody is sent anywhere.
            name, secret = given.get("client_id", ""), given.get("client_secret") or ""
            return ClientCredentialsOAuthProvider(url, tokens, name, secret, scope=said.get("scopes"))
        metadata = {"client_name": "wieldy", "redirect_uris": [self._callback.address], "scope": said.get("scopes")}
        return OAuthClientProvider(
            url,
            OAuthClientMetadata.model_validate(metadata),
            tokens,
            redirect_handler=self._redirected,
            callback_handler=self._callback.code,
            client_metadata_url=said.get("clientMetadataUrl"),
        )

    def _given(self, said: Mapping[str, Any]) -> dict[str, Any]:
        """How we are registered, where the settings say it."""
        if not said.get("clientId"):
            return {}
        secret = said.get("clientSecret")
        return {
            "client_id": said["clientId"],
            "client_secret": secret,
            "redirect_uris": [self._callback.address],
            "token_endpoint_auth_method": "client_secret_basic" if secret else "none",
        }

    async def _redirected(self, url: str) -> None:
        await self._callback.listen()
        self._shown(url)

    def close(self) -> None:
        """Wait for nobody any more."""
        self._callback.close()


def _parsed(text: str) -> dict[str, Any]:
    try:
        records = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return records if isinstance(records, dict) else {}
