"""A small HTTP/1.1 client: h11 over asyncio streams, with keep-alive, TLS and HTTP proxies from the environment.

It knows neither models nor web pages. Redirects, content encodings, body size limits and overall deadlines are the caller's.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import SplitResult, unquote, urlsplit

from msgspec import Struct

from wieldy.core.errors import WieldyError
from wieldy.core.threads import in_thread

if TYPE_CHECKING:
    import h11

CONNECT_SECONDS = 30.0
IDLE_SECONDS = 300.0
DRAIN_SECONDS = 0.02
MAX_IDLE_CONNECTIONS = 8
MAX_HEADER_BYTES = 64 * 1024
READ_BYTES = 64 * 1024
LOOPBACK = ("localhost", "127.0.0.1", "::1")

Streams: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect: TypeAlias = Callable[[str, int, ssl.SSLContext | None, str], Awaitable[Streams]]
"""Opens a connection to (address, port). With a TLS context, the certificate must match the last argument, a host name."""


class HttpError(WieldyError):
    """The server could not be reached or broke off; the message is one line."""


class PermanentError(HttpError):
    """A retry would fail in the same way until the configuration is changed."""


class ConnectionRefused(HttpError):
    """Nothing listens at the address."""


class NoResponse(HttpError):
    """The connection ended before the first byte of a response."""


class ProxyError(PermanentError):
    """The environment names a proxy that cannot be used."""


class Proxy(Struct, frozen=True):
    """An HTTP proxy."""

    host: str
    port: int
    user: str = ""
    password: str = ""

    def credentials(self) -> dict[str, str]:
        if not self.user:
            return {}
        import base64

        return {"proxy-authorization": f"Basic {base64.b64encode(f'{self.user}:{self.password}'.encode()).decode()}"}


class HttpResponse:
    """Status and headers of a response whose body is still to be read.

    Set `complete` when the body holds all you need before it has ended: then its connection may be reused.
    """

    def __init__(self, status: int, reason: str, headers: Mapping[str, str], connection: HttpConnection) -> None:
        self.status = status
        self.reason = reason
        self.headers = headers
        self.idle_seconds = connection.idle_seconds
        self.complete = False
        self._connection = connection

    async def read(self) -> bytes:
        """Return the next bytes of the body, or none at its end. Raises `HttpError`."""
        import h11

        event = await self._connection.next_event_in_time()
        return bytes(event.data) if isinstance(event, h11.Data) else b""

    async def text(self, limit: int = 100_000) -> str:
        """Return the start of the body as text, up to where the connection broke if it did."""
        body = bytearray()
        with contextlib.suppress(HttpError):
            while len(body) < limit and (data := await self.read()):
                body += data
        return bytes(body[:limit]).decode("utf-8", "replace")


class HttpClient:
    """Sends requests and keeps connections alive. `idle_seconds` bounds how long a server may stay silent."""

    def __init__(
        self,
        *,
        env: Mapping[str, str],
        idle_seconds: float = IDLE_SECONDS,
        connect_seconds: float = CONNECT_SECONDS,
        connect: Connect | None = None,
    ) -> None:
        self.idle_seconds = idle_seconds
        self.connect_seconds = connect_seconds
        self.connect = connect or open_streams
        self._env = env
        self._idle: list[HttpConnection] = []
        self._tls: ssl.SSLContext | None = None

    @asynccontextmanager
    async def request(
        self,
        method: str,
        url: SplitResult,
        headers: Mapping[str, str],
        body: bytes = b"",
        *,
        addresses: Sequence[str] = (),
    ) -> AsyncIterator[HttpResponse]:
        """Send a request and give its response. Raises `HttpError`.

        With `addresses`, the first of these IP addresses that answers is connected to, without a proxy. A request on a
        connection that the server has closed meanwhile is sent again, once, on a new one.
        """
        connection = await self._idle_connection(url, addresses) or await self._connect(url, addresses)
        response: HttpResponse | None = None
        try:
            try:
                response = await connection.send(method, url, headers, body)
            except NoResponse:
                if not connection.reused:
                    raise
                connection.close()
                connection = await self._connect(url, addresses)
                response = await connection.send(method, url, headers, body)
            yield response
        finally:
            if response is not None and connection.may_be_kept(response) and len(self._idle) < MAX_IDLE_CONNECTIONS:
                self._idle.append(connection)
            else:
                connection.close()

    async def aclose(self) -> None:
        """Close the idle connections."""
        while self._idle:
            self._idle.pop().close()

    async def _idle_connection(self, url: SplitResult, addresses: Sequence[str]) -> HttpConnection | None:
        """Take a connection to the same origin whose last response has ended."""
        key = _origin(url, addresses)
        for connection in [connection for connection in reversed(self._idle) if connection.origin == key]:
            self._idle.remove(connection)
            try:
                if await connection.make_ready():
                    return connection
            except BaseException:
                connection.close()
                raise
            connection.close()
        return None

    async def _connect(self, url: SplitResult, addresses: Sequence[str]) -> HttpConnection:
        proxy = None if addresses else proxy_for(url, self._env)
        tls = await self._tls_context() if url.scheme == "https" else None
        key = _origin(url, addresses)
        if proxy is None:
            streams = await self.open(url, addresses, tls)
            return HttpConnection(streams, key, self.idle_seconds)
        streams = await self._open_by_proxy(url, proxy, tls)
        return HttpConnection(streams, key, self.idle_seconds, None if tls else proxy)

    async def open(self, url: SplitResult, addresses: Sequence[str] = (), tls: ssl.SSLContext | None = None) -> Streams:
        """Open a connection to the first of these addresses that answers, or to the host. Raises `HttpError`."""
        name, place = str(url.hostname), host_and_port(url)
        error: HttpError | None = None
        for address in addresses or (name,):
            try:
                async with self._connecting(place, place):
                    return await self.connect(address, port_of(url), tls, name)
            except PermanentError:
                raise
            except HttpError as problem:
                error = problem
        assert error is not None
        raise error

    async def _open_by_proxy(self, url: SplitResult, proxy: Proxy, tls: ssl.SSLContext | None) -> Streams:
        import h11

        async with self._connecting(f"the proxy {proxy.host}", host_and_port(url)):
            reader, writer = await self.connect(proxy.host, proxy.port, None, proxy.host)
            if tls is None:
                return reader, writer
            tunnel = HttpConnection((reader, writer), (), self.idle_seconds)
            try:
                authority = f"{_bracketed(url)}:{port_of(url)}"
                headers = {"host": authority, **proxy.credentials()}
                tunnel.write(h11.Request(method="CONNECT", target=authority, headers=list(headers.items())), b"")
                try:
                    response = await tunnel.receive_head(authority)
                except HttpError as error:
                    raise HttpError(f"the proxy {proxy.host} does not answer like a proxy: {error}") from None
                if not 200 <= response.status < 300:
                    kind = PermanentError if 400 <= response.status < 500 else HttpError
                    raise kind(f"the proxy {proxy.host} refused: {response.status} {response.reason}")
                await writer.start_tls(tls, server_hostname=str(url.hostname))
            except BaseException:
                tunnel.close()
                raise
            return reader, writer

    @asynccontextmanager
    async def _connecting(self, peer: str, place: str) -> AsyncIterator[None]:
        """Bound the time to connect, and turn what goes wrong into an `HttpError`."""
        try:
            async with asyncio.timeout(self.connect_seconds):
                yield
        except TimeoutError:
            raise HttpError(f"{place} did not answer within {self.connect_seconds:g} s") from None
        except ssl.SSLCertVerificationError as error:
            raise PermanentError(
                f"{place}: the certificate was not accepted ({error.verify_message}). "
                "Set WIELDY_CA_FILE to your organization's certificate authority."
            ) from None
        except ssl.SSLError as error:
            raise PermanentError(f"{place}: no TLS connection can be made ({error.reason or error})") from None
        except OSError as error:
            if _is_refused(error):
                message = f"{peer} cannot be reached: the connection was refused, nothing listens there"
                raise ConnectionRefused(message) from None
            raise HttpError(f"{peer} cannot be reached: {error.strerror or error}") from None

    async def _tls_context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = await in_thread(tls_context, self._env)
        return self._tls


class HttpConnection:
    """One connection and the state of HTTP on it. `proxy` is set where it forwards plain requests."""

    def __init__(
        self, streams: Streams, origin: tuple[Any, ...], idle_seconds: float, proxy: Proxy | None = None
    ) -> None:
        import h11

        self.origin = origin
        self.idle_seconds = idle_seconds
        self.reused = False
        self._reader, self._writer = streams
        self._proxy = proxy
        self._protocol = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEADER_BYTES)
        self._has_received = False
        self._is_closed_by_peer = False
        self._waiting_since: float | None = None
        self._idle_timer: asyncio.TimerHandle | None = None

    async def send(self, method: str, url: SplitResult, headers: Mapping[str, str], body: bytes) -> HttpResponse:
        """Send a request and wait for the head of its response."""
        import h11

        place = host_and_port(url)
        target = (url.path or "/") + (f"?{url.query}" if url.query else "")
        fields = {"host": place, **({"content-length": str(len(body))} if body else {}), **headers}
        if self._proxy is not None:
            target = f"http://{place}{target}"
            fields |= self._proxy.credentials()
        check_headers(fields)
        try:
            request = h11.Request(method=method, target=target, headers=list(fields.items()))
        except h11.LocalProtocolError:
            raise PermanentError("the address holds characters that cannot be sent") from None
        self.write(request, body)
        return await self.receive_head(place)

    def write(self, request: h11.Request, body: bytes) -> None:
        """Write a request without waiting until it is sent: a server may refuse it before it has read all of it."""
        import h11

        self._has_received = False
        self._writer.write(self._protocol.send(request) or b"")
        if body:
            self._writer.write(self._protocol.send(h11.Data(data=body)) or b"")
        self._writer.write(self._protocol.send(h11.EndOfMessage()) or b"")

    async def receive_head(self, place: str) -> HttpResponse:
        import h11

        try:
            async with asyncio.timeout(self.idle_seconds):
                while not isinstance(event := await self.next_event(), h11.Response):
                    if not isinstance(event, h11.InformationalResponse):
                        raise NoResponse(f"{place} closed the connection without an answer")
        except TimeoutError:
            raise HttpError(f"{place} did not answer within {self.idle_seconds:g} s") from None
        headers: dict[str, str] = {}
        for raw_name, raw_value in event.headers:
            name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        return HttpResponse(event.status_code, event.reason.decode("latin-1"), headers, self)

    async def next_event_in_time(self) -> Any:
        """The next event of a body, if it comes within the idle time. Raises `HttpError`.

        A stream comes in thousands of pieces: one timer for all of them costs a tenth of `asyncio.timeout` around each.
        """
        loop = asyncio.get_running_loop()
        self._waiting_since = loop.time()
        if self._idle_timer is None:
            self._idle_timer = loop.call_later(self.idle_seconds, self._check_idle, loop)
        try:
            return await self.next_event()
        finally:
            self._waiting_since = None

    def _check_idle(self, loop: asyncio.AbstractEventLoop) -> None:
        self._idle_timer = None
        if self._waiting_since is None:
            return
        left = self._waiting_since + self.idle_seconds - loop.time()
        if left > 0:
            self._idle_timer = loop.call_later(left, self._check_idle, loop)
        else:
            self._reader.set_exception(HttpError(f"nothing came from the server for {self.idle_seconds:g} s"))

    async def next_event(self) -> Any:
        """Read until h11 has the next event. Raises `HttpError`."""
        import h11

        try:
            while (event := self._protocol.next_event()) is h11.NEED_DATA:
                data = await self._reader.read(READ_BYTES)
                self._has_received = self._has_received or bool(data)
                self._is_closed_by_peer = not data
                self._protocol.receive_data(data)
        except h11.RemoteProtocolError as error:
            if not self._has_received:
                raise NoResponse("the server closed the connection without an answer") from None
            if self._is_closed_by_peer:
                raise HttpError("the server closed the connection in the middle of its answer") from None
            raise HttpError(f"the server does not speak HTTP: {error}") from None
        except OSError as error:
            kind = HttpError if self._has_received else NoResponse
            raise kind(f"the connection broke: {error.strerror or error}") from None
        return event

    def may_be_kept(self, response: HttpResponse) -> bool:
        """Whether the connection can wait for another request, as far as is known now."""
        import h11

        has_ended = response.complete or self._protocol.their_state is h11.DONE
        return has_ended and not self._writer.transport.get_write_buffer_size()

    async def make_ready(self) -> bool:
        """Read the end of the last response, which has mostly arrived, and prepare for the next request."""
        import h11

        protocol = self._protocol
        try:
            async with asyncio.timeout(DRAIN_SECONDS):
                while protocol.their_state is h11.SEND_BODY:
                    await self.next_event()
        except (TimeoutError, HttpError):
            return False
        both_done = protocol.our_state is h11.DONE and protocol.their_state is h11.DONE
        if not both_done or protocol.trailing_data[0] or self._reader.at_eof() or self._reader.exception() is not None:
            return False
        protocol.start_next_cycle()
        self.reused = True
        return True

    def close(self) -> None:
        """Drop the connection without waiting for the peer."""
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        self._writer.transport.abort()


async def open_streams(address: str, port: int, tls: ssl.SSLContext | None, host: str) -> Streams:
    """Open a connection of the operating system."""
    if tls is None:
        return await asyncio.open_connection(address, port)
    return await asyncio.open_connection(address, port, ssl=tls, server_hostname=host)


def tls_context(env: Mapping[str, str]) -> ssl.SSLContext:
    """Trust the system's certificate authorities and those of `WIELDY_CA_FILE` or `SSL_CERT_FILE`. Reads files."""
    context = ssl.create_default_context()
    if extra := env.get("WIELDY_CA_FILE") or env.get("SSL_CERT_FILE"):
        try:
            context.load_verify_locations(extra)
        except (OSError, ssl.SSLError) as error:
            raise PermanentError(f"the certificates in {extra} cannot be read: {error}") from None
    return context


