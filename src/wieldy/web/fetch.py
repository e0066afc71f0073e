"""Fetches a page over HTTP. Every redirect is checked and resolved again; bytes, time and redirects are limited."""

from __future__ import annotations

import asyncio
import ssl
import zlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from msgspec import Struct

from wieldy.core.errors import ToolFailure
from wieldy.core.threads import in_thread
from wieldy.core.workspace import Workspace
from wieldy.web.address_policy import AddressPolicy, HostRefused, Resolver, resolve_host
from wieldy.web.url import HttpUrl, InvalidUrl

if TYPE_CHECKING:
    import h11

Streams: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect: TypeAlias = Callable[[str, int, ssl.SSLContext | None, str], Awaitable[Streams]]
"""Connects to (address, port). With a TLS context, the certificate must match the last argument, a host name."""

MAX_BYTES = 20 << 20
MAX_REDIRECTS = 10
TIMEOUT = 60.0
CONNECT_TIMEOUT = 10.0
READ_BYTES = 1 << 16
MAX_HEAD_BYTES = 1 << 16
REDIRECT_STATUSES = frozenset({301, 302, 303, 307, 308})
HEADERS = {
    "user-agent": "Mozilla/5.0 (compatible; wieldy)",
    "accept": "text/markdown, text/html;q=0.9, application/xhtml+xml;q=0.9, */*;q=0.5",
    "accept-encoding": "gzip, deflate",
    "accept-language": "en, *;q=0.5",
    "connection": "close",
}


class FetchFailure(ToolFailure):
    """A server that could not be reached, broke off, or does not speak HTTP."""


class FetchedResponse(Struct, frozen=True):
    """A response; `truncated` means that the body was longer than the limit."""

    url: HttpUrl
    status: int
    reason: str
    headers: Mapping[str, str]
    body: bytes
    truncated: bool = False


class Redirect(Struct, frozen=True):
    """A redirect. One to another host, or from https to http, is returned to the caller instead of followed."""

    url: HttpUrl
    status: int
    location: HttpUrl

    @property
    def is_same_host(self) -> bool:
        return self.location.host == self.url.host and (self.location.secure or not self.url.secure)


async def open_streams(address: str, port: int, tls: ssl.SSLContext | None, host: str) -> Streams:
    """Open a connection of the operating system."""
    if tls is None:
        return await asyncio.open_connection(address, port)
    return await asyncio.open_connection(address, port, ssl=tls, server_hostname=host)


class Fetcher:
    """The HTTP client of a workspace: `workspace.service(Fetcher)`. Resolver and connector can be replaced."""

    def __init__(
        self,
        workspace: Workspace,
        *,
        resolver: Resolver = resolve_host,
        connect: Connect = open_streams,
        timeout: float = TIMEOUT,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self._workspace = workspace
        self.resolver = resolver
        self.connect = connect
        self.timeout = timeout
        self.max_bytes = max_bytes
        self._tls: ssl.SSLContext | None = None

    def address_policy(self, *private_hosts: str) -> AddressPolicy:
        """What may be connected to: public hosts, the private ones of the settings, and these."""
        allowed = self._workspace.setting("web.allowPrivateHosts", list[str]())
        return AddressPolicy([*allowed, *private_hosts], self.resolver)

    async def fetch(self, url: HttpUrl, *, policy: AddressPolicy | None = None) -> FetchedResponse | Redirect:
        """Request a URL and follow redirects within its host. Raises `HostRefused` or `FetchFailure`."""
        policy = policy or self.address_policy()
        try:
            async with asyncio.timeout(self.timeout):
                for _ in range(MAX_REDIRECTS):
                    response = await self._request(url, policy)
                    if isinstance(response, FetchedResponse) or not response.is_same_host:
                        return response
                    url = response.location
        except TimeoutError:
            raise FetchFailure(f"{url.host} did not send the page within {self.timeout:g} s.") from None
        raise FetchFailure(f"{url.host} redirects in circles: gave up after {MAX_REDIRECTS} redirects.")

    async def connect_any(self, url: HttpUrl, addresses: Sequence[str], tls: ssl.SSLContext | None = None) -> Streams:
        """Connect to the first of these addresses that accepts. Raises `FetchFailure`."""
        problem = ""
        for address in addresses:
            try:
                async with asyncio.timeout(CONNECT_TIMEOUT):
                    return await self.connect(address, url.port, tls, url.host)
            except ssl.SSLCertVerificationError as error:
                raise FetchFailure(f"The certificate of {url.host} was not accepted: {_reason(error)}.") from None
            except ssl.SSLError as error:
                raise FetchFailure(f"{url.authority} makes no encrypted connection: {error.reason}.") from None
            except TimeoutError:
                problem = f"no answer within {CONNECT_TIMEOUT:g} s"
            except OSError as error:
                problem = _reason(error)
        raise FetchFailure(f"{url.authority} cannot be reached: {problem}.")

    async def _request(self, url: HttpUrl, policy: AddressPolicy) -> FetchedResponse | Redirect:
        addresses = await policy.resolve(url)
        if url.secure and self._tls is None:
            self._tls = await in_thread(tls_context, self._workspace.env)
        reader, writer = await self.connect_any(url, addresses, self._tls if url.secure else None)
        try:
            return await self._exchange(url, reader, writer)
        except (OSError, asyncio.IncompleteReadError) as error:
            raise FetchFailure(f"The connection to {url.host} broke: {_reason(error)}.") from None
        finally:
            writer.transport.abort()

    async def _exchange(
        self, url: HttpUrl, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> FetchedResponse | Redirect:
        import h11

        protocol = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD_BYTES)
        request = h11.Request(method="GET", target=url.target, headers=[("host", url.authority), *HEADERS.items()])
        writer.write((protocol.send(request) or b"") + (protocol.send(h11.EndOfMessage()) or b""))
        await writer.drain()
        try:
            while not isinstance(head := await _next_event(protocol, reader), h11.Response):
                if isinstance(head, h11.ConnectionClosed):
                    raise FetchFailure("The server closed the connection without an answer.")
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers}
            if head.status_code in REDIRECT_STATUSES and "location" in headers:
                return Redirect(url, head.status_code, _join(url, headers["location"]))
            body, truncated = await self._read_body(protocol, reader, headers.get("content-encoding", ""))
        except h11.RemoteProtocolError as error:
            raise FetchFailure(f"{url.authority} does not answer in proper HTTP: {error}.") from None
        return FetchedResponse(url, head.status_code, head.reason.decode("latin-1"), headers, body, truncated)

    async def _read_body(
        self, protocol: h11.Connection, reader: asyncio.StreamReader, encoding: str
    ) -> tuple[bytes, bool]:
        import h11

        decoder, body, received = content_decoder(encoding), bytearray(), 0
        while not isinstance(event := await _next_event(protocol, reader), h11.EndOfMessage | h11.ConnectionClosed):
            if isinstance(event, h11.Data):
                received += len(event.data)
                body += decoder.feed(bytes(event.data), self.max_bytes + 1 - len(body))
                if len(body) > self.max_bytes or received > self.max_bytes:
                    return bytes(body[: self.max_bytes]), True
        return bytes(body), False


