"""The protocol over streamable HTTP, on one path of a small web server."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import json
import os
import secrets
import socket
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, MutableMapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, cast
from urllib.parse import urlsplit

from wieldy.core.errors import SessionError
from wieldy.mcp.server.client_session import SESSION_HEADER, ManyRooms
from wieldy.mcp.server.server import Service

if TYPE_CHECKING:
    import uvicorn


Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

LOOPBACK = ("localhost", "127.0.0.1", "::1")
SHORTEST_TOKEN = 16


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @property
    def is_everywhere(self) -> bool:
        """Whether it stands for every address of the machine."""
        return self.host in ("0.0.0.0", "::")

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def address(text: str) -> Address:
    """`HOST:PORT`, `[::1]:PORT`, `:PORT` or `PORT`; without a host it is this machine alone."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") or "127.0.0.1"
    if not (len(port) < 6 and port.isascii() and port.isdigit() and int(port) < 65536):
        raise ValueError(f"`{text}` is not an address: write HOST:PORT, as in 127.0.0.1:8931")
    return Address(host, int(port))


class Guard:
    """Stands before the application: a name made to point here (DNS rebinding) and a page from elsewhere are turned away."""

    def __init__(self, app: App, where: Address, *, token: str | None = None, hosts: Iterable[str] = ()) -> None:
        self._app = app
        self._token = token
        self._names = frozenset(name.lower() for name in (*LOOPBACK, where.host, *hosts))
        # Where every address is listened on, the machine's names are not known; then the token alone keeps strangers out.
        self._any_name = where.is_everywhere and token is not None and not tuple(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request pass, or answer why not."""
        if scope["type"] == "http" and (refusal := self.refusal(_headers(scope))) is not None:
            await _answer(send, *refusal)
            return
        await self._app(scope, receive, send)

    def refusal(self, headers: dict[str, str]) -> tuple[int, str] | None:
        """The status and the reason with which a request is turned away; None for a welcome one."""
        if not self._any_name and _name(f"//{headers.get('host', '')}") not in self._names:
            return 403, "this host name is not served here; start the server with --allow-host to add one"
        origin = headers.get("origin")
        if origin is not None and _name(origin) not in self._names:
            return 403, "web pages of this origin may not call this server"
        if self._token is not None and not self._knows(headers.get("authorization", "")):
            return 401, "a bearer token is needed: send `Authorization: Bearer TOKEN`"
        return None

    def _knows(self, authorization: str) -> bool:
        kind, _, given = authorization.partition(" ")
        assert self._token is not None
        return kind.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), self._token.encode())


def _headers(scope: Scope) -> dict[str, str]:
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}


def _name(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


async def _answer(send: Send, status: int, text: str) -> None:
    body = json.dumps({"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": text}}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


MOST_EVENTS = 512
MOST_CHARS = 8 << 20


@dataclass(frozen=True, slots=True)
class Kept:
    """One message as it was sent; None is the mark with which a stream begins."""

    id: str
    stream: str
    message: Any
    size: int


class Record:
    """The last messages of one session, within bounds."""

    def __init__(self, most_events: int = MOST_EVENTS, most_chars: int = MOST_CHARS) -> None:
        self._key = secrets.token_hex(4)
        self._count = 0
        self._events: deque[Kept] = deque()
        self._chars = 0
        self._most_events = most_events
        self._most_chars = most_chars

    def add(self, stream: str, message: Any) -> str:
        """Keep a message; the oldest are dropped. Returns its id."""
        self._count += 1
        kept = Kept(f"{self._key}-{self._count}", stream, message, weight(message))
        self._events.append(kept)
        self._chars += kept.size
        while len(self._events) > self._most_events or (self._chars > self._most_chars and len(self._events) > 1):
            self._chars -= self._events.popleft().size
        return kept.id

    def after(self, event: str) -> tuple[str, list[Kept]] | None:
        """The stream of an event and what followed on it; None where the event is not known, or no longer."""
        found = next((kept for kept in self._events if kept.id == event), None)
        if found is None:
            return None
        number = int(event.rpartition("-")[2])
        following = [
            kept
            for kept in self._events
            if kept.stream == found.stream and kept.message is not None and int(kept.id.rpartition("-")[2]) > number
        ]
        return found.stream, following


class Replay:
    """The records of all sessions, and the SDK's event store: it is asked in the context of some session's request."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._records: OrderedDict[str, Record] = OrderedDict()
        self._current: ContextVar[Record | None] = ContextVar("record", default=None)

    @contextmanager
    def serving(self, session: str | None) -> Iterator[Record]:
        """Serve a request of a session, or one that may open a session; then `belongs` says which."""
        record = self._records.get(session) if session is not None else None
        record = record or Record()
        token = self._current.set(record)
        try:
            yield record
        finally:
            self._current.reset(token)

    def belongs(self, record: Record, session: str) -> None:
        """A session was opened, and this is its record."""
        if session not in self._records:
            self._records[session] = record
            while len(self._records) > self._most:
                self._records.popitem(last=False)

    def forget(self, session: str) -> None:
        """A session has ended."""
        self._records.pop(session, None)

    async def store_event(self, stream_id: str, message: Any) -> str:
        """Keep a message of the session that is being served."""
        record = self._current.get()
        return record.add(stream_id, message) if record is not None else secrets.token_hex(8)

    async def replay_events_after(self, last_event_id: str, send: Callable[[Any], Awaitable[None]]) -> str | None:
        """Send again what followed an event on its stream; returns the stream."""
        from mcp.server.streamable_http import EventMessage

        record = self._current.get()
        found = record.after(last_event_id) if record is not None else None
        if found is None:
            return None
        stream, following = found
        for kept in following:
            await send(EventMessage(kept.message, kept.id))
        return stream


def weight(value: Any) -> int:
    """About how many characters a message holds."""
    total, waiting = 0, [getattr(value, "result", None) or getattr(value, "params", None)]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            total += len(item)
        elif isinstance(item, dict):
            waiting += item.values()
            total += 16 * len(item)
        elif isinstance(item, list):
            waiting += item
    return total + 100


PATH = "/mcp"
LARGEST_BODY = 128 * 1024 * 1024
GRACE_SECONDS = 2
# A session costs little until it calls something; clients that never say goodbye leave many behind.
SESSIONS_FOR_A_ROOM = 16
RETRY_MILLISECONDS = 1_000
BAD_REQUEST = 400


class Presence:
    """Tells rooms and records which session a request is of: which are under way, an open stream included, and which ended."""

    def __init__(self, app: App, rooms: ManyRooms, replay: Replay) -> None:
        self._app = app
        self._rooms = rooms
        self._replay = replay

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request of a session."""
        name = SESSION_HEADER.encode()
        session = next(
            (value.decode("latin-1") for key, value in scope.get("headers", ()) if key.lower() == name), None
        )
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        with self._replay.serving(session) as record:
            if session is None:
                await self._app(scope, receive, self._watching(send, record))
                return
            with self._rooms.held(session):
                await self._app(scope, receive, send)
        if scope["method"] == "DELETE":
            self._rooms.leave(session)
            self._replay.forget(session)

    def _watching(self, send: Send, record: Record) -> Send:
        """Notice in the answer to a request which session it has opened."""

        async def watched(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start" and message["status"] < BAD_REQUEST:
                for key, value in message.get("headers", ()):
                    if key.lower() == SESSION_HEADER.encode():
                        self._replay.belongs(record, value.decode("latin-1"))
            await send(message)

        return watched


def application(rooms: ManyRooms, where: Address, *, token: str | None = None, hosts: Iterable[str] = ()) -> App:
    """The web application: guard, presence, protocol."""
    from mcp.server.transport_security import TransportSecuritySettings

    sessions = rooms.most * SESSIONS_FOR_A_ROOM
    replay = Replay(sessions)
    inner = (
        Service(rooms)
        .server()
        .streamable_http_app(
            streamable_http_path=PATH,
            max_request_body_size=LARGEST_BODY,
            session_idle_timeout=rooms.idle_seconds,
            max_sessions=sessions,
            event_store=cast(Any, replay),
            retry_interval=RETRY_MILLISECONDS,
            # The guard has looked already, and knows the names that were added.
            transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        )
    )
    return Guard(Presence(inner, rooms, replay), where, token=token, hosts=hosts)


async def serve_http(
    rooms: ManyRooms,
    where: Address,
    told: asyncio.Event,
    *,
    token: str | None = None,
    hosts: Iterable[str] = (),
    ready: Callable[[Address], None] = lambda where: None,
) -> None:
    """Serve until told to stop. `ready` learns the address once connections are taken; port 0 finds a free one."""
    import anyio

    with _listening(where) as listener:
        found = Address(where.host, listener.getsockname()[1])
        server = _web_server(application(rooms, found, token=token, hosts=hosts))
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(rooms.keep)
                group.start_soon(_stop_when, told, server)
                ready(found)
                await server.serve(sockets=[listener])
                group.cancel_scope.cancel()
        finally:
            await rooms.aclose()


def _listening(where: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in where.host else socket.AF_INET
    try:
        return socket.create_server((where.host, where.port), family=family, backlog=128)
    except OSError as error:
        said = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
        raise SessionError(f"cannot listen on {where}: {said}") from error


async def _stop_when(told: asyncio.Event, server: uvicorn.Server) -> None:
    await told.wait()
    server.should_exit = True


def _web_server(app: Any) -> uvicorn.Server:
    import uvicorn

    class Quiet(uvicorn.Server):
        """Leaves signals to us: its own handling would end the process before anything is closed."""

        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield

    return Quiet(
        uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="on",
            ws="none",
            server_header=False,
            timeout_graceful_shutdown=GRACE_SECONDS,
        )
    )
