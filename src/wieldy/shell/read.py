"""Reading a command line: by splitting it where that is enough, else by the grammar, which is loaded when one needs it."""

from __future__ import annotations

from wieldy.shell.programs.options import names
from wieldy.shell.syntax import Chain, LiteralText, Pipeline, RawWord, Script, Simple

BARE_LENGTH = 1_000
# None of these quotes, expands, separates, redirects or assigns.
BARE = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./:@%,+- ")
# What bash takes for more than a name where a command begins, and `let`, whose words are no words.
MORE_THAN_NAMES = names("if then else elif fi do done case esac while until for select function time coproc in let")


def read(text: str) -> Script:
    """The script that bash would run for this text. Raises `Unparsable`."""
    if (script := bare_script(text)) is not None:
        return script
    from wieldy.shell.parse import parse

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
