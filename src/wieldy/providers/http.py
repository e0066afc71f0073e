"""HTTP to a model: one small client over asyncio, connections kept alive.

Proxies come from the usual variables, extra certificate authorities from `SSL_CERT_FILE` or `WIELDY_CA_FILE`. A TLS context
is made only for https, and once. Nothing here knows what a model is.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, unquote, urlsplit

from msgspec import Struct

from wieldy.core.errors import WieldyError
from wieldy.providers.connection import Connection, Silence
from wieldy.providers.http1 import END, End, Head, Malformed, request_head
from wieldy.providers.leisure import Leisure, Signs

if TYPE_CHECKING:
    import ssl


LOOPBACK = ("localhost", "127.0.0.1", "::1")


class ProxyProblem(WieldyError):
    """A proxy is set that cannot be used; one line says which and why."""


class Proxy(Struct, frozen=True):
    """An HTTP proxy, and what it knows us by."""

    host: str
    port: int
    user: str = ""
    password: str = ""

    def credentials(self) -> dict[str, str]:
        """The header that says who we are, if we are anybody."""
        if not self.user:
            return {}
        import base64

        return {"proxy-authorization": f"Basic {base64.b64encode(f'{self.user}:{self.password}'.encode()).decode()}"}


def proxy_for(url: SplitResult, env: Mapping[str, str]) -> Proxy | None:
    """The proxy for an address, or None for one that is reached directly. Raises `ProxyProblem`."""
    names = (f"{url.scheme}_proxy", f"{url.scheme.upper()}_PROXY", "all_proxy", "ALL_PROXY")
    name = next((name for name in names if env.get(name)), None)
    if name is None or _goes_direct(url.hostname or "", env):
        return None
    text = env[name]
    found = urlsplit(text if "://" in text else f"http://{text}")
    try:
        port = found.port or 80
    except ValueError:
        raise ProxyProblem(f"{name}={text} is not the address of a proxy") from None
    if found.scheme != "http" or not found.hostname:
        raise ProxyProblem(f"{name} names a {found.scheme} proxy; only http:// proxies can be used")
    return Proxy(found.hostname, port, unquote(found.username or ""), unquote(found.password or ""))


def _goes_direct(host: str, env: Mapping[str, str]) -> bool:
    listed = [name.strip().lower() for name in (env.get("no_proxy") or env.get("NO_PROXY") or "").split(",")]
    if host in LOOPBACK:
        return True
    return any(name in ("*", host) or host.endswith("." + name.lstrip("*").lstrip(".")) for name in listed if name)


CONNECT_SECONDS = 30.0
IDLE_SECONDS = 300.0
FAREWELL_SECONDS = 0.02
MOST_IDLE = 8


class HttpFailure(WieldyError):
    """The server could not be reached, or broke off; one line says where and how."""


class Hopeless(HttpFailure):
    """Asking again will end the same way, until somebody changes something."""


class Refused(HttpFailure):
    """Nobody listens there: it comes up soon, or it was never started."""


class NoAnswer(HttpFailure):
    """The connection ended before a single byte of an answer: on one that was kept alive, the server had left already."""


class Response:
    """The head of an answer; its body is still to come. It is `whole` when its reader needs nothing more of it."""

    def __init__(self, status: int, headers: Mapping[str, str], seconds: float, connection: Connection) -> None:
        self.status = status
        self.headers = headers
        self.seconds = seconds
        self.whole = False
        self._connection = connection

    async def more(self) -> bytes:
        """What comes next of the body; nothing at its end. Raises `HttpFailure` when it breaks off or stays out for too long."""
        connection = self._connection
        while (part := _taken(connection)) is None:
            try:
                await connection.more(connection.time() + self.seconds)
            except Silence:
                raise HttpFailure(f"nothing came from the server for {self.seconds:g} s") from None
            except OSError as error:
                raise _broken(error) from None
        return part if isinstance(part, bytes) else b""

    def take_leisure(self, signs: Signs) -> None:
        """From here on give whole events of the body some at a time, except when there are signs of more than words."""
        self._connection.take_leisure(Leisure(signs, self.seconds))

    async def text(self, most: int = 100_000) -> str:
        """The first part of the body, as text; for error pages."""
        got = bytearray()
        with contextlib.suppress(HttpFailure):
            while len(got) < most and (more := await self.more()):
                got += more
        return bytes(got[:most]).decode("utf-8", "replace")


class Http:
    """A client of one server. `idle_seconds` bounds how long a server may stay silent."""

    def __init__(
        self, base_url: str, headers: Mapping[str, str], *, env: Mapping[str, str], idle_seconds: float = IDLE_SECONDS
    ) -> None:
        self.url = _address(base_url)
        self.headers = dict(headers)
        self._head(self.url.path or "/", self.headers)  # what cannot be sent is said before anybody is called
        self.idle_seconds = idle_seconds
        self._env = env
        self._idle: list[Connection] = []
        self._coming: asyncio.Task[Connection] | None = None
        self._tls: ssl.SSLContext | None = None

    def approach(self) -> asyncio.Future[Connection] | None:
        """Begin to connect, for the request that will come soon; it will hear of it if that fails. Returns what ends then."""
        if self._coming is None and not self._idle:
            self._coming = asyncio.get_running_loop().create_task(self._connect())
        return self._coming

    @asynccontextmanager
    async def post(self, path: str, body: bytes) -> AsyncIterator[Response]:
        """Send a JSON body and give the answer. Raises `HttpFailure`; a stale kept-alive connection is replaced once."""
        connection = await self._kept() or await self._connected()
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
        """Close the connections that are kept, and the one that nobody came for."""
        coming, self._coming = self._coming, None
        if coming is not None:
            coming.cancel()
            await asyncio.wait((coming,))
            if not coming.cancelled() and coming.exception() is None:
                self._idle.append(coming.result())
        while self._idle:
            self._idle.pop().close()

    async def _exchange(self, connection: Connection, path: str, body: bytes) -> Response:
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
        connection.send(self._head(target, headers), body)
        return await self._answer(connection)

    @staticmethod
    def _head(target: str, headers: Mapping[str, str]) -> bytes:
        try:
            return request_head("POST", target, headers)
        except ValueError as odd:
            raise Hopeless(f"{odd} holds characters that cannot be sent; mind its end") from None

    async def _answer(self, connection: Connection) -> Response:
        until = connection.time() + self.idle_seconds
        try:
            while (head := _taken(connection)) is None:
                await connection.more(until)
        except NoAnswer:
            raise NoAnswer(f"{self.place} closed the connection without an answer") from None
        except Silence:
            raise HttpFailure(f"{self.place} did not answer within {self.idle_seconds:g} s") from None
        except OSError as error:
            raise _broken(error) from None
        assert isinstance(head, Head)
        return Response(head.status, head.headers, self.idle_seconds, connection)

    def _give_back(self, connection: Connection, *, whole: bool) -> None:
        answers = connection.answers
        connection.end_leisure()
        sent = not connection.transport.get_write_buffer_size()
        ended = sent and answers.keeps and answers.begun and (whole or answers.reusable)
        if ended and len(self._idle) < MOST_IDLE:
            connection.used = True
            self._idle.append(connection)
        else:
            connection.close()

    async def _kept(self) -> Connection | None:
        """A connection kept alive, once the end of its last answer is in: it mostly is by now, and is not waited for long."""
        while self._idle:
            connection = self._idle.pop()
            try:
                await _ended(connection)
            except (Silence, HttpFailure, OSError):
                connection.close()
            except BaseException:
                connection.close()
                raise
            else:
                if connection.answers.reusable:
                    connection.answers.again()
                    return connection
                connection.close()
        return None

    async def _connected(self) -> Connection:
        """The connection that is on its way already, or else a new one."""
        coming, self._coming = self._coming, None
        return await (self._connect() if coming is None else coming)

    async def _connect(self) -> Connection:
        try:
            proxy = self._proxy()
        except ProxyProblem as problem:
            raise Hopeless(str(problem)) from None
        near = f"the proxy {proxy.host}" if proxy else self.place
        secure = self.url.scheme == "https"
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                host, port = (proxy.host, proxy.port) if proxy else (str(self.url.hostname), _port(self.url))
                tls = self._context() if secure and proxy is None else None
                loop = asyncio.get_running_loop()
                _, connection = await loop.create_connection(Connection, host, port, ssl=tls)
                if proxy is not None and secure:
                    await self._tunnel(connection, proxy)
        except TimeoutError:
            raise HttpFailure(f"{self.place} did not answer within {CONNECT_SECONDS:g} s") from None
        except OSError as error:
            if (reason := _tls_reason(error)) is not None:
                raise Hopeless(
                    f"{self.place}: the certificate was not accepted ({reason}). "
                    "Set WIELDY_CA_FILE to your organisation's certificate authority."
                ) from None
            if _nobody_listens(error):
                raise Refused(f"{near} cannot be reached: the connection was refused, nothing listens there") from None
            raise HttpFailure(f"{near} cannot be reached: {error.strerror or error}") from None
        except Malformed:
            raise HttpFailure(f"{near} does not answer like a proxy") from None
        return connection

    async def _tunnel(self, connection: Connection, proxy: Proxy) -> None:
        there = f"{self.url.hostname}:{_port(self.url)}"
        lines = [f"CONNECT {there} HTTP/1.1", f"host: {there}", *(f"{k}: {v}" for k, v in proxy.credentials().items())]
        try:
            connection.transport.write("\r\n".join([*lines, "", ""]).encode())
            while (told := connection.answers.raw(b"\r\n\r\n")) is None:
                await connection.more()
            head = told.split(b"\r\n", 1)[0].decode("latin-1")
            status = head.split(" ", 2)[1:2]
            if status != ["200"]:
                refused = Hopeless if status and status[0].startswith("4") else HttpFailure
                raise refused(f"the proxy {proxy.host} refused: {head}")
            await connection.secure(self._context(), str(self.url.hostname))
        except BaseException:
            connection.close()
            raise

    def _context(self) -> ssl.SSLContext:
        import ssl

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


def _address(written: str) -> SplitResult:
    """The address of a server; without a scheme it is https, except on this machine. Raises `Hopeless`."""
    scheme = "http" if written.startswith(("localhost", "127.", "[::1]")) else "https"
    try:
        url = urlsplit(written if "://" in written else f"{scheme}://{written}")
        sound = url.scheme in ("http", "https") and bool(url.hostname) and _port(url) > 0 and url.path.isascii()
    except ValueError:
        sound = False
    if not sound or not written.isprintable() or " " in written:
        raise Hopeless(f"`{written}` is not an http address")
    return url


def _port(url: SplitResult) -> int:
    return url.port or (443 if url.scheme == "https" else 80)


def _nobody_listens(error: OSError) -> bool:
    """Whether every address of a host refused; of several, asyncio tells in words only."""
    told = str(error)
    return error.errno == errno.ECONNREFUSED or 0 < told.count(f"[Errno {errno.ECONNREFUSED}]") == told.count("[Errno ")


def _tls_reason(error: OSError) -> str | None:
    """Why TLS failed, if it was TLS that failed."""
    import ssl

    return str(error.reason) if isinstance(error, ssl.SSLError) else None


async def _ended(connection: Connection) -> None:
    """Pass over the rest of an answer, which mostly is there already. Raises `Silence` when it does not come at once."""
    until = connection.time() + FAREWELL_SECONDS
    while (part := _taken(connection)) is not END:
        if part is None:
            await connection.more(until)


def _taken(connection: Connection) -> Head | bytes | End | None:
    """The next part of an answer, if it has come. Raises `NoAnswer` when none will, else `HttpFailure`."""
    try:
        return connection.answers.take()
    except Malformed as odd:
        if not connection.answers.begun:
            raise NoAnswer("the connection was closed without an answer") from None
        raise HttpFailure(f"the server does not speak HTTP: {odd}") from None


def _broken(error: OSError) -> NoAnswer:
    return NoAnswer(f"the connection broke: {error.strerror or error}")
