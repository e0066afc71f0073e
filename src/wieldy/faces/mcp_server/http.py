"""The streamable HTTP transport: its address checks, a pool of sessions, and the events that a client may resume from."""

from __future__ import annotations

import asyncio
import hmac
import json
import os
import secrets
import socket
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, MutableMapping
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, TypeAlias, cast
from urllib.parse import urlsplit

import anyio
import mcp_types as types
import uvicorn
from mcp.server.streamable_http import EventMessage
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from msgspec import Struct
from uvicorn.protocols.http.h11_impl import H11Protocol

from wieldy.core.errors import SessionError
from wieldy.core.logs import log
from wieldy.faces.mcp_server.elicitation import Context
from wieldy.faces.mcp_server.server import MAX_CALLS, ClientSession, MakeToolbox, RequestHandlers
from wieldy.web.address_policy import LOOPBACK_NAMES, is_loopback

MAX_EVENTS = 512
MAX_CHARS = 8 << 20


class StoredEvent(Struct, frozen=True):
    """A message as it was sent; None is the priming event with which a stream begins."""

    id: str
    number: int
    stream: str
    message: Any
    size: int


class SessionEvents:
    """The last messages of one session, limited in number and size."""

    def __init__(self, max_events: int = MAX_EVENTS, max_chars: int = MAX_CHARS) -> None:
        self._prefix = secrets.token_hex(4)
        self._count = 0
        self._events: deque[StoredEvent] = deque()
        self._chars = 0
        self._max_events = max_events
        self._max_chars = max_chars

    def add(self, stream: str, message: Any) -> str:
        """Store a message, drop the oldest beyond the limits, and return the event id."""
        self._count += 1
        event = StoredEvent(f"{self._prefix}-{self._count}", self._count, stream, message, estimate_chars(message))
        self._events.append(event)
        self._chars += event.size
        while len(self._events) > self._max_events or (self._chars > self._max_chars and len(self._events) > 1):
            self._chars -= self._events.popleft().size
        return event.id

    def after(self, event_id: str) -> tuple[str, list[StoredEvent]] | None:
        """Return the stream of an event and the messages after it on that stream; None for an unknown event."""
        last = next((event for event in self._events if event.id == event_id), None)
        if last is None:
            return None
        return last.stream, [
            event
            for event in self._events
            if event.stream == last.stream and event.message is not None and event.number > last.number
        ]


class SessionEventStore:
    """The SDK's event store, one record per session.

    The SDK names a stream by its request id, and every session counts from one: a common record would replay the messages of one
    client to another. So the session of the request that is being served is kept in the context.
    """

    def __init__(self, max_sessions: int) -> None:
        self._max_sessions = max_sessions
        self._sessions: OrderedDict[str, SessionEvents] = OrderedDict()
        self._current: ContextVar[SessionEvents | None] = ContextVar("session_events", default=None)

    @contextmanager
    def use_session(self, session: str | None) -> Iterator[SessionEvents]:
        """Serve a request of a session, or one that may open a session: then call `add_session`."""
        events = self._sessions.get(session) if session is not None else None
        events = events or SessionEvents()
        token = self._current.set(events)
        try:
            yield events
        finally:
            self._current.reset(token)

    def add_session(self, session: str, events: SessionEvents) -> None:
        if session not in self._sessions:
            self._sessions[session] = events
            while len(self._sessions) > self._max_sessions:
                self._sessions.popitem(last=False)

    def remove_session(self, session: str) -> None:
        self._sessions.pop(session, None)

    async def store_event(self, stream_id: str, message: Any) -> str:
        """Store a message of the session that is being served."""
        events = self._current.get()
        return events.add(stream_id, message) if events is not None else secrets.token_hex(8)

    async def replay_events_after(self, last_event_id: str, send: Callable[[Any], Awaitable[None]]) -> str | None:
        """Send the messages after an event again; return their stream."""
        events = self._current.get()
        replay = events.after(last_event_id) if events is not None else None
        if replay is None:
            return None
        stream, missed = replay
        for event in missed:
            await send(EventMessage(event.message, event.id))
        return stream


def estimate_chars(message: Any) -> int:
    """Estimate how many characters a message holds."""
    total, queue = 0, [getattr(message, "result", None) or getattr(message, "params", None)]
    while queue:
        item = queue.pop()
        if isinstance(item, str):
            total += len(item)
        elif isinstance(item, dict):
            queue += item.values()
            total += 16 * len(item)
        elif isinstance(item, list):
            queue += item
    return total + 100