async def _next_event(protocol: h11.Connection, reader: asyncio.StreamReader) -> Any:
    import h11

    while (event := protocol.next_event()) is h11.NEED_DATA:
        protocol.receive_data(await reader.read(READ_BYTES))
    return event


def _join(url: HttpUrl, location: str) -> HttpUrl:
    try:
        # Servers send this header in UTF-8, although HTTP says Latin-1.
        return url.join(location.encode("latin-1").decode("utf-8", "replace"))
    except InvalidUrl as problem:
        raise HostRefused(f"{url.host} redirects to a place that is not followed. {problem}") from None


def _reason(error: BaseException) -> str:
    verify_message = getattr(error, "verify_message", None)
    return str(verify_message or getattr(error, "strerror", None) or error or type(error).__name__).rstrip(".")


def tls_context(env: Mapping[str, str]) -> ssl.SSLContext:
    """Trust the system's certificate authorities and those of `WIELDY_CA_FILE` or `SSL_CERT_FILE`. Reads files."""
    context = ssl.create_default_context()
    if extra := env.get("WIELDY_CA_FILE") or env.get("SSL_CERT_FILE"):
        try:
            context.load_verify_locations(extra)
        except (OSError, ssl.SSLError) as error:
            raise ToolFailure(f"The certificates in {extra} cannot be read: {error}.") from None
    return context


class ContentDecoder(Protocol):
    """Decodes a body piece by piece."""

    def feed(self, data: bytes, max_bytes: int) -> bytes:
        """Decode at most `max_bytes`; after less came out than there was, nothing more may be fed."""
        ...


class IdentityDecoder:
    def feed(self, data: bytes, max_bytes: int) -> bytes:
        return data[:max_bytes]


class InflateDecoder:
    """gzip, or deflate with or without the zlib header that some servers leave out."""

    def __init__(self, encoding: str) -> None:
        self._inflate = zlib.decompressobj(zlib.MAX_WBITS | 32)
        self._may_be_raw = encoding == "deflate"
        self._head = b""

    def feed(self, data: bytes, max_bytes: int) -> bytes:
        if max_bytes <= 0 or self._inflate.eof:
            return b""
        if self._may_be_raw:
            # The first two bytes show whether there is a header; until then keep the input.
            data, self._head = self._head + data, self._head + data
            if len(data) < 2:
                return b""
        try:
            decoded = self._inflate.decompress(data, max_bytes)
        except zlib.error as error:
            if not self._may_be_raw:
                raise ToolFailure(f"The server sent a damaged answer: {error}.") from None
            self._may_be_raw, self._inflate = False, zlib.decompressobj(-zlib.MAX_WBITS)
            return self.feed(data, max_bytes)
        self._may_be_raw = False
        return decoded


def content_decoder(encoding: str) -> ContentDecoder:
    """The decoder for a `Content-Encoding`. Raises `ToolFailure`."""
    match encoding.strip().lower():
        case "" | "identity":
            return IdentityDecoder()
        case "gzip" | "x-gzip" | "deflate" as name:
            return InflateDecoder(name)
        case unknown:
            raise ToolFailure(f"The server encoded its answer as `{unknown[:40]}`, which was not requested.")
