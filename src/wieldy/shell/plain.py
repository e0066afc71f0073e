"""A command line that is nothing but words and separators, read in the plainest way there is: by splitting it."""

from __future__ import annotations

from wieldy.schema.pattern import pattern
from wieldy.shell.outline import Entry, Span
from wieldy.shell.programs.options import names

_BLANKS = " \t"
_TOKEN = pattern(
    r"""[ \t]*(?:([A-Za-z0-9_./:@%,+=-]+|'[^']*'|"[^"\\$`]*")(?=[ \t;&|]|\Z)|(&&|\|\||[|;])(?![;&|]))""",
)
# What bash takes for more than a name where a command begins, and `let`, whose words are no words.
_MORE_THAN_NAMES = names("if then else elif fi do done case esac while until for select function time coproc in let")


def plain_outline(text: str) -> list[Entry] | None:
    """What this command line would run; None where it is not so plain that there is only one way to read it."""
    if not text.isascii():
        return None
    text = text.rstrip(_BLANKS)
    entries: list[Entry] = []
    words: list[Span] = []
    separator, at = ";", 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            return None
        at = token.end()
        if token[1] is None:
            if not words:
                return None
            entries.append(("call", tuple(words)))
            words, separator = [], token[2]
        elif not words and (token[1] in _MORE_THAN_NAMES or "=" in token[1]):
            return None
        else:
            words.append(token.span(1))
    if words:
        entries.append(("call", tuple(words)))
    return entries if words or (entries and separator == ";") else None
