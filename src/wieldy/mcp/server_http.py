"""The protocol over streamable HTTP, on one path of a small web server."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from wieldy.core.failure import SessionError
from wieldy.mcp.server import Service
from wieldy.mcp.server_guard import Address, App, Guard, Receive, Scope, Send
from wieldy.mcp.server_replay import Record, Replay
from wieldy.mcp.server_rooms import SESSION_HEADER, ManyRooms

if TYPE_CHECKING:
    import uvicorn

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
