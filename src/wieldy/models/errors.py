"""Failures of a model API: what an HTTP status, its body, or a broken connection means, and whether a retry may help."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from wieldy.core.provider import FailureKind, ProviderFailure
from wieldy.core.truncate import truncate
from wieldy.web.http import ConnectionRefused, HttpError, PermanentError

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
