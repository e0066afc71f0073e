"""A command line that is nothing but words, plain redirections and separators, read in the plainest way: by splitting it."""

from __future__ import annotations

from wieldy.schema.pattern import pattern
from wieldy.shell.outline import Entry, Span
from wieldy.shell.read import MORE_THAN_NAMES

_BLANKS = " \t"
_VARIABLE = r"\$[A-Za-z_][A-Za-z0-9_]*+"
_END = r"(?=[ \t;&|]|\Z)"
_WORD = rf"""(?:(?:[A-Za-z0-9_./:@%,+=-]++|{_VARIABLE})++|'[^']*'|"(?:[^"\\$`]++|{_VARIABLE})*+"){_END}"""
_TOKEN = pattern(
    rf"[ \t]*(?:(?P<word>{_WORD})|(?P<separator>&&|\|\||[|;])(?![;&|])"
    rf"|[0-9]?(?:>&(?P<descriptor>[0-9]){_END}|(?P<redirection>>>|>|<)))"
)


def plain_outline(text: str) -> list[Entry] | None:
    """What this command line would run; None where it is not so plain that there is only one way to read it."""
    if not text.isascii():
        return None
    text = text.rstrip(_BLANKS)
    entries: list[Entry] = []
    words: list[Span] = []
    separator, redirection, at = ";", "", 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            return None
        at = token.end()
        kind = token.lastgroup
        if redirection:
            if kind != "word":
                return None
            entries.append((redirection, (token.span("word"),)))
            redirection = ""
        elif kind == "word":
            word = token["word"]
            if not words and (word in MORE_THAN_NAMES or "=" in word):
                return None
            words.append(token.span("word"))
        elif not words:
            return None
        elif kind == "separator":
            entries.append(("call", tuple(words)))
            words, separator = [], token["separator"]
        elif kind == "descriptor":
            entries.append((">&", (token.span("descriptor"),)))
        else:
            redirection = token["redirection"]
    if redirection:
        return None
    if words:
        entries.append(("call", tuple(words)))
    return sorted(entries) if words or (entries and separator == ";") else None
