"""What an HTTP status and its body mean: one line for the person, and whether trying again may help."""

from __future__ import annotations

import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any

import msgspec

from wieldy.core.provider import FailureKind, ProviderFailure

_TOO_LONG = re.compile(
    r"prompt is too long|context.{0,20}(length|window)|maximum context|too many tokens", re.IGNORECASE
)


def failure(status: int, headers: Mapping[str, str], body: str, model: str, place: str) -> ProviderFailure:
    """The failure that a response is."""
    said = _message(body)
    kind, text = _meaning(status, said, model, place)
    return ProviderFailure(kind, text, status=status, retry_after=_retry_after(headers))


def _meaning(status: int, said: str, model: str, place: str) -> tuple[FailureKind, str]:
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
        found: Any = msgspec.json.decode(body)
    except msgspec.DecodeError:
        title = re.search(r"<title>(.*?)</title>", body, re.IGNORECASE | re.DOTALL)
        text = title[1] if title else re.sub(r"<[^>]*>", " ", body)
    else:
        error = found.get("error", found) if isinstance(found, dict) else found
        text = str(error.get("message", error)) if isinstance(error, dict) else str(error)
    text = " ".join(text.split())
    return (text[:297] + "…" if len(text) > 300 else text) or "no reason given"


def _retry_after(headers: Mapping[str, str]) -> float | None:
    if milliseconds := headers.get("retry-after-ms"):
        return float(milliseconds) / 1000 if milliseconds.isdigit() else None
    said = headers.get("retry-after")
    if not said:
        return None
    if said.replace(".", "", 1).isdigit():
        return float(said)
    try:
        when = parsedate_to_datetime(said)
    except ValueError:
        return None
    import datetime

    return max(0.0, (when - datetime.datetime.now(when.tzinfo)).total_seconds())
