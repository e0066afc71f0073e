"""Gets one page over HTTP: every hop is judged and pinned anew, and bytes, time and hops are bounded."""

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
from wieldy.web.address import BadAddress, WebAddress
from wieldy.web.address_policy import OutOfReach, Reach, Resolve, system_addresses

if TYPE_CHECKING:
    import h11


Streams: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect: TypeAlias = Callable[[str, int, ssl.SSLContext | None, str], Awaitable[Streams]]
"""Connects to (address, port); with a TLS context the certificate must be for the name, the last argument."""


async def open_streams(address: str, port: int, tls: ssl.SSLContext | None, name: str) -> Streams:
    """A connection of the system."""
    if tls is None:
        return await asyncio.open_connection(address, port)
    return await asyncio.open_connection(address, port, ssl=tls, server_hostname=name)


def tls_context(env: Mapping[str, str]) -> ssl.SSLContext:
    """The authorities of the system, and those of `WIELDY_CA_FILE` or `SSL_CERT_FILE`. Reads files: not for the loop."""
    context = ssl.create_default_context()
    if extra := env.get("WIELDY_CA_FILE") or env.get("SSL_CERT_FILE"):
        try:
            context.load_verify_locations(extra)
        except (OSError, ssl.SSLError) as error:
            raise ToolFailure(f"The certificates in {extra} cannot be read: {error}.") from None
    return context


class Unpacker(Protocol):
    """Takes bytes as they arrive."""

    def feed(self, data: bytes, most: int) -> bytes:
        """What they unpack to, at most `most` bytes; nothing may be fed after less came out than there was."""
        ...


class Plain:
    """A body that is not packed."""

    def feed(self, data: bytes, most: int) -> bytes:
        """The bytes themselves."""
        return data[:most]


class Packed:
    """gzip, or deflate with or without the header that some servers leave out."""

    def __init__(self, encoding: str) -> None:
        self._inflate = zlib.decompressobj(zlib.MAX_WBITS | 32)
        self._may_be_raw = encoding == "deflate"
        self._head = b""

    def feed(self, data: bytes, most: int) -> bytes:
        """Unpack some more."""
        if most <= 0 or self._inflate.eof:
            return b""
        if self._may_be_raw:
            # Two bytes tell whether there is a header; before that nothing may be given away.
            data, self._head = self._head + data, self._head + data
            if len(data) < 2:
                return b""
        try:
            unpacked = self._inflate.decompress(data, most)
        except zlib.error as error:
            if not self._may_be_raw:
                raise ToolFailure(f"The server sent a damaged answer: {error}.") from None
            self._may_be_raw, self._inflate = False, zlib.decompressobj(-zlib.MAX_WBITS)
            return self.feed(data, most)
        self._may_be_raw = False
        return unpacked


def unpacker(encoding: str) -> Unpacker:
    """What unpacks a body of this `Content-Encoding`."""
    match encoding.strip().lower():
        case "" | "identity":
            return Plain()
        case "gzip" | "x-gzip" | "deflate" as packed:
            return Packed(packed)
        case unknown:
            raise ToolFailure(f"The server packed its answer as `{unknown[:40]}`, which was not asked for.")


MOST_BYTES = 20 << 20
MOST_HOPS = 10
SECONDS = 60.0
CONNECT_SECONDS = 10.0
READ_BYTES = 1 << 16
MOST_HEAD = 1 << 16
REDIRECTS = frozenset({301, 302, 303, 307, 308})
HEADERS = {
    "user-agent": "Mozilla/5.0 (compatible; wieldy)",
    "accept": "text/markdown, text/html;q=0.9, application/xhtml+xml;q=0.9, */*;q=0.5",
    "accept-encoding": "gzip, deflate",
    "accept-language": "en, *;q=0.5",
    "connection": "close",
}


class FetchFailure(ToolFailure):
    """A server that could not be reached, broke off, or does not speak HTTP."""


class Fetched(Struct, frozen=True):
    """An answer. `cut` means that the body was longer than what is kept."""

    address: WebAddress
    status: int
    reason: str
    headers: Mapping[str, str]
    body: bytes
    cut: bool = False


class Moved(Struct, frozen=True):
    """A redirect that is not followed, because it leads to another host or out of encryption."""

    address: WebAddress
    status: int
    to: WebAddress


