"""The layers of one simple command: the program in the middle, and every wrapper round it."""

from __future__ import annotations

import os

from wieldy.core.record import record
from wieldy.shell.feed import Feed
from wieldy.shell.parts import bare_text_of, text_of
from wieldy.shell.words import Word
from wieldy.shell.wrappers import Peeled, peel

MAX_LAYERS = 12
_STANDARD_FOLDERS = frozenset({"/bin", "/usr/bin", "/usr/local/bin", "/sbin", "/usr/sbin"})


@record
class Layers:
    """A command unwrapped: `words` (or `script`) is what runs in the end."""

    words: tuple[Word, ...]
    script: Word | None
    via: tuple[str, ...]
    allow_texts: tuple[str, ...]
    deny_texts: tuple[str, ...]
    quiet: bool
    transparent: bool
    reads: tuple[Word, ...]
    variables: tuple[str, ...]
    problem: str


def program_of(word: Word) -> str | None:
    """The name a table knows a program by: without its folder, if that is one of the system's."""
    if not word.static:
        return None
    if "/" not in word.text:
        return word.text
    folder, name = os.path.split(word.text)
    return name if folder in _STANDARD_FOLDERS else word.text


def unwrap(words: tuple[Word, ...], feed: Feed) -> Layers:
    """Look through the wrappers of a command."""
    via: list[str] = []
    deny = _deny(words)
    allow = deny[:1]
    quiet = transparent = True
    reads: list[Word] = []
    variables: list[str] = []
    script, problem = None, ""
    while words and len(via) < MAX_LAYERS:
        name = program_of(words[0])
        found = peel(words, name) if name else None
        if found is None or name is None:
            break
        via.append(name)
        quiet, transparent = quiet and found.quiet, transparent and found.transparent
        reads.extend(found.reads)
        variables.extend(found.variables)
        if found.problem:
            problem = f"`{name}`: {found.problem}"
            deny.extend(text for index in range(1, min(len(words), 9)) for text in _deny(words[index:]))
            break
        if found.script is not None:
            script = found.script
            break
        words = _fed(found, feed) if found.fed else found.inner
        deny.extend(_deny(words))
        if transparent:
            allow.append(text_of(words))
    return Layers(
        words,
        script,
        tuple(via),
        tuple(allow),
        tuple(dict.fromkeys(deny)),
        quiet,
        transparent,
        tuple(reads),
        tuple(variables),
        problem,
    )


def _deny(words: tuple[Word, ...]) -> list[str]:
    return [text_of(words), bare_text_of(words)]


def _fed(found: Peeled, feed: Feed) -> tuple[Word, ...]:
    """The command as `xargs` completes it from its input. A name split at a blank may go on with a dash."""
    feed = feed if found.whole else Feed(feed.folders)
    if not found.placeholder:
        return (*found.inner, Word("", "many", "", feed.stem, feed.folders))
    return tuple(_filled(word, found.placeholder, feed) for word in found.inner)


def _filled(word: Word, placeholder: str, feed: Feed) -> Word:
    if not word.static or placeholder not in word.text:
        return word
    if word.text == placeholder:
        return Word(word.source, "one", "", feed.stem, feed.folders)
    return Word(word.source, "one", word.text, word.text.partition(placeholder)[0])


def filled_by_find(words: tuple[Word, ...], feed: Feed) -> tuple[Word, ...]:
    """The command of a `find -exec`, with `{}` standing for what was found."""
    return tuple(_filled(word, "{}", feed) for word in words)
