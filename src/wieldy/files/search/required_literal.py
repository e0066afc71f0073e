"""A text that every match of a Python regular expression contains, so that ripgrep can find the files worth a look.

Only what is plain at the top level of a pattern counts. Where in doubt there is no such text, and every file is searched.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

# Shorter texts are in most files.
LEAST_CHARS = 3
_INLINE_FLAGS = re.compile(r"\(\?[aiLmsux-]")
# What follows the backslash of a character code, a character's name or a back-reference.
_CHARACTER_CODE = re.compile(r"x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|N\{[^}]*\}|[0-9]+")
_QUANTIFIER = re.compile(r"[*+?]|\{\d*(?:,\d*)?\}")
_MAY_BE_ABSENT = re.compile(r"[*?]|\{(?:0|,)")


def required_literal(pattern: str) -> str | None:
    """The longest run of ASCII characters in every match of a pattern; None if there is none that is long enough."""
    if "|" in pattern or _INLINE_FLAGS.search(pattern):
        return None
    longest = max(_runs(pattern), key=len, default="")
    return longest if len(longest) >= LEAST_CHARS else None


def _runs(pattern: str) -> Iterator[str]:
    """The runs of literal characters outside groups and character classes."""
    run, position, depth = "", 0, 0
    while position < len(pattern):
        char = pattern[position]
        literal: str | None = None
        if char == "\\":
            escaped = pattern[position + 1 : position + 2]
            position += 2
            if not escaped.isalnum():
                literal = escaped
            elif code := _CHARACTER_CODE.match(pattern, position - 1):
                position = code.end()
        elif char == "[":
            position = _end_of_class(pattern, position)
        else:
            position += 1
            depth += (char == "(") - (char == ")")
            if char not in ".^$*+?{}()":
                literal = char
        quantifier = _QUANTIFIER.match(pattern, position)
        if depth > 0 or literal is None or not (literal.isascii() and literal.isprintable()) or literal == "~":
            yield run
            run = ""
        elif quantifier is None:
            run += literal
        else:
            yield run if _MAY_BE_ABSENT.match(quantifier[0]) else run + literal
            run = ""
        if quantifier is not None:
            position = quantifier.end()
    yield run


def _end_of_class(pattern: str, start: int) -> int:
    """The position after the `]` of a character class; a `]` that comes first stands for itself."""
    position = start + 1
    if pattern[position : position + 1] == "^":
        position += 1
    if pattern[position : position + 1] == "]":
        position += 1
    while position < len(pattern) and pattern[position] != "]":
        position += 2 if pattern[position] == "\\" else 1
    return position + 1
