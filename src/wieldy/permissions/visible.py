"""Makes text safe to show: characters that cannot be seen, or that look like others, are spelled out."""

from __future__ import annotations

import re

# Zero-width, direction-changing, invisible-operator, variation and tag characters, odd blanks and control characters.
_HIDDEN = re.compile(
    "[\u00a0\u00ad\u034f\u061c\u115f\u1160\u1680\u17b4\u17b5\u180e\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\u3164\ufe00-\ufe0f"
    "\ufeff\uffa0\U000e0000-\U000e0fff\x00-\x08\x0b-\x1f\x7f-\x9f]"
)
_BLANKS = re.compile(r"[ \t]{40,}")
_WORD = re.compile(r"\w+")
_LOOKALIKE = re.compile("[\u0370-\u03ff\u0400-\u052f\u0530-\u058f\u13a0-\u13ff\uff01-\uff5e]")
_LATIN = re.compile("[A-Za-z]")


def visible(text: str) -> str:
    """The text with hidden characters as `<U+200B>` and long runs of blanks counted."""
    shown = _HIDDEN.sub(lambda found: f"<U+{ord(found[0]):04X}>", text)
    return _BLANKS.sub(lambda found: f" <{len(found[0])} blanks> ", shown)


def hidden_characters(text: str) -> str | None:
    """What in a text would fool the eye, in words; None for honest text."""
    if text.isascii() and text.isprintable():
        return f"a run of {len(found[0])} blanks" if (found := _BLANKS.search(text)) else None
    if (odd := _HIDDEN.search(text)) is not None:
        return f"a character that cannot be seen (U+{ord(odd[0]):04X})"
    for word in _WORD.findall(text):
        if (foreign := _LOOKALIKE.search(word)) is not None and _LATIN.search(word):
            return f"a letter of another script that looks like a Latin one (U+{ord(foreign[0]):04X} in `{word}`)"
    return f"a run of {len(found[0])} blanks" if (found := _BLANKS.search(text)) else None
