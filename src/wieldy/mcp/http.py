"""Connections to servers behind a URL: each answer is bounded as it arrives, and a sign-in reaches only hosts that it may."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import httpx2
from mcp.client.auth import OAuthFlowError
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client

from wieldy.core.errors import ToolFailure
from wieldy.mcp.config import ServerConfig
from wieldy.mcp.transport import MAX_MESSAGE_BYTES, MessageMeter, MessageTooLarge
from wieldy.web.address_policy import LOOPBACK_NAMES, AddressPolicy, is_loopback
from wieldy.web.fetch import content_decoder
from wieldy.web.http import proxy_for
from wieldy.web.url import InvalidUrl, parse_url

CONNECT_SECONDS = 10.0
IDLE_SECONDS = 3600.0
SIGN_IN = "wieldy.sign_in"
"""The extension of a request that belongs to a sign-in; after the check it holds the URL that was requested."""
_BLANK_LINE = re.compile(rb"\r\n\r\n|\n\n|\r\r")


@asynccontextmanager
async def open_http(
    config: ServerConfig, auth: httpx2.Auth | None, check: AddressCheck, on_error_status: Callable[[int], None]
) -> AsyncIterator[Any]:
    """Open the streams of a server behind a URL: streamable HTTP, or SSE."""

    async def bound(response: httpx2.Response) -> None:
        bound_body(response)
        if response.status_code >= 400:
            on_error_status(response.status_code)

    def create_client(
        headers: dict[str, str] | None = None, timeout: httpx2.Timeout | None = None, auth: httpx2.Auth | None = None
    ) -> httpx2.AsyncClient:
        hooks: dict[str, Any] = {"request": [check.before], "response": [check.after, bound]}
        return httpx2.AsyncClient(headers=headers, timeout=timeout, auth=auth, event_hooks=hooks)

    headers = {"accept-encoding": "identity", **config.headers}
    if config.kind == "sse":
        async with sse_client(config.url, headers, CONNECT_SECONDS, IDLE_SECONDS, create_client, auth) as streams:
            yield streams
        return
    async with (
        create_client(headers, httpx2.Timeout(CONNECT_SECONDS, read=IDLE_SECONDS), auth) as client,
        streamable_http_client(config.url, http_client=client, max_sse_event_size=MAX_MESSAGE_BYTES) as streams,
    ):
        yield streams


def bound_body(response: httpx2.Response) -> None:
    """Decode a response here and measure what comes out: the decoders of httpx2 have no bound."""
    encoding = response.headers.pop("content-encoding", "")
    is_events = response.headers.get("content-type", "").lower().startswith("text/event-stream")
    assert isinstance(response.stream, httpx2.AsyncByteStream)
    response.stream = BoundedBody(response.stream, encoding, is_events=is_events)


class BoundedBody(httpx2.AsyncByteStream):
    """The decoded bytes of a body. Each event of an event stream is measured by itself."""

    def __init__(self, stream: httpx2.AsyncByteStream, encoding: str, *, is_events: bool) -> None:
        self._stream = stream
        self._encoding = encoding
        self._is_events = is_events
        self._meter = MessageMeter()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            decoder = content_decoder(self._encoding)
            async for data in self._stream:
                decoded = decoder.feed(data, MAX_MESSAGE_BYTES + 1)
                self._measure(decoded)
                yield decoded
        except (MessageTooLarge, ToolFailure) as error:
            raise (httpx2.SSEError if self._is_events else httpx2.StreamError)(str(error)) from None

    def _measure(self, data: bytes) -> None:
        *events, rest = _BLANK_LINE.split(data) if self._is_events else [data]
        for event in events:
            self._meter.add(event)
            self._meter.take()
        self._meter.add(rest)

    async def aclose(self) -> None:
        await self._stream.aclose()


class AddressCheck:
    """Hooks of an HTTP client: requests of a sign-in go only where `WebFetch` may, over https, to the address that was checked.

    A server chooses most of these addresses. On this machine it may send us to this machine, also without https.
    """

    def __init__(self, url: str, policy: Callable[..., AddressPolicy], env: Mapping[str, str]) -> None:
        host = urlsplit(url).hostname or ""
        self._is_local = is_loopback(host)
        self._policy = policy(host, *(LOOPBACK_NAMES if self._is_local else ()))
        self._env = env

    async def check(self, url: str) -> str | None:
        """Return the address to connect to; None where a proxy connects. Raises `OAuthFlowError`."""
        try:
            parsed = parse_url(url)
            if not (parsed.secure or (self._is_local and is_loopback(parsed.host))):
                raise OAuthFlowError(f"the server sends the sign-in to {parsed.authority} without https")
            if proxy_for(urlsplit(url), self._env) is None:
                return (await self._policy.resolve(parsed))[0]
            await self._policy.check_for_proxy(parsed)
        except (InvalidUrl, ToolFailure) as error:
            raise OAuthFlowError(f"the server sends the sign-in to an address that is not allowed: {error}") from None
        return None

    async def before(self, request: httpx2.Request) -> None:
        """Check a request of a sign-in, and have it sent to the address that was checked."""
        if SIGN_IN not in request.extensions:
            return
        address = await self.check(str(request.url))
        if address is not None:
            request.extensions = {**request.extensions, SIGN_IN: request.url, "sni_hostname": request.url.host}
            request.url = request.url.copy_with(host=address)

    async def after(self, response: httpx2.Response) -> None:
        """Give a request its URL back, by which redirects and errors are told."""
        url = response.request.extensions.get(SIGN_IN)
        if isinstance(url, httpx2.URL):
            response.request.url = url
