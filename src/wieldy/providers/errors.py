"""What an HTTP status and its body mean: one line for the person, and whether trying again may help."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from wieldy.core.provider import FailureKind, ProviderFailure
from wieldy.providers.http import Hopeless, HttpFailure, Refused, Response

_TOO_LONG = re.compile(
    r"prompt is too long|context.{0,20}(length|window|size)|maximum context|too many tokens",
    re.IGNORECASE,
)
_NO_CREDIT = re.compile(r"insufficient_quota|insufficient balance|billing_hard_limit", re.IGNORECASE)
_KINDS: Mapping[str, FailureKind] = {
    "overloaded_error": "overloaded",
    "api_error": "overloaded",
    "timeout_error": "overloaded",
    "rate_limit_error": "rate",
    "rate_limit_exceeded": "rate",
    "authentication_error": "auth",
    "permission_error": "auth",
    "not_found_error": "model",
    "request_too_large": "too_large",
    "invalid_request_error": "bad_request",
    "400": "bad_request",
    "401": "auth",
    "403": "auth",
    "429": "rate",
}


def unheard(broken: HttpFailure) -> ProviderFailure:
    """The failure that a broken connection is: most pass, some do not."""
    kind: FailureKind = "refused" if isinstance(broken, Refused) else "connection"
    return ProviderFailure("protocol" if isinstance(broken, Hopeless) else kind, str(broken))


async def accepted(response: Response, model: str, place: str) -> None:
    """Raise the `ProviderFailure` that a response is, unless it is a stream."""
    kind = response.headers.get("content-type", "text/event-stream")
    if response.status == 200 and "html" not in kind and "json" not in kind:
        return
    raise failure(response.status, response.headers, await response.text(), model, place)


def failure(status: int, headers: Mapping[str, str], body: str, model: str, place: str) -> ProviderFailure:
    """The failure that a response is."""
    said = _message(body)
    if 300 <= status < 400:
        said = f"moved to {headers.get('location', 'nowhere')}"
    kind, text = _meaning(status, said, model, place)
    if kind == "rate" and _NO_CREDIT.search(body):
        kind, text = "auth", f"{place} has no credit left for this key ({said})"
    return ProviderFailure(kind, text, status=status, retry_after=_retry_after(headers))


def reported(error: Any, model: str) -> ProviderFailure:
    """The failure that an error in mid-stream is."""
    told: Mapping[str, Any] = error if isinstance(error, Mapping) else {"message": str(error)}
    text = f"the model broke off: {told.get('message') or told}"
    if _TOO_LONG.search(text):
        return ProviderFailure("overflow", f"the conversation is too long for {model} ({told.get('message')})")
    kind = _KINDS.get(str(told.get("type"))) or _KINDS.get(str(told.get("code")), "overloaded")
    return ProviderFailure(kind, text)


def _meaning(status: int, said: str, model: str, place: str) -> tuple[FailureKind, str]:
    if status == 200:
        return "protocol", f"{place} did not answer with a stream ({said}). Check --base-url."
    if status == 401:
        return "auth", f"{place} did not accept the key ({said}). Set the right one and try again."
    if status == 403:
        return "auth", f"{place} does not allow this ({said}). The key may lack access to {model}."
    if status == 404:
        return "model", f"{place} knows no model `{model}` ({said}). Check --model and --base-url."
    if status == 413:
        return "too_large", f"the request is too large for {place} ({said})"
    if _TOO_LONG.search(said) and status in (400, 422):
        return "overflow", f"the conversation is too long for {model} ({said})"
    if status == 429:
        return "rate", f"{place} asks to slow down ({said})"
    if status in (503, 529):
        return "overloaded", f"{place} is overloaded ({said})"
    if status in (408, 409) or status >= 500:
        return "overloaded", f"{place} failed with {status} ({said})"
    return "bad_request", f"{place} refused the request with {status}: {said}"


def _message(body: str) -> str:
    """The reason in an error body, in one line; of a page, its title."""
    try:
        found: Any = json.loads(body)
    except (ValueError, RecursionError):
        title = re.search(r"<title>(.*?)</title>", body, re.IGNORECASE | re.DOTALL)
        text = title[1] if title else re.sub(r"<[^>]*>", " ", body)
    else:
        error = found.get("error", found) if isinstance(found, dict) else found
        text = str(error.get("message", error)) if isinstance(error, dict) else str(error)
    text = " ".join(text.split())
    return (text[:297] + "…" if len(text) > 300 else text) or "no reason given"


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds, as the server asks for; it may say them, milliseconds, or a date."""
    for name, unit in (("retry-after-ms", 1000), ("retry-after", 1)):
        said = headers.get(name, "").strip()
        if said and said.replace(".", "", 1).isdigit() and said.isascii():
            return float(said) / unit
    if not headers.get("retry-after"):
        return None
    import datetime
    from email.utils import parsedate_to_datetime

    try:
        when = parsedate_to_datetime(headers.get("retry-after", ""))
    except (ValueError, IndexError):
        return None
    now = datetime.datetime.now(when.tzinfo or datetime.UTC)
    return max(0.0, (when.replace(tzinfo=when.tzinfo or datetime.UTC) - now).total_seconds())
