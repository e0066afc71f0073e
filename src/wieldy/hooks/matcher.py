"""Which subjects a hook is for: all, exact names, or a regular expression."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeAlias

from wieldy.schema.pattern import pattern

Matcher: TypeAlias = Callable[[str], bool]

_NAMES = pattern(r"[A-Za-z0-9_\- ,|]*")
_SEPARATORS = pattern(r"[,|]")


class BadMatcher(ValueError):
    """A matcher that is no regular expression."""


def matcher(text: str | None) -> Matcher:
    """Nothing or `*` is everything; letters, digits and `_ - , |` are exact names; anything else is a regular expression."""
    if text is None or text.strip() in ("", "*"):
        return lambda subject: True
    if _NAMES.fullmatch(text):
        names = exact_names(text)
        return lambda subject: subject in names
    try:
        found = re.compile(text)
    except re.error as error:
        raise BadMatcher(f"`{text}` is no regular expression: {error}") from None
    return lambda subject: found.search(subject) is not None


def exact_names(text: str) -> frozenset[str]:
    """The names a matcher lists; empty for a regular expression or for everything."""
    if text.strip() in ("", "*") or not _NAMES.fullmatch(text):
        return frozenset()
    return frozenset(name.strip() for name in _SEPARATORS.split(text) if name.strip())
