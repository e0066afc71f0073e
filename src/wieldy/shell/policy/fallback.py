"""A rough reading of text that no grammar accepts: never to prove anything, only so that what is forbidden is still seen."""

from __future__ import annotations

import re
from collections.abc import Iterator

from wieldy.core.effects import Opaque
from wieldy.shell.policy.command_part import CommandPart
from wieldy.shell.policy.piped_names import UNFED
from wieldy.shell.policy.simple_command import program_of, unwrap
from wieldy.shell.policy.words import Word, plain

# No system passes a longer text to bash.
MAX_LENGTH = 131_072
_SEPARATORS = re.compile(r"[;&|\n()`]+|\$\(|\{ | \}")
_COMMENT = re.compile(r"(?:^|\s)#")
_KEYWORDS = frozenset(["then", "do", "else", "elif", "if", "while", "until", "!", "time", "coproc", "{", "}"])
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_NO_QUOTES = str.maketrans("", "", "\"'\\")
_UNKNOWN = (Opaque(),)


def crude_parts(text: str, cwd: str) -> list[CommandPart]:
    """A part for each fragment between separators, with quotes dropped; with what may be a comment, and without."""
    found: list[CommandPart] = []
    fragments = _SEPARATORS.split(text[:MAX_LENGTH].translate(_NO_QUOTES))
    told = [reading for fragment in fragments for reading in (fragment, _COMMENT.split(fragment, 1)[0])]
    for fragment in dict.fromkeys(told):
        words = fragment.split()
        while words and (words[0] in _KEYWORDS or _ASSIGNMENT.match(words[0])):
            words = words[1:]
        if words:
            found.extend(_parts(tuple([plain(word) for word in words]), cwd))
    return found


def _parts(words: tuple[Word, ...], cwd: str) -> Iterator[CommandPart]:
    layers = unwrap(words, UNFED)
    name = program_of(layers.words[0]) if layers.words else None
    yield CommandPart(
        layers.allow_texts[0],
        layers.words,
        name,
        _UNKNOWN,
        False,
        False,
        "the command is not understood",
        layers.wrappers,
        deny_texts=layers.deny_texts,
        cwds=(cwd,),
    )
    if layers.script is not None:
        yield from _parts(_inside(layers.words, layers.script), cwd)


def _inside(words: tuple[Word, ...], script: Word) -> tuple[Word, ...]:
    """Without its quotes, the script of a shell is the rest of the words."""
    if script in words[1:]:
        return words[words.index(script, 1) :]
    return tuple(plain(word) for word in script.text.split())
