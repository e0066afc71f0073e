"""One model API over HTTP: send a request, check the response, turn its server-sent events into deltas."""

from __future__ import annotations

import math
import os
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from typing import Protocol

from msgspec.structs import replace

from wieldy.core.errors import SessionError
from wieldy.core.option_checks import require_count
from wieldy.core.provider import Delta, ProviderFailure, Request
from wieldy.models.catalog import ProviderRecord, find_model
from wieldy.models.errors import connection_failure, response_failure
from wieldy.models.sse import read_events
from wieldy.web.http import (
    IDLE_SECONDS,
    HttpClient,
    HttpError,
    HttpResponse,
    check_headers,
    host_and_port,
    parse_server_url,
)

IDLE_VARIABLE = "WIELDY_IDLE_SECONDS"


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
        self._headers = {
            "content-type": "application/json",
            "accept": "text/event-stream",
            "accept-encoding": "identity",
            "user-agent": "wieldy",
        }
        self._headers |= headers
        check_headers(self._headers)
        self._client = HttpClient(env=env, idle_seconds=idle_seconds)

    @asynccontextmanager
    async def stream(
        self, path: str, body: bytes, model: str, parser: StreamParser
    ) -> AsyncIterator[AsyncIterator[Delta]]:
        """Post a request and give the deltas of its answer. Raises `ProviderFailure`."""
        url = self.url._replace(path=self.url.path.rstrip("/").removesuffix(path) + path)
        try:
            async with self._client.request("POST", url, self._headers, body) as response:
                content_type = response.headers.get("content-type", "text/event-stream")
                encoding = response.headers.get("content-encoding", "identity")
                is_stream = "html" not in content_type and "json" not in content_type and encoding == "identity"
                if response.status != 200 or not is_stream:
                    text = await response.text() if encoding == "identity" else f"a body encoded as {encoding}"
                    raise response_failure(response.status, response.headers, text, model, host_and_port(url))
                async with aclosing(read_events(response)) as events:
                    yield parse_events(events, parser, response)
        except HttpError as error:
            raise connection_failure(error) from None

    async def aclose(self) -> None:
        await self._client.aclose()


class HttpModel:
    """One model behind an HTTP API. A subclass says how a request is encoded and how an answer is parsed.

    `api_key` and `base_url`, the address of a compatible server, are those of the environment if they are left out
    (`ANTHROPIC_API_KEY`, `ANTHROPIC_BASE_URL`); an empty key sends none. `max_tokens` limits each answer. `env` has the proxy
    and the certificates. Raises `SessionError` for an address or a key that cannot be used.
    """

    name: str
    provider: ProviderRecord
    path: str
    default_context_window: int

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        max_tokens: int | None = None,
        temperature: float | None = None,
        context_window: int | None = None,
        env: Mapping[str, str] | None = None,
        idle_seconds: float | None = None,
    ) -> None:
        if not isinstance(model, str) or not model:
            raise ValueError(f"`model` must be the name of a model, not {model!r}")
        require_count("max_tokens", max_tokens)
        require_count("context_window", context_window)
        if temperature is not None and not (isinstance(temperature, int | float) and 0 <= temperature <= 2):
            raise ValueError(f"`temperature` must be a number from 0 to 2, not {temperature!r}")
        if api_key is not None and not isinstance(api_key, str):
            raise TypeError(f"`api_key` must be a text, not {type(api_key).__name__}")
        env = os.environ if env is None else env
        info = find_model(model)
        self.model = model
        self.context_window = context_window or (info.context_window if info else self.default_context_window)
        self._max_tokens = max_tokens
        self._temperature = temperature
        key = env.get(self.provider.key_variable, "") if api_key is None else api_key
        headers = self.auth_headers(key, env if api_key is None else {})
        # Where the key comes from, as stream-json names it: a variable, "user" for one given in code, or "none".
        self.key_source = "none" if not key else self.provider.key_variable if api_key is None else "user"
        try:
            self._endpoint = ApiEndpoint(
                self.address(self.provider.address(env, base_url)),
                headers,
                env=env,
                idle_seconds=idle_seconds or _idle_seconds(env),
            )
        except HttpError as error:
            raise SessionError(str(error)) from None

    def address(self, url: str) -> str:
        """The address to which `path` is appended."""
        return url

    def auth_headers(self, key: str, env: Mapping[str, str]) -> dict[str, str]:
        """The headers that carry the key; `env` may hold another credential where no key was given."""
        return {"authorization": f"Bearer {key}"} if key else {}

    def encode(self, request: Request) -> bytes:
        """The body of a request."""
        raise NotImplementedError

    def parser(self) -> StreamParser:
        """A parser for one answer."""
        raise NotImplementedError

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[Delta]]:
        """Send a request and stream its deltas. Raises `ProviderFailure`; leaving early closes the connection."""
        if self._max_tokens is not None or self._temperature is not None:
            limit = request.max_tokens or self._max_tokens
            request = replace(request, max_tokens=limit, temperature=self._temperature)
        return self._endpoint.stream(self.path, self.encode(request), self.model, self.parser())

    async def aclose(self) -> None:
        """Close the idle connections. The model can be used again."""
        await self._endpoint.aclose()


def _idle_seconds(env: Mapping[str, str]) -> float:
    """How long a server may send nothing of an answer. Raises `SessionError` for a variable that is no such number."""
    text = env.get(IDLE_VARIABLE) or str(IDLE_SECONDS)
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < math.inf:
        raise SessionError(f"{IDLE_VARIABLE} must be a number of seconds above 0, not `{text}`")
    return seconds


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
