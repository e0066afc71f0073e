"""HTTP to a model: one small client over asyncio streams, h11 for the protocol, connections kept alive.

Proxies come from the usual variables, extra certificate authorities from `SSL_CERT_FILE` or `WIELDY_CA_FILE`. A TLS context
is made only for https, and once. Nothing here knows what a model is.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, urlsplit

from wieldy.core.failure import WieldyError
from wieldy.providers.proxy import Proxy, ProxyProblem, proxy_for

if TYPE_CHECKING:
    import h11

CONNECT_SECONDS = 30.0
IDLE_SECONDS = 300.0
FAREWELL_SECONDS = 0.02
READ_BYTES = 1 << 16
MOST_IDLE = 8


class HttpFailure(WieldyError):
    """The server could not be reached, or broke off; one line says where and how."""


class Hopeless(HttpFailure):
    """Asking again will end the same way, until somebody changes something."""


class NoAnswer(HttpFailure):
    """The connection ended before a single byte of an answer: on one that was kept alive, the server had left already."""


class Connection:
    """One connection and where its protocol stands."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, state: h11.Connection) -> None:
        self.reader = reader
        self.writer = writer
        self.state = state
        self.used = False

    def close(self) -> None:
        """Drop it, without waiting for the other side."""
        self.writer.transport.abort()


