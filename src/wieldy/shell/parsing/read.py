"""Reading a command line: by splitting it where that is enough, else by the grammar, which is loaded when one needs it."""

from __future__ import annotations

import re

from wieldy.shell.parsing.syntax import Chain, LiteralText, Pipeline, RawWord, Script, Simple
from wieldy.shell.parsing.tree_sitter import Entry, Span
from wieldy.shell.policy.programs.options import names

BARE_LENGTH = 1_000
# None of these quotes, expands, separates, redirects or assigns.
BARE = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./:@%,+- ")
# What bash takes for more than a name where a command begins, and `let`, whose words are no words.
MORE_THAN_NAMES = names("if then else elif fi do done case esac while until for select function time coproc in let")


def read(text: str) -> Script:
    """The script that bash would run for this text. Raises `Unparsable`."""
    if (script := bare_script(text)) is not None:
        return script
    from wieldy.shell.parsing.parser import parse

    return parse(text)


def bare_script(text: str) -> Script | None:
    """The same for bare words with spaces between them, which most commands are: they have one meaning. None for others."""
    if len(text) > BARE_LENGTH or not BARE.issuperset(text):
        return None
    words: list[RawWord] = []
    at = 0
    for word in text.split(" "):
        if word:
            words.append(RawWord((LiteralText(word, False),), word, at, at + len(word)))
        at += len(word) + 1
    if not words or words[0].source in MORE_THAN_NAMES:
        return None
    start, end = words[0].start, words[-1].end
    command = Simple((), tuple(words), (), text[start:end], start, end)
    return Script((Chain((("", Pipeline((command,))),)),))


_BLANKS = " \t"
_VARIABLE = r"\$[A-Za-z_][A-Za-z0-9_]*+"
_END = r"(?=[ \t;&|]|\Z)"
_WORD = rf"""(?:(?:[A-Za-z0-9_./:@%,+=-]++|{_VARIABLE})++|'[^']*'|"(?:[^"\\$`]++|{_VARIABLE})*+"){_END}"""
_TOKEN = re.compile(
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


# shfmt's answer is many times as long as the text, and grows with the square of the nesting.
MAX_ASKED = 150


def confirmed(text: str, script: Script) -> bool:
    """Whether splitting (for what is plain), tree-sitter (for what it is known to read well) or shfmt reads it as we did."""
    if bare_script(text) == script:
        return True
    from wieldy.shell.parsing.tree_sitter import outline

    ours = outline(script, text)
    if (plain := plain_outline(text)) is not None:
        return plain == ours.entries
    if ours.common:
        from wieldy.shell.parsing.tree_sitter import common_outline

        if common_outline(text) == ours.entries:
            return True
    if len(ours.entries) + text.count("$") > MAX_ASKED:
        return False
    from wieldy.shell.parsing.shfmt import full_outline

    return full_outline(text) == ours.entries
