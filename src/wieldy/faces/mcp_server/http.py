"""The MCP server over streamable HTTP, on one path of a small web server."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import json
import os
import socket
from collections.abc import Awaitable, Callable, Iterable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any, TypeAlias, cast
from urllib.parse import urlsplit

import anyio
import uvicorn
from mcp.server.transport_security import TransportSecuritySettings
from msgspec import Struct

from wieldy.core.errors import SessionError
from wieldy.faces.mcp_server.event_store import SessionEvents, SessionEventStore
from wieldy.faces.mcp_server.server import RequestHandlers
from wieldy.faces.mcp_server.session_pool import SESSION_HEADER, SessionPool

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

PATH = "/mcp"
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
MAX_BODY_BYTES = 128 * 1024 * 1024
MIN_TOKEN_CHARS = 16
SHUTDOWN_SECONDS = 2
RETRY_MILLISECONDS = 1_000
# An HTTP session costs little until it calls a tool, and clients that never close theirs leave many behind.
HTTP_SESSIONS_PER_TOOLBOX = 16
BAD_REQUEST, UNAUTHORIZED, FORBIDDEN = 400, 401, 403


class Address(Struct, frozen=True):
    """A host and port to listen on."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @property
    def is_wildcard(self) -> bool:
        """Whether it stands for every address of the machine."""
        return self.host in ("0.0.0.0", "::")

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """Parse `HOST:PORT`, `[::1]:PORT`, `:PORT` or `PORT`; the default host is 127.0.0.1."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") or "127.0.0.1"
    if not (len(port) < 6 and port.isascii() and port.isdigit() and int(port) < 65536):
        raise ValueError(f"`{text}` is not an address: write HOST:PORT, as in 127.0.0.1:8931")
    return Address(host, int(port))


def check_token(address: Address, token: str | None, *, required: bool) -> str | None:
    """Return why it would be unsafe to listen on an address with this token; None if it is safe.

    Without `required`, a loopback address needs none.
    """
    if token is None:
        if not address.is_loopback:
            return (
                f"{address.host} can be reached by other machines: set a token of at least {MIN_TOKEN_CHARS} characters, "
                "or listen on 127.0.0.1"
            )
        return f"a token of at least {MIN_TOKEN_CHARS} characters is needed" if required else None
    if len(token) < MIN_TOKEN_CHARS or not token.isascii() or not token.isprintable() or " " in token:
        return f"the token must be at least {MIN_TOKEN_CHARS} plain characters without spaces"
    return None


class AccessGuard:
    """ASGI middleware that rejects foreign host names (DNS rebinding), foreign origins and missing tokens."""

    def __init__(self, app: App, address: Address, *, token: str | None = None, hosts: Iterable[str] = ()) -> None:
        self._app = app
        self._token = token
        self._names = frozenset(name.lower() for name in (*LOOPBACK_NAMES, address.host, *hosts))
        # On a wildcard address the machine's names are not known: the token alone protects.
        self._accept_any_name = address.is_wildcard and token is not None and not tuple(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
            if (rejection := self.reject(headers)) is not None:
                await _send_error(send, *rejection)
                return
        await self._app(scope, receive, send)

    def reject(self, headers: dict[str, str]) -> tuple[int, str] | None:
        """Return the status and reason with which a request is rejected; None to accept it."""
        if not self._accept_any_name and _host_name(f"//{headers.get('host', '')}") not in self._names:
            return FORBIDDEN, "this host name is not served here; start the server with --allow-host to add one"
        origin = headers.get("origin")
        if origin is not None and _host_name(origin) not in self._names:
            return FORBIDDEN, "web pages of this origin may not call this server"
        if self._token is not None:
            scheme, _, token = headers.get("authorization", "").partition(" ")
            if scheme.lower() != "bearer" or not hmac.compare_digest(token.strip().encode(), self._token.encode()):
                return UNAUTHORIZED, "a bearer token is needed: send `Authorization: Bearer TOKEN`"
        return None


def _host_name(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


async def _send_error(send: Send, status: int, text: str) -> None:
    body = json.dumps({"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": text}}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if status == UNAUTHORIZED:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class SessionTracker:
    """ASGI middleware that tells the pool and the event store which session a request belongs to, and which have ended."""

    def __init__(self, app: App, pool: SessionPool, event_store: SessionEventStore) -> None:
        self._app = app
        self._pool = pool
        self._event_store = event_store

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        session = _session_id(scope.get("headers", ()))
        with self._event_store.use_session(session) as events:
            if session is None:
                await self._app(scope, receive, self._detect_session(send, events))
                return
            with self._pool.keep_alive(session):
                await self._app(scope, receive, send)
        if scope["method"] == "DELETE":
            self._pool.remove(session)
            self._event_store.remove_session(session)

    def _detect_session(self, send: Send, events: SessionEvents) -> Send:
        """Read from the response which session the request opened."""

        async def wrapped(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start" and message["status"] < BAD_REQUEST:
                session = _session_id(message.get("headers", ()))
                if session is not None:
                    self._event_store.add_session(session, events)
            await send(message)

        return wrapped


def _session_id(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    name = SESSION_HEADER.encode()
    return next((value.decode("latin-1") for key, value in headers if key.lower() == name), None)


def create_app(pool: SessionPool, address: Address, *, token: str | None = None, hosts: Iterable[str] = ()) -> App:
    """Return the ASGI application: guard, session tracker, and the SDK's streamable HTTP."""
    max_sessions = pool.max_sessions * HTTP_SESSIONS_PER_TOOLBOX
    event_store = SessionEventStore(max_sessions)
    app = (
        RequestHandlers(pool)
        .create_server()
        .streamable_http_app(
            streamable_http_path=PATH,
            max_request_body_size=MAX_BODY_BYTES,
            session_idle_timeout=pool.idle_seconds,
            max_sessions=max_sessions,
            event_store=cast(Any, event_store),
            retry_interval=RETRY_MILLISECONDS,
            # AccessGuard checks this, and knows the names of --allow-host.
            transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        )
    )
    return AccessGuard(SessionTracker(app, pool, event_store), address, token=token, hosts=hosts)


async def serve_http(
    pool: SessionPool,
    address: Address,
    stop: asyncio.Event,
    *,
    token: str | None = None,
    hosts: Iterable[str] = (),
    on_ready: Callable[[Address], None] = lambda address: None,
) -> None:
    """Serve until `stop` is set. Port 0 selects a free one; `on_ready` gets the address once connections are accepted."""
    with _listen(address) as listener:
        bound = Address(address.host, listener.getsockname()[1])
        server = _create_web_server(create_app(pool, bound, token=token, hosts=hosts))
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(pool.close_removed)
                group.start_soon(_stop_when, stop, server)
                on_ready(bound)
                await server.serve(sockets=[listener])
                group.cancel_scope.cancel()
        finally:
            await pool.aclose()


def _listen(address: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        return socket.create_server((address.host, address.port), family=family, backlog=128)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
        raise SessionError(f"cannot listen on {address}: {reason}") from error


async def _stop_when(stop: asyncio.Event, server: uvicorn.Server) -> None:
    await stop.wait()
    server.should_exit = True


class SignalFreeServer(uvicorn.Server):
    """Leaves signals to us: uvicorn's handlers would end the process before everything is closed."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _create_web_server(app: Any) -> uvicorn.Server:
    return SignalFreeServer(
        uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="on",
            ws="none",
            server_header=False,
            timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        )
    )
