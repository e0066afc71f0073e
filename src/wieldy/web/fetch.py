"""Fetches a page over HTTP. Every redirect is checked and resolved again; bytes, time and redirects are limited."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Mapping, Sequence
from typing import Protocol
from urllib.parse import urlsplit

from msgspec import Struct

from wieldy.core.errors import ToolFailure
from wieldy.core.workspace import Workspace
from wieldy.web.address_policy import AddressPolicy, HostRefused, Resolver, resolve_host
from wieldy.web.http import Connect, HttpClient, HttpError, HttpResponse, Streams, open_streams, proxy_for
from wieldy.web.url import HttpUrl, InvalidUrl

MAX_BYTES = 20 << 20
MAX_REDIRECTS = 10
GZIP_MAGIC = b"\x1f\x8b"
TIMEOUT = 60.0
CONNECT_TIMEOUT = 10.0
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


class HttpRedirect(Struct, frozen=True):
    """A redirect. One to another host, or from https to http, is returned to the caller instead of followed."""

    url: HttpUrl
    status: int
    location: HttpUrl

    @property
    def is_same_host(self) -> bool:
        return self.location.host == self.url.host and (self.location.secure or not self.url.secure)


class Fetcher:
    """Fetches pages for a workspace: `workspace.services.fetcher`. Resolver and connector can be replaced."""

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
        self.client = HttpClient(env=workspace.env, connect_seconds=CONNECT_TIMEOUT, connect=connect)
        self.resolver = resolver
        self.timeout = timeout
        self.max_bytes = max_bytes

    async def aclose(self) -> None:
        await self.client.aclose()

    def address_policy(self, *private_hosts: str) -> AddressPolicy:
        """What may be connected to: public hosts, the private ones of the settings, and these."""
        allowed = self._workspace.setting("web.allowPrivateHosts")
        return AddressPolicy([*allowed, *private_hosts], self.resolver)

    async def fetch(self, url: HttpUrl, *, policy: AddressPolicy | None = None) -> FetchedResponse | HttpRedirect:
        """Request a URL and follow redirects within its host. Raises `HostRefused` or `FetchFailure`."""
        policy = policy or self.address_policy()
        try:
            async with asyncio.timeout(self.timeout):
                for _ in range(MAX_REDIRECTS):
                    response = await self._request(url, await self._addresses(url, policy))
                    if isinstance(response, FetchedResponse) or not response.is_same_host:
                        return response
                    url = response.location
        except TimeoutError:
            raise FetchFailure(f"{url.host} did not send the page within {self.timeout:g} s.") from None
        raise FetchFailure(f"{url.host} redirects in circles: gave up after {MAX_REDIRECTS} redirects.")

    async def connect_any(self, url: HttpUrl, addresses: Sequence[str]) -> Streams:
        """Open a plain connection to the first of these addresses that accepts. Raises `FetchFailure`."""
        try:
            return await self.client.open(urlsplit(str(url)), addresses)
        except HttpError as error:
            raise _fetch_failure(url, error) from None

    async def _addresses(self, url: HttpUrl, policy: AddressPolicy) -> Sequence[str]:
        """The checked addresses to connect to; none where a proxy of the environment connects to the host."""
        try:
            proxy = proxy_for(urlsplit(str(url)), self._workspace.env)
        except HttpError as error:
            raise _fetch_failure(url, error) from None
        if proxy is None:
            return await policy.resolve(url)
        await policy.check_for_proxy(url)
        return ()

    async def _request(self, url: HttpUrl, addresses: Sequence[str]) -> FetchedResponse | HttpRedirect:
        try:
            async with self.client.request("GET", urlsplit(str(url)), HEADERS, addresses=addresses) as response:
                if response.status in REDIRECT_STATUSES and "location" in response.headers:
                    return HttpRedirect(url, response.status, _join(url, response.headers["location"]))
                body, truncated = await self._read_body(response)
                return FetchedResponse(url, response.status, response.reason, response.headers, body, truncated)
        except HttpError as error:
            raise _fetch_failure(url, error) from None

    async def _read_body(self, response: HttpResponse) -> tuple[bytes, bool]:
        decoder, body, received = content_decoder(response.headers.get("content-encoding", "")), bytearray(), 0
        while data := await response.read():
            received += len(data)
            body += decoder.feed(data, self.max_bytes + 1 - len(body))
            if len(body) > self.max_bytes or received > self.max_bytes:
                return bytes(body[: self.max_bytes]), True
        if received and not decoder.is_complete:
            raise ToolFailure("The server sent a damaged answer: its compressed data breaks off.")
        return bytes(body), False


def _fetch_failure(url: HttpUrl, error: HttpError) -> FetchFailure:
    message = str(error).removesuffix(".")
    return FetchFailure(f"{message}." if url.host in message else f"{url.authority}: {message}.")


def _join(url: HttpUrl, location: str) -> HttpUrl:
    try:
        # Servers send this header in UTF-8, although HTTP says Latin-1.
        return url.join(location.encode("latin-1").decode("utf-8", "replace"))
    except InvalidUrl as problem:
        raise HostRefused(f"{url.host} redirects to a place that is not followed. {problem}") from None


class ContentDecoder(Protocol):
    """Decodes a body piece by piece; `is_complete` says whether the data may end here."""

    @property
    def is_complete(self) -> bool: ...

    def feed(self, data: bytes, max_bytes: int) -> bytes:
        """Decode at most `max_bytes`; after less came out than there was, nothing more may be fed."""
        ...


class IdentityDecoder:
    is_complete = True

    def feed(self, data: bytes, max_bytes: int) -> bytes:
        return data[:max_bytes]


class InflateDecoder:
    """gzip, of one or several members, or deflate with or without the zlib header that some servers leave out."""

    def __init__(self, encoding: str) -> None:
        self._inflate = zlib.decompressobj(zlib.MAX_WBITS | 32)
        self._is_gzip = encoding != "deflate"
        self._may_be_raw = encoding == "deflate"
        self._head = b""

    def feed(self, data: bytes, max_bytes: int) -> bytes:
        decoded = bytearray()
        while data and len(decoded) < max_bytes:
            if self._inflate.eof:
                if not self._is_gzip or not data.startswith(GZIP_MAGIC[: len(data)]):
                    break  # padding
                self._inflate = zlib.decompressobj(zlib.MAX_WBITS | 32)
            decoded += self._decompress(data, max_bytes - len(decoded))
            data = self._inflate.unused_data
        return bytes(decoded)

    def _decompress(self, data: bytes, max_bytes: int) -> bytes:
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
            return self._decompress(data, max_bytes)
        self._may_be_raw = False
        return decoded

    @property
    def is_complete(self) -> bool:
        return self._inflate.eof


def content_decoder(encoding: str) -> ContentDecoder:
    """The decoder for a `Content-Encoding`. Raises `ToolFailure`."""
    match encoding.strip().lower():
        case "" | "identity":
            return IdentityDecoder()
        case "gzip" | "x-gzip" | "deflate" as name:
            return InflateDecoder(name)
        case unknown:
            raise ToolFailure(f"The server encoded its answer as `{unknown[:40]}`, which was not requested.")
