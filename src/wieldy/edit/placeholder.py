"""Text that stands for text: a model's "rest unchanged" would delete what it stands for."""

from __future__ import annotations

import re

from wieldy.core.failure import ToolFailure
from wieldy.schema.pattern import pattern

_OPENERS = pattern(r"^(?:\{/\*|//+|#+|/\*+|\*+|<!--+|--+|;+|%+)\s*")
_CLOSERS = pattern(r"\s*(?:\*/\}?|--+>)$")
_DOTS = pattern(r"^[\[({\s]*(?:\.{3,}|…)|(?:\.{3,}|…)[\])}\s]*$")
_AROUND = " \t.…[](){}:"
_WHAT = r"(?:code|file|contents?|functions?|methods?|class(?:es)?|implementation|logic|lines|text|body|imports)"
_SAME = r"(?:(?:is |are )?(?:unchanged|the same|omitted)|remains?|stays?|stay|(?:goes )?here|below|above|as (?:before|is|they))"
_REST_OF = rf"(?:the )?(?:rest|remainder) of (?:(?:the|your|this) )?(?:\w+ )?{_WHAT}(?: {_SAME}\b.*)?"
# A comment that says this much needs no dots to be a placeholder.
_PLAIN = _REST_OF
_DOTTED = (
    rf"{_REST_OF}|(?:the )?rest(?: {_SAME}\b.*)?"
    rf"|(?:the )?(?:existing|remaining|previous|unchanged|original|other|same) (?:\w+ )?{_WHAT}(?: {_SAME}\b.*)?"
    rf"|(?:{_WHAT} )?(?:unchanged|omitted|same as (?:before|above)|as before)(?: {_WHAT})?(?: for brevity)?"
)
LONGEST = 200
# No line without one of these is a placeholder, which spares looking at most lines.
_HINT = pattern(r"\.\.\.|…|(?:rest|remainder) +of", re.IGNORECASE)


def placeholders(text: str) -> list[tuple[int, str]]:
    """Lines that stand for text left out, with their numbers from 1."""
    found: dict[int, str] = {}
    number = start = 0
    for hint in _HINT.finditer(text):
        if hint.start() < start:
            continue
        number += text.count("\n", start, hint.start())
        begin = text.rfind("\n", 0, hint.start()) + 1
        end = text.find("\n", hint.end())
        line = text[begin : end if end >= 0 else len(text)]
        start = begin + len(line)
        if len(line) < LONGEST and _stands_for_text(line):
            found[number + 1] = line
    return list(found.items())


def refuse_placeholders(new: str, old: str, what: str = "new_string") -> None:
    """Refuse a new text with a placeholder in it, unless the same line is in the old one."""
    found = placeholders(new)
    if not found:
        return
    there = {line.strip() for line in old.split("\n")}
    for number, line in found:
        if line.strip() not in there:
            raise ToolFailure(
                f"Line {number} of {what} is a placeholder for text left out: `{line.strip()}`. It would be written "
                "literally and the text it stands for would be lost. Send the whole text, or a smaller edit."
            )


def _stands_for_text(line: str) -> bool:
    stripped = line.strip()
    inner = _CLOSERS.sub("", _OPENERS.sub("", stripped))
    words = " ".join(inner.strip(_AROUND).split())
    if not words:
        return False
    if _DOTS.search(inner):
        return re.fullmatch(_DOTTED, words, re.IGNORECASE) is not None
    return inner != stripped and re.fullmatch(_PLAIN, words, re.IGNORECASE) is not None