MAX_SESSIONS = 64
IDLE_SECONDS = 1800.0
SESSION_HEADER = "mcp-session-id"


class _PoolEntry:
    def __init__(self, session: ClientSession) -> None:
        self.session = session
        self.requests = 0
        self.idle_timer: asyncio.TimerHandle | None = None


class SessionPool:
    """Client sessions by key: the HTTP session, or the client's name in protocol versions without sessions."""

    def __init__(
        self, make_toolbox: MakeToolbox, *, max_sessions: int = MAX_SESSIONS, idle_seconds: float = IDLE_SECONDS
    ) -> None:
        self._make_toolbox = make_toolbox
        self._slots = asyncio.Semaphore(MAX_CALLS)
        self.max_sessions = max_sessions
        self.idle_seconds = idle_seconds
        self._entries: OrderedDict[str, _PoolEntry] = OrderedDict()  # least recently used first
        self._removed: asyncio.Queue[ClientSession] = asyncio.Queue()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    @asynccontextmanager
    async def acquire(self, ctx: Context) -> AsyncIterator[ClientSession]:
        """Yield the session of the client that sent a request, created on its first request."""
        key = session_key(ctx)
        if key not in self._entries:
            self._make_room()
            self._entries[key] = _PoolEntry(ClientSession(self._make_toolbox, self._slots))
        with self.keep_alive(key):
            session = self._entries[key].session
            await session.open()
            yield session

    @contextmanager
    def keep_alive(self, key: str) -> Iterator[None]:
        """Keep a session, if it exists, from being closed as idle."""
        if (entry := self._entries.get(key)) is None:
            yield
            return
        self._entries.move_to_end(key)
        entry.requests += 1
        if entry.idle_timer is not None:
            entry.idle_timer.cancel()
        try:
            yield
        finally:
            entry.requests -= 1
            if not entry.requests and self._entries.get(key) is entry:
                loop = asyncio.get_running_loop()
                entry.idle_timer = loop.call_later(self.idle_seconds, self.remove, key)

    def remove(self, key: str) -> None:
        """Remove a session; `close_removed` closes it."""
        if (entry := self._entries.pop(key, None)) is not None:
            if entry.idle_timer is not None:
                entry.idle_timer.cancel()
            self._removed.put_nowait(entry.session)

    def _make_room(self) -> None:
        if len(self._entries) < self.max_sessions:
            return
        longest_idle = next((key for key, entry in self._entries.items() if not entry.requests), None)
        if longest_idle is None:
            text = f"all {self.max_sessions} sessions of this server are busy; try again later"
            raise MCPError(types.INTERNAL_ERROR, text)
        self.remove(longest_idle)

    async def close_removed(self) -> None:
        """Close removed sessions, forever."""
        while True:
            session = await self._removed.get()
            with anyio.CancelScope(shield=True):
                await _close(session)

    async def aclose(self) -> None:
        """Close every session."""
        for key in list(self._entries):
            self.remove(key)
        while not self._removed.empty():
            await _close(self._removed.get_nowait())


async def _close(session: ClientSession) -> None:
    """Close a session. One that cannot be closed, such as on a full disk, must not end the others."""
    try:
        await session.aclose()
    except Exception as error:
        log.error("a session of the MCP server could not be closed: %s", error)


def session_key(ctx: Context) -> str:
    """Return what tells clients apart."""
    headers = getattr(ctx.request, "headers", {})
    # Protocol versions without sessions ignore the header, which is then not verified.
    if ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS and (session := headers.get(SESSION_HEADER)):
        return http_session_key(str(session))
    client = ctx.session.client_params
    return f"client {client.client_info.name}" if client else "client"


def http_session_key(session: str) -> str:
    """The key of an HTTP session; no client can choose a name that is one."""
    return f"session {session}"


Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

PATH = "/mcp"
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
        return is_loopback(self.host)

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
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ]
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
            statuses: list[int] = []

            async def note_status(message: MutableMapping[str, Any]) -> None:
                if message["type"] == "http.response.start":
                    statuses.append(message["status"])
                await send(message)

            with self._pool.keep_alive(http_session_key(session)):
                await self._app(scope, receive, note_status)
        if scope["method"] == "DELETE" and statuses and statuses[0] < BAD_REQUEST:
            self._pool.remove(http_session_key(session))
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
    limits: ConnectionLimits | None = None,
) -> None:
    """Serve until `stop` is set. Port 0 selects a free one; `on_ready` gets the address once connections are accepted."""
    with _listen(address) as listener:
        bound = Address(address.host, listener.getsockname()[1])
        server = _create_web_server(create_app(pool, bound, token=token, hosts=hosts), limits or ConnectionLimits())
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


