"""A rough reading of text that no grammar accepts: never to prove anything, only so that what is forbidden is still seen."""

from __future__ import annotations

import re

from wieldy.core.effect import Opaque
from wieldy.shell.feed import Feed
from wieldy.shell.layers import program_of, unwrap
from wieldy.shell.parts import Part
from wieldy.shell.words import plain

# No system passes a longer text to bash.
MAX_LENGTH = 131_072
_SEPARATORS = re.compile(r"[;&|\n()`]+|\$\(|\{ | \}")
_KEYWORDS = frozenset(["then", "do", "else", "elif", "if", "while", "until", "!", "time", "coproc", "{", "}"])


def crude_parts(text: str, cwd: str) -> list[Part]:
    """A part for each fragment between separators, with quotes dropped."""
    found: list[Part] = []
    for fragment in _SEPARATORS.split(text[:MAX_LENGTH]):
        words = [word for word in re.sub(r"[\"'\\]", "", fragment).split() if word]
        while words and (words[0] in _KEYWORDS or re.match(r"[A-Za-z_]\w*=", words[0])):
            words = words[1:]
        if not words:
            continue
        layers = unwrap(tuple(plain(word) for word in words), Feed())
        name = program_of(layers.words[0]) if layers.words else None
        whole = layers.allow_texts[0]
        found.append(
            Part(
                whole,
                layers.words,
                name,
                (Opaque(),),
                False,
                False,
                "the command is not understood",
                layers.via,
                deny_texts=layers.deny_texts,
                cwds=(cwd,),
            )
        )
    return found
