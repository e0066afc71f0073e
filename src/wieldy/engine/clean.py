"""Text that any API takes: valid Unicode, no control characters."""

from __future__ import annotations

import re

from wieldy.schema.pattern import pattern

# Everything JSON or a provider may choke on: lone surrogates, and control characters other than tab and line ends.
_UNWELCOME = pattern("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def clean(text: str) -> str:
    """The text with surrogate pairs joined, lone surrogates replaced and control characters removed."""
    if text.isascii() and (text.isprintable() or _without_breaks(text).isprintable()):
        return text
    if not _UNWELCOME.search(text):
        return text
    return _UNWELCOME.sub(_instead, text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))


def _without_breaks(text: str) -> str:
    return text.replace("\n", "").replace("\t", "").replace("\r", "")


def _instead(match: re.Match[str]) -> str:
    return "\ufffd" if match[0] >= "\ud800" else ""
