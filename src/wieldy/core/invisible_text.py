"""Makes text safe to show: characters that cannot be seen are spelled out."""

from __future__ import annotations

import re

# Zero-width, direction-changing and invisible-operator characters, tags, odd blanks and control characters.
_HIDDEN = re.compile(
    "[\u00a0\u00ad\u034f\u061c\u115f\u1160\u1680\u17b4\u17b5\u180e\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\u3164"
    "\ud800-\udfff\ufeff\uffa0\U000e0000-\U000e0fff\x00-\x08\x0b-\x1f\x7f-\x9f]"
)
LEAST_PADDING = 80
_PADDING = re.compile(rf"(?<=\S)[ \t]{{{LEAST_PADDING},}}(?=\S)")


def escape_invisible(text: str) -> str:
    """The text with hidden characters as `<U+200B>` and long runs of blanks counted."""
    shown = _HIDDEN.sub(lambda found: f"<U+{ord(found[0]):04X}>", text)
    return _PADDING.sub(lambda found: f" <{len(found[0])} blanks> ", shown)


def escape_to_line(text: str) -> str:
    """The text safe to show on one line."""
    return escape_invisible(text).replace("\n", "⏎")


def describe_invisible(text: str) -> str | None:
    """What in a text would escape the eye, in words; None for honest text."""
    # Most text is plain; then the largest pattern here need not even be compiled.
    plain = text.isascii() and text.isprintable()
    if not plain and (odd := _HIDDEN.search(text)) is not None:
        return f"a character that cannot be seen (U+{ord(odd[0]):04X})"
    if len(text) > LEAST_PADDING and (padding := _PADDING.search(text)) is not None:
        return f"a run of {len(padding[0])} blanks"
    return None