def parse_server_url(text: str) -> SplitResult:
    """Parse the address of a server. The default scheme is https, on this machine http. Raises `PermanentError`."""
    scheme = "http" if text.startswith(("localhost", "127.", "[::1]")) else "https"
    try:
        url = urlsplit(text if "://" in text else f"{scheme}://{text}")
        is_valid = url.scheme in ("http", "https") and bool(url.hostname) and port_of(url) > 0 and url.path.isascii()
    except ValueError:
        is_valid = False
    if not is_valid or not text.isprintable() or " " in text:
        raise PermanentError(f"`{text}` is not an http address")
    return url


def port_of(url: SplitResult) -> int:
    return url.port or (443 if url.scheme == "https" else 80)


def host_and_port(url: SplitResult) -> str:
    """The server as in a Host header and in messages, without credentials."""
    return url.netloc.rpartition("@")[2]


def check_headers(headers: Mapping[str, str]) -> None:
    """Raise `PermanentError` for a header value that cannot be sent, without showing it: it may be a key."""
    for name, value in headers.items():
        if not value.isascii() or not value.replace("\t", " ").isprintable() or value != value.strip():
            raise PermanentError(f"the header {name} holds characters that cannot be sent; mind its end")


def proxy_for(url: SplitResult, env: Mapping[str, str]) -> Proxy | None:
    """The proxy for an address by the usual environment variables, or None. Raises `ProxyError`."""
    names = (f"{url.scheme}_proxy", f"{url.scheme.upper()}_PROXY", "all_proxy", "ALL_PROXY")
    name = next((name for name in names if env.get(name)), None)
    if name is None or _bypasses_proxy(url, env):
        return None
    text = env[name]
    proxy = urlsplit(text if "://" in text else f"http://{text}")
    try:
        port = proxy.port or 80
    except ValueError:
        raise ProxyError(f"{name}={text} is not the address of a proxy") from None
    if proxy.scheme != "http" or not proxy.hostname:
        raise ProxyError(f"{name} names a {proxy.scheme} proxy; only http:// proxies can be used")
    return Proxy(proxy.hostname, port, unquote(proxy.username or ""), unquote(proxy.password or ""))


