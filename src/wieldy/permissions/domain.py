"""Hosts: what a URL really talks to, and the pattern inside `WebFetch(domain:…)`."""

from __future__ import annotations

from functools import lru_cache

from wieldy.permissions.command import wildcard


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
def _labels(specifier: str) -> tuple[str, ...]:
    text = specifier.removeprefix("domain:").strip().rstrip(".").lower()
    if text.isascii():
        return tuple(text.split("."))
    return tuple(label if "*" in label else label.encode("idna").decode() for label in text.split("."))


def matches(specifier: str, host: str) -> bool:
    """Whether `domain:…` covers a host: `*.h` any depth of sub-domain but not `h`, any other `*` within one label."""
    try:
        wanted = _labels(specifier)
    except UnicodeError:
        return False
    labels = host.split(".")
    if wanted[0] == "*" and len(wanted) > 1:
        wanted = wanted[1:]
        if len(labels) <= len(wanted):
            return False
        labels = labels[-len(wanted) :]
    return len(labels) == len(wanted) and all(map(wildcard, wanted, labels))
