"""Hosts: what a URL really talks to, and the pattern inside `WebFetch(domain:…)`."""

from __future__ import annotations

import re
from functools import lru_cache


@lru_cache(maxsize=256)
def host_of(url: str) -> str | None:
    """The host a URL names, lower-case, ASCII and without a final dot; None where that cannot be told."""
    from urllib.parse import urlsplit

    if any(letter <= " " or letter == "\\" for letter in url.strip()):
        return None
    try:
        host = urlsplit(url.strip() if "//" in url else f"//{url.strip()}").hostname
        return host.rstrip(".").encode("idna").decode().lower() or None if host else None
    except ValueError:
        return None


@lru_cache(maxsize=1024)
def _pattern(specifier: str) -> re.Pattern[str]:
    text = specifier.removeprefix("domain:").strip().rstrip(".").lower()
    if not text.isascii():
        text = ".".join(label if "*" in label else label.encode("idna").decode() for label in text.split("."))
    any_depth, text = text.startswith("*."), text.removeprefix("*.")
    body = "".join("[^.]*" if letter == "*" else re.escape(letter) for letter in text)
    return re.compile((r"(?:[^.]+\.)+" if any_depth else "") + body)


def matches(specifier: str, host: str) -> bool:
    """Whether `domain:…` covers a host: `*.h` any depth of sub-domain but not `h`, any other `*` within one label."""
    try:
        return _pattern(specifier).fullmatch(host) is not None
    except UnicodeError:
        return False
