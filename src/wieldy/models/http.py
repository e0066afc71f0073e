"""One model API over HTTP: send a request, turn its server-sent events into deltas, and say what a failure means."""

from __future__ import annotations

import json
import math
import os
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any, Protocol

from msgspec.structs import replace

from wieldy.core.errors import SessionError
from wieldy.core.messages import join_json_array
from wieldy.core.option_checks import require_count
from wieldy.core.provider import Delta, FailureKind, ProviderFailure, Request, ToolSpec
from wieldy.core.schema.strict_json import encode_json
from wieldy.core.text import truncate
from wieldy.models.catalog import ProviderRecord, find_model
from wieldy.web.http import (
    IDLE_SECONDS,
    ConnectionRefused,
    HttpClient,
    HttpError,
    HttpResponse,
    PermanentError,
    check_headers,
    host_and_port,
    parse_server_url,
)

_TOO_LONG = re.compile(
    r"prompt is too long|context.{0,20}(length|window|size)|maximum context|too many tokens",
    re.IGNORECASE,
)
_NO_CREDIT = re.compile(r"insufficient_quota|insufficient balance|billing_hard_limit", re.IGNORECASE)
_KINDS: Mapping[str, FailureKind] = {
    "overloaded_error": "overloaded",
    "api_error": "overloaded",
    "timeout_error": "overloaded",
    "server_error": "overloaded",
    "rate_limit_error": "rate",
    "rate_limit_exceeded": "rate",
    "authentication_error": "auth",
    "permission_error": "auth",
    "not_found_error": "model",
    "request_too_large": "too_large",
    "invalid_request_error": "bad_request",
}


def connection_failure(error: HttpError) -> ProviderFailure:
    """The failure for a connection that could not be made or broke."""
    if isinstance(error, PermanentError):
        return ProviderFailure("protocol", str(error))
    return ProviderFailure("refused" if isinstance(error, ConnectionRefused) else "connection", str(error))


def response_failure(status: int, headers: Mapping[str, str], body: str, model: str, place: str) -> ProviderFailure:
    """The failure for a response that is not a stream."""
    reason = _reason(body)
    if 300 <= status < 400:
        reason = f"moved to {headers.get('location', 'nowhere')}. Check --base-url."
    kind, text = _classify(status, reason, model, place)
    if kind == "rate" and _NO_CREDIT.search(body):
        kind, text = "auth", f"{place} has no credit left for this key ({reason})"
    retry_after = _retry_after(headers)
    if retry_after is not None and retry_after >= 60:
        text += f". It asks to wait for {retry_after / 60:.0f} min."
    return ProviderFailure(kind, text, status=status, retry_after=retry_after)


def stream_failure(error: Any, model: str) -> ProviderFailure:
    """The failure for an error event in the middle of a stream."""
    reason = truncate(" ".join(_message(error).split()), 300)
    if _TOO_LONG.search(reason):
        return ProviderFailure("overflow", f"the conversation is too long for {model} ({reason})")
    fields: Mapping[str, Any] = error if isinstance(error, Mapping) else {}
    type, code = str(fields.get("type")), str(fields.get("code"))
    kind = _KINDS.get(type) or _KINDS.get(code, "overloaded")
    if type not in _KINDS and re.fullmatch("[45][0-9][0-9]", code):
        kind, _ = _classify(int(code), reason, model, "")
    return ProviderFailure(kind, f"the model broke off: {reason}")


def _classify(status: int, reason: str, model: str, place: str) -> tuple[FailureKind, str]:
    if status == 200:
        return "protocol", f"{place} did not answer with a stream ({reason}). Check --base-url."
    if status == 401:
        return "auth", f"{place} did not accept the key ({reason}). Set the right one and try again."
    if status == 403:
        return "auth", f"{place} does not allow this ({reason}). The key may lack access to {model}."
    if status == 404:
        return "model", f"{place} knows no model `{model}` ({reason}). Check --model and --base-url."
    if status == 413:
        return "too_large", f"the request is too large for {place} ({reason})"
    if _TOO_LONG.search(reason) and status in (400, 422):
        return "overflow", f"the conversation is too long for {model} ({reason})"
    if status == 429:
        return "rate", f"{place} asks to slow down ({reason})"
    if status in (503, 529):
        return "overloaded", f"{place} is overloaded ({reason})"
    if status in (408, 409) or status >= 500:
        return "overloaded", f"{place} failed with {status} ({reason})"
    return "bad_request", f"{place} refused the request with {status}: {reason}"