def _bypasses_proxy(url: SplitResult, env: Mapping[str, str]) -> bool:
    """Whether `NO_PROXY` names the host: by name, domain, `host:port`, address or network (`10.0.0.0/8`)."""
    host = url.hostname or ""
    if host in LOOPBACK:
        return True
    names = [name.strip().lower() for name in (env.get("no_proxy") or env.get("NO_PROXY") or "").split(",")]
    names += [name.removesuffix(port) for name in names if name.endswith(port := f":{port_of(url)}")]
    return any(_is_within(host, name) for name in names if name)


def _is_within(host: str, name: str) -> bool:
    if name in ("*", host, f"[{host}]") or host.endswith("." + name.lstrip("*").lstrip(".")):
        return True
    if "/" not in name:
        return False
    import ipaddress

    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(name, strict=False)
    except ValueError:
        return False


def _origin(url: SplitResult, addresses: Sequence[str]) -> tuple[Any, ...]:
    return url.scheme, url.hostname, port_of(url), tuple(addresses)


def _bracketed(url: SplitResult) -> str:
    host = str(url.hostname)
    return f"[{host}]" if ":" in host else host


def _is_refused(error: OSError) -> bool:
    """Whether every address of a host refused. For several addresses asyncio raises one error with all in its message."""
    text = str(error)
    return error.errno == errno.ECONNREFUSED or 0 < text.count(f"[Errno {errno.ECONNREFUSED}]") == text.count("[Errno ")