class Response:
    """The head of an answer; its body is still to come. It is `whole` when its reader needs nothing more of it."""

    def __init__(self, status: int, headers: Mapping[str, str], seconds: float, connection: Connection) -> None:
        self.status = status
        self.headers = headers
        self.seconds = seconds
        self.whole = False
        self._connection = connection

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body, as it arrives. Raises `HttpFailure` when it breaks off or nothing comes for too long."""
        import h11

        while True:
            event = await _next_event(self._connection, self.seconds)
            if isinstance(event, h11.Data):
                yield bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                return
            elif isinstance(event, h11.ConnectionClosed):
                raise HttpFailure("the connection was closed in the middle of the answer")

    async def text(self, most: int = 100_000) -> str:
        """The first part of the body, as text; for error pages."""
        got = bytearray()
        with contextlib.suppress(HttpFailure):
            async for chunk in self.chunks():
                got += chunk
                if len(got) >= most:
                    break
        return bytes(got[:most]).decode("utf-8", "replace")


class Http:
    """A client of one server. `idle_seconds` bounds how long a server may stay silent."""

    def __init__(
        self, base_url: str, headers: Mapping[str, str], *, env: Mapping[str, str], idle_seconds: float = IDLE_SECONDS
    ) -> None:
        scheme = "http" if base_url.startswith(("localhost", "127.", "[::1]")) else "https"
        self.url = urlsplit(base_url if "://" in base_url else f"{scheme}://{base_url}")
        if self.url.scheme not in ("http", "https") or not self.url.hostname or not _has_port(self.url):
            raise Hopeless(f"`{base_url}` is not an http address")
        self.headers = dict(headers)
        self.idle_seconds = idle_seconds
        self._env = env
        self._idle: list[Connection] = []
        self._tls: ssl.SSLContext | None = None

    @asynccontextmanager
    async def post(self, path: str, body: bytes) -> AsyncIterator[Response]:
        """Send a JSON body and give the answer. Raises `HttpFailure`; a stale kept-alive connection is replaced once."""
        connection = await self._kept() or await self._connect()
        response: Response | None = None
        try:
            try:
                response = await self._exchange(connection, path, body)
            except NoAnswer:
                if not connection.used:
                    raise
                connection.close()
                connection = await self._connect()
                response = await self._exchange(connection, path, body)
            yield response
        finally:
            self._give_back(connection, whole=response is not None and response.whole)

    @property
    def place(self) -> str:
        """The server, for messages."""
        return self.url.netloc.rpartition("@")[2]

    async def aclose(self) -> None:
        """Close the connections that are kept."""
        while self._idle:
            self._idle.pop().close()

    async def _exchange(self, connection: Connection, path: str, body: bytes) -> Response:
        import h11

        target = (self.url.path.rstrip("/") + path) or "/"
        headers = {
            "host": self.place,
            "content-length": str(len(body)),
            "content-type": "application/json",
            **self.headers,
        }
        if (proxy := self._proxy()) is not None and self.url.scheme == "http":
            target = f"http://{self.place}{target}"
            headers |= proxy.credentials()
        request = h11.Request(method="POST", target=target, headers=list(headers.items()))
        head = connection.state.send(request) or b""
        connection.state.send_with_data_passthrough(h11.Data(data=body))
        connection.state.send(h11.EndOfMessage())
        # Nobody waits for the request to be gone: a server may refuse it before it has read it all.
        connection.writer.write(head + body)
        try:
            async with asyncio.timeout(self.idle_seconds):
                return await self._head(connection)
        except TimeoutError:
            raise HttpFailure(f"{self.place} did not answer within {self.idle_seconds:g} s") from None

    async def _head(self, connection: Connection) -> Response:
        import h11

        while True:
            event = await _next_event(connection, None)
            if isinstance(event, h11.Response):
                named = {name.decode("latin-1"): value.decode("latin-1") for name, value in event.headers}
                return Response(event.status_code, named, self.idle_seconds, connection)
            if isinstance(event, h11.ConnectionClosed):
                raise NoAnswer(f"{self.place} closed the connection without an answer")

    def _give_back(self, connection: Connection, *, whole: bool) -> None:
        import h11

        state = connection.state
        sent = state.our_state is h11.DONE and not connection.writer.transport.get_write_buffer_size()
        ended = sent and (whole or state.their_state is h11.DONE)
        if ended and state.their_state in (h11.DONE, h11.SEND_BODY) and len(self._idle) < MOST_IDLE:
            connection.used = True
            self._idle.append(connection)
        else:
            connection.close()

    async def _kept(self) -> Connection | None:
        """A connection kept alive, once the end of its last answer is in: it mostly is by now, and is not waited for long."""
        import h11

        while self._idle:
            connection = self._idle.pop()
            try:
                async with asyncio.timeout(FAREWELL_SECONDS):
                    while connection.state.their_state is h11.SEND_BODY:
                        await _next_event(connection, None)
                connection.state.start_next_cycle()
            except (TimeoutError, HttpFailure, h11.LocalProtocolError):
                connection.close()
            except BaseException:
                connection.close()
                raise
            else:
                return connection
        return None

    async def _connect(self) -> Connection:
        import h11

        try:
            proxy = self._proxy()
        except ProxyProblem as problem:
            raise Hopeless(str(problem)) from None
        near = f"the proxy {proxy.host}" if proxy else self.place
        secure = self.url.scheme == "https"
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                tls: dict[str, Any] = {"ssl": self._context()} if secure and proxy is None else {}
                host, port = (proxy.host, proxy.port) if proxy else (self.url.hostname, _port(self.url))
                reader, writer = await asyncio.open_connection(host, port, limit=1 << 20, **tls)
                if proxy is not None and secure:
                    await self._tunnel(reader, writer, proxy)
        except TimeoutError:
            raise HttpFailure(f"{self.place} did not answer within {CONNECT_SECONDS:g} s") from None
        except ssl.SSLError as error:
            raise Hopeless(
                f"{self.place}: the certificate was not accepted ({error.reason}). "
                "Set WIELDY_CA_FILE to your organisation's certificate authority."
            ) from None
        except OSError as error:
            raise HttpFailure(f"{near} cannot be reached: {error.strerror or error}") from None
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            raise HttpFailure(f"{near} does not answer like a proxy") from None
        return Connection(reader, writer, h11.Connection(h11.CLIENT))

    async def _tunnel(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, proxy: Proxy) -> None:
        there = f"{self.url.hostname}:{_port(self.url)}"
        lines = [f"CONNECT {there} HTTP/1.1", f"host: {there}", *(f"{k}: {v}" for k, v in proxy.credentials().items())]
        try:
            writer.write("\r\n".join([*lines, "", ""]).encode())
            head = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n", 1)[0].decode("latin-1")
            status = head.split(" ", 2)[1:2]
            if status != ["200"]:
                refused = Hopeless if status and status[0].startswith("4") else HttpFailure
                raise refused(f"the proxy {proxy.host} refused: {head}")
            await writer.start_tls(self._context(), server_hostname=self.url.hostname)
        except BaseException:
            writer.transport.abort()
            raise

    def _context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = ssl.create_default_context()
            extra = self._env.get("WIELDY_CA_FILE") or self._env.get("SSL_CERT_FILE")
            if extra:
                try:
                    self._tls.load_verify_locations(extra)
                except (OSError, ssl.SSLError) as error:
                    raise Hopeless(f"the certificates in {extra} cannot be read: {error}") from None
        return self._tls

    def _proxy(self) -> Proxy | None:
        return proxy_for(self.url, self._env)


def _has_port(url: SplitResult) -> bool:
    try:
        return _port(url) > 0
    except ValueError:
        return False


def _port(url: SplitResult) -> int:
    return url.port or (443 if url.scheme == "https" else 80)


async def _next_event(connection: Connection, seconds: float | None) -> Any:
    import h11

    while True:
        try:
            event = connection.state.next_event()
        except h11.RemoteProtocolError as error:
            raise HttpFailure(f"the server does not speak HTTP: {error}") from None
        if event is not h11.NEED_DATA:
            return event
        try:
            async with asyncio.timeout(seconds):
                data = await connection.reader.read(READ_BYTES)
        except TimeoutError:
            raise HttpFailure(f"nothing came from the server for {seconds:g} s") from None
        except OSError as error:
            raise NoAnswer(f"the connection broke: {error.strerror or error}") from None
        connection.state.receive_data(data)