def _reason(body: str) -> str:
    """The message in an error body, in one line; the title of an HTML page."""
    try:
        page: Any = json.loads(body)
    except (ValueError, RecursionError):
        title = re.search(r"<title>(.*?)</title>", body, re.IGNORECASE | re.DOTALL)
        text = title[1] if title else re.sub(r"<[^>]*>", " ", body)
    else:
        text = _message(page)
    text = " ".join(text.split())
    return truncate(text, 300) or "no reason given"


def _message(page: Any) -> str:
    """The message in an error object: servers nest it in `error`, `detail` or a list."""
    while isinstance(page, list | dict) and page:
        names = (name for name in ("error", "message", "detail") if isinstance(page, dict) and page.get(name))
        key: Any = 0 if isinstance(page, list) else next(names, None)
        if key is None:
            break
        page = page[key]
    return page if isinstance(page, str) else json.dumps(page, ensure_ascii=False)


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait as the server asks: it may send seconds, milliseconds, or a date. 0 or a past date asks for nothing."""
    for name, unit in (("retry-after-ms", 1000), ("retry-after", 1)):
        value = headers.get(name, "").strip()
        if value.isascii() and value.replace(".", "", 1).isdigit():
            return float(value) / unit or None
    if not headers.get("retry-after"):
        return None
    import datetime
    from email.utils import parsedate_to_datetime

    try:
        date = parsedate_to_datetime(headers.get("retry-after", ""))
    except (ValueError, IndexError):
        return None
    now = datetime.datetime.now(date.tzinfo or datetime.UTC)
    return max(0.0, (date.replace(tzinfo=date.tzinfo or datetime.UTC) - now).total_seconds()) or None


MAX_EVENT_BYTES = 64 * 1024 * 1024

# Two ends of lines. The groups are atomic, so that the halves of one \r\n do not count as two.
_EVENT_END = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)")


async def read_events(response: HttpResponse) -> AsyncGenerator[list[bytes], None]:
    """The data of the events of a response, one batch for each read; a batch may be empty. Raises `HttpError`."""
    decoder = SseDecoder()
    while chunk := await response.read():
        yield decoder.feed(chunk)
    if (data := decoder.close()) is not None:
        yield [data]


class SseDecoder:
    """Feed it bytes as they arrive."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._searched = 0

    def feed(self, data: bytes) -> list[bytes]:
        self._buffer += data
        start = 0
        batch: list[bytes] = []
        # An end may straddle two reads: search the last three bytes of the old data again.
        for match in _EVENT_END.finditer(self._buffer, max(self._searched - 3, 0)):
            if (field := _data_field(bytes(self._buffer[start : match.start()]))) is not None:
                batch.append(field)
            start = match.end()
        del self._buffer[:start]
        self._searched = len(self._buffer)
        if self._searched > MAX_EVENT_BYTES:
            raise HttpError("the server sends an event without end")
        return batch

    def close(self) -> bytes | None:
        """The data of a last event that the stream ended without closing."""
        return _data_field(bytes(self._buffer))


def _data_field(event: bytes) -> bytes | None:
    lines = [line[5:].removeprefix(b" ") for line in event.splitlines() if line.startswith(b"data:")]
    return b"\n".join(lines) if lines else None


# Half of a surrogate pair may come in one event and half in the next, which msgspec does not decode.
def decode_event(data: bytes) -> dict[str, Any]:
    """Decode the JSON object in an event. Raises `ProviderFailure`."""
    try:
        event = json.loads(data.decode("utf-8", "replace"))
    except (ValueError, RecursionError) as error:
        raise bad_event(str(error)) from None
    if not isinstance(event, dict):
        raise bad_event("it is not an object")
    return event


def get_object(event: Mapping[str, Any], name: str) -> dict[str, Any]:
    """An object inside another; empty where there is none."""
    value = event.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise bad_event(f"its `{name}` is not an object")
    return value


