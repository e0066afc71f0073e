"""One model API over HTTP: send a request, check the response, turn its server-sent events into deltas."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Protocol

from wieldy.core.provider import Delta, ProviderFailure
from wieldy.providers.errors import connection_failure, response_failure
from wieldy.providers.sse import read_events
from wieldy.web.http import HttpClient, HttpError, HttpResponse, check_headers, host_and_port, parse_server_url


class StreamParser(Protocol):
    """Turns the events of one API into deltas; `finished` after the event that ends an answer."""

    finished: bool

    def feed(self, data: bytes) -> Iterable[Delta]:
        """Parse one event. Raises `ProviderFailure`."""
        ...

    def close(self) -> Iterable[Delta]:
        """The stream has ended. Raises `ProviderFailure` unless the answer is complete."""
        ...


class ApiEndpoint:
    """The address of an API, with the headers that every request carries. Raises `HttpError` for invalid ones."""

    def __init__(
        self, base_url: str, headers: Mapping[str, str], *, env: Mapping[str, str], idle_seconds: float
    ) -> None:
        self.url = parse_server_url(base_url)
        self._headers = {"content-type": "application/json", "accept": "text/event-stream", "user-agent": "wieldy"}
        self._headers |= headers
        check_headers(self._headers)
        self._client = HttpClient(env=env, idle_seconds=idle_seconds)

    @asynccontextmanager
    async def stream(
        self, path: str, body: bytes, model: str, parser: StreamParser
    ) -> AsyncIterator[AsyncIterator[Delta]]:
        """Post a request and give the deltas of its answer. Raises `ProviderFailure`."""
        url = self.url._replace(path=self.url.path.rstrip("/") + path)
        try:
            async with self._client.request("POST", url, self._headers, body) as response:
                content_type = response.headers.get("content-type", "text/event-stream")
                if response.status != 200 or "html" in content_type or "json" in content_type:
                    place = host_and_port(url)
                    raise response_failure(response.status, response.headers, await response.text(), model, place)
                async with aclosing(read_events(response)) as events:
                    yield parse_events(events, parser, response)
        except HttpError as error:
            raise connection_failure(error) from None

    async def aclose(self) -> None:
        await self._client.aclose()


async def parse_events(
    batches: AsyncIterator[Sequence[bytes]], parser: StreamParser, response: HttpResponse | None = None
) -> AsyncIterator[Delta]:
    """Feed batches of events to a parser until it is finished or the stream ends. Raises `ProviderFailure`.

    Only deltas reset the idle timeout: pings, comments and incomplete events do not.
    """
    failure: ProviderFailure | None = None
    last_delta = time.monotonic()
    try:
        async for batch in batches:
            for data in batch:
                for delta in parser.feed(data):
                    yield delta
                    last_delta = time.monotonic()
                if parser.finished:
                    break
            if parser.finished:
                if response is not None:
                    response.complete = True
                break
            if response is not None and time.monotonic() - last_delta > response.idle_seconds:
                raise HttpError(f"the server sent nothing of an answer for {response.idle_seconds:g} s")
    except HttpError as error:
        failure = ProviderFailure("connection", str(error))
    try:
        for delta in parser.close():
            yield delta
    except ProviderFailure as incomplete:
        raise failure or incomplete from None