class Fetcher:
    """The HTTP client of a workspace: `workspace.service(Fetcher)`. How it resolves and connects can be replaced."""

    def __init__(
        self,
        workspace: Workspace,
        *,
        resolve: Resolve = system_addresses,
        connect: Connect = open_streams,
        seconds: float = SECONDS,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self._workspace = workspace
        self.resolve = resolve
        self.connect = connect
        self.seconds = seconds
        self.most_bytes = most_bytes
        self._tls: ssl.SSLContext | None = None

    def reach(self, *also: str) -> Reach:
        """What may be talked to now; `also` names further private hosts."""
        named = self._workspace.setting("web.allowPrivateHosts", list[str]())
        return Reach([*named, *also], self.resolve)

    async def get(self, where: WebAddress, *, reach: Reach | None = None) -> Fetched | Moved:
        """The page at an address. Redirects within its host are followed. Raises `OutOfReach` or `FetchFailure`."""
        reach = reach or self.reach()
        try:
            async with asyncio.timeout(self.seconds):
                for _ in range(MOST_HOPS):
                    answer = await self._hop(where, reach)
                    if isinstance(answer, Fetched):
                        return answer
                    if not _stays(answer):
                        return answer
                    where = answer.to
        except TimeoutError:
            raise FetchFailure(f"{where.host} did not send the page within {self.seconds:g} s.") from None
        raise FetchFailure(f"{where.host} redirects in circles: gave up after {MOST_HOPS} hops.")

    async def _hop(self, where: WebAddress, reach: Reach) -> Fetched | Moved:
        addresses = await reach.addresses(where)
        tls = await self._context() if where.secure else None
        reader, writer = await self.connected(where, addresses, tls)
        try:
            return await self._exchange(where, reader, writer)
        except (OSError, asyncio.IncompleteReadError) as error:
            raise FetchFailure(f"The connection to {where.host} broke: {_said(error)}.") from None
        finally:
            writer.transport.abort()

    async def connected(
        self, where: WebAddress, addresses: Sequence[str], tls: ssl.SSLContext | None = None
    ) -> Streams:
        """A connection to the first of these addresses that answers. Raises `FetchFailure`."""
        problem = ""
        for address in addresses:
            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    return await self.connect(address, where.port, tls, where.host)
            except ssl.SSLCertVerificationError as error:
                raise FetchFailure(f"The certificate of {where.host} was not accepted: {_said(error)}.") from None
            except ssl.SSLError as error:
                raise FetchFailure(f"{where.place} makes no encrypted connection: {error.reason}.") from None
            except TimeoutError:
                problem = f"no answer within {CONNECT_SECONDS:g} s"
            except OSError as error:
                problem = _said(error)
        raise FetchFailure(f"{where.place} cannot be reached: {problem}.")

    async def _exchange(
        self, where: WebAddress, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> Fetched | Moved:
        import h11

        protocol = h11.Connection(h11.CLIENT, max_incomplete_event_size=MOST_HEAD)
        request = h11.Request(method="GET", target=where.target, headers=[("host", where.place), *HEADERS.items()])
        writer.write((protocol.send(request) or b"") + (protocol.send(h11.EndOfMessage()) or b""))
        await writer.drain()
        try:
            head = await _head(protocol, reader)
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers}
            if head.status_code in REDIRECTS and "location" in headers:
                return Moved(where, head.status_code, _target(where, headers["location"]))
            body, cut = await self._body(protocol, reader, headers.get("content-encoding", ""))
        except h11.RemoteProtocolError as error:
            raise FetchFailure(f"{where.place} does not answer in proper HTTP: {error}.") from None
        return Fetched(where, head.status_code, head.reason.decode("latin-1"), headers, body, cut)

    async def _body(self, protocol: h11.Connection, reader: asyncio.StreamReader, encoding: str) -> tuple[bytes, bool]:
        import h11

        unpack, body, received = unpacker(encoding), bytearray(), 0
        while not isinstance(event := await _event(protocol, reader), h11.EndOfMessage | h11.ConnectionClosed):
            if isinstance(event, h11.Data):
                received += len(event.data)
                body += unpack.feed(bytes(event.data), self.most_bytes + 1 - len(body))
                if len(body) > self.most_bytes or received > self.most_bytes:
                    return bytes(body[: self.most_bytes]), True
        return bytes(body), False

    async def _context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = await in_thread(tls_context, self._workspace.env)
        return self._tls


def _stays(move: Moved) -> bool:
    return move.to.host == move.address.host and (move.to.secure or not move.address.secure)


def _target(where: WebAddress, location: str) -> WebAddress:
    try:
        # Servers send such headers in UTF-8, though HTTP says otherwise.
        return where.join(location.encode("latin-1").decode("utf-8", "replace"))
    except BadAddress as problem:
        raise OutOfReach(f"{where.host} redirects to a place that is not followed. {problem}") from None


async def _head(protocol: h11.Connection, reader: asyncio.StreamReader) -> Any:
    import h11

    while True:
        event = await _event(protocol, reader)
        if isinstance(event, h11.Response):
            return event
        if isinstance(event, h11.ConnectionClosed):
            raise FetchFailure("The server closed the connection without an answer.")


async def _event(protocol: h11.Connection, reader: asyncio.StreamReader) -> Any:
    import h11

    while (event := protocol.next_event()) is h11.NEED_DATA:
        protocol.receive_data(await reader.read(READ_BYTES))
    return event


def _said(error: BaseException) -> str:
    verified = getattr(error, "verify_message", None)
    return str(verified or getattr(error, "strerror", None) or error or type(error).__name__).rstrip(".")