def get_objects(event: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """A list of objects; empty where there is none."""
    value = event.get(name)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise bad_event(f"its `{name}` is not a list of objects")
    return value


def get_text(event: Mapping[str, Any], name: str) -> str | None:
    value = event.get(name)
    if value is not None and not isinstance(value, str):
        raise bad_event(f"its `{name}` is not text")
    return value


def get_int(event: Mapping[str, Any], name: str) -> int:
    """A whole number; 0 where there is none."""
    value = event.get(name)
    if value is None:
        return 0
    if not isinstance(value, int) or isinstance(value, bool):
        raise bad_event(f"its `{name}` is not a whole number")
    return value


def get_count(counts: Mapping[str, Any], name: str) -> int:
    """A count of tokens; 0 for anything else, since an answer is worth more than its usage."""
    value = counts.get(name)
    return value if type(value) is int and value > 0 else 0


def bad_event(why: str) -> ProviderFailure:
    return ProviderFailure("protocol", f"the stream holds something that is no event: {why}")


IDLE_VARIABLE = "WIELDY_IDLE_SECONDS"


class StreamParser(Protocol):
    """Turns the events of one API into deltas; `finished` after the event that ends an answer."""

    finished: bool

    def feed(self, data: bytes) -> Iterable[Delta]: ...

    def close(self) -> Iterable[Delta]:
        """The stream has ended. Raises `ProviderFailure` unless the answer is complete."""
        ...


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
        self._client = HttpClient(env=env, idle_seconds=idle_seconds or _idle_seconds(env))
        self._headers = {
            "content-type": "application/json",
            "accept": "text/event-stream",
            "accept-encoding": "identity",
            "user-agent": "wieldy",
            **headers,
        }
        try:
            self._url = parse_server_url(self.address(self.provider.address(env, base_url)))
            check_headers(self._headers)
        except HttpError as error:
            raise SessionError(str(error)) from None

    def address(self, url: str) -> str:
        """The address to which `path` is appended."""
        return url

    def auth_headers(self, key: str, env: Mapping[str, str]) -> dict[str, str]:
        """The headers that carry the key; `env` may hold another credential where no key was given."""
        return {"authorization": f"Bearer {key}"} if key else {}

    def encode(self, request: Request) -> bytes:
        raise NotImplementedError

    def parser(self) -> StreamParser:
        raise NotImplementedError

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[AsyncIterator[Delta]]:
        """Send a request and stream its deltas. Raises `ProviderFailure`; leaving early closes the connection."""
        if self._max_tokens is not None or self._temperature is not None:
            limit = request.max_tokens or self._max_tokens
            request = replace(request, max_tokens=limit, temperature=self._temperature)
        url = self._url._replace(path=self._url.path.rstrip("/").removesuffix(self.path) + self.path)
        try:
            async with self._client.request("POST", url, self._headers, self.encode(request)) as response:
                content_type = response.headers.get("content-type", "text/event-stream")
                encoding = response.headers.get("content-encoding", "identity")
                is_stream = "html" not in content_type and "json" not in content_type and encoding == "identity"
                if response.status != 200 or not is_stream:
                    text = await response.text() if encoding == "identity" else f"a body encoded as {encoding}"
                    place = host_and_port(url)
                    raise response_failure(response.status, response.headers, text, self.model, place)
                async with aclosing(read_events(response)) as events:
                    yield parse_events(events, self.parser(), response)
        except HttpError as error:
            raise connection_failure(error) from None

    async def aclose(self) -> None:
        """Close the idle connections. The model can be used again."""
        await self._client.aclose()


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


def encode_tool(tool: ToolSpec, wire: str, define: Callable[[ToolSpec], Mapping[str, Any]]) -> bytes:
    """Encode a tool definition, once for each wire."""
    encoded = tool.encoded.get(wire)
    if encoded is None:
        encoded = tool.encoded[wire] = encode_json(define(tool))
    return encoded


def encode_body(head: Mapping[str, Any], tools: Iterable[bytes], history: str, items: list[bytes]) -> bytes:
    """Join a request from its fields, its tools and its history, which are encoded already; `history` names that field."""
    pieces = [encode_json(head)[:-1]]
    if encoded := b",".join(tools):
        pieces += [b',"tools":[', encoded, b"]"]
    return join_json_array(b"".join([*pieces, b',"', history.encode(), b'":[']), items, b"]}")