class ConnectionLimits(Struct, frozen=True):
    """What all connections of a server may take together. The SDK's client keeps 2 and sends a request within a millisecond."""

    connections: int = 500  # below the 1024 descriptors that a process usually has
    waiting: int = 100  # for the headers of a request; and as many for the rest of its body
    header_seconds: float = 10.0
    body_seconds: float = 120.0  # for 128 MiB: 9 Mbit/s
    request_bytes: int = 512 << 20  # of all requests that have no answer yet


class WaitingConnections:
    """The connections that wait for a part of a request, oldest first.

    Each has a deadline, and beyond a number the oldest is closed.
    """

    def __init__(self, seconds: float, limit: int) -> None:
        self._seconds = seconds
        self._limit = limit
        self._timers: dict[TimedProtocol, asyncio.TimerHandle] = {}

    def add(self, connection: TimedProtocol) -> None:
        if connection in self._timers:
            return
        while len(self._timers) >= self._limit:
            self.end_oldest()
        self._timers[connection] = connection.loop.call_later(self._seconds, connection.end)

    def remove(self, connection: TimedProtocol) -> None:
        if (timer := self._timers.pop(connection, None)) is not None:
            timer.cancel()

    def end_oldest(self) -> bool:
        oldest = next(iter(self._timers), None)
        if oldest is not None:
            oldest.end()
        return oldest is not None


class OpenConnections:
    """All connections of a server. Those that have sent no whole request give way to others."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self._limits = limits
        self.without_headers = WaitingConnections(limits.header_seconds, limits.waiting)
        self.without_body = WaitingConnections(limits.body_seconds, limits.waiting)
        self._sizes: dict[TimedProtocol, int] = {}  # bytes of the request that has no answer yet
        self._total = 0

    def admit(self, connection: TimedProtocol) -> bool:
        """Take a new connection; false where there are too many that have a request."""
        while len(self._sizes) >= self._limits.connections:
            if not (self.without_headers.end_oldest() or self.without_body.end_oldest()):
                return False
        self._sizes[connection] = 0
        return True

    def add_bytes(self, connection: TimedProtocol, count: int) -> None:
        """Count what a connection has sent. Beyond the bound, the bodies that are on their way longest are dropped."""
        if connection in self._sizes:
            self._sizes[connection] += count
            self._total += count
        while self._total > self._limits.request_bytes and self.without_body.end_oldest():
            pass

    def clear_bytes(self, connection: TimedProtocol) -> None:
        self._total -= self._sizes.get(connection, 0)
        if connection in self._sizes:
            self._sizes[connection] = 0

    def remove(self, connection: TimedProtocol) -> None:
        self.without_headers.remove(connection)
        self.without_body.remove(connection)
        self._total -= self._sizes.pop(connection, 0)


BUSY = "this server has too many connections; try again later"


class TimedProtocol(H11Protocol):
    """Uvicorn's protocol with deadlines for each request; uvicorn has one for idle connections only."""

    def __init__(self, all_connections: OpenConnections, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._all = all_connections

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self._all.admit(self):
            self._all.without_headers.add(self)
            return
        head = f"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\nContent-Length: {len(BUSY)}\r\n"
        transport.write(f"{head}Connection: close\r\n\r\n{BUSY}".encode())
        transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._all.remove(self)
        super().connection_lost(exc)

    def end(self) -> None:
        """Close the connection, whose request has not come in time or takes the place of others."""
        self._all.remove(self)
        log.info("closed a connection of the MCP server: it has sent no whole request")
        self.transport.close()

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        super().data_received(data)
        self._all.add_bytes(self, len(data))

    def handle_events(self) -> None:
        super().handle_events()
        is_answering = self.cycle is not None and not self.cycle.response_complete
        if self.transport.is_closing():
            return
        if not is_answering:
            self._all.without_headers.add(self)
            return
        self._all.without_headers.remove(self)
        if self.cycle.more_body:
            self._all.without_body.add(self)
        else:
            self._all.without_body.remove(self)

    def on_response_complete(self) -> None:
        self._all.without_body.remove(self)
        self._all.clear_bytes(self)
        super().on_response_complete()


def _create_web_server(app: Any, limits: ConnectionLimits) -> uvicorn.Server:
    return SignalFreeServer(
        uvicorn.Config(
            app,
            http=cast(Any, partial(TimedProtocol, OpenConnections(limits))),
            log_config=None,
            access_log=False,
            lifespan="on",
            ws="none",
            server_header=False,
            timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        )
    )
