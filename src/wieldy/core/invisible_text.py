"""Make invisible characters visible before text is shown to a person."""

from __future__ import annotations

import re

# Zero-width, direction-changing and invisible-operator characters, tags, odd blanks and control characters.
_INVISIBLE = re.compile(
    "[\u00a0\u00ad\u034f\u061c\u115f\u1160\u1680\u17b4\u17b5\u180e\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\u3164"
    "\ud800-\udfff\ufeff\uffa0\U000e0000-\U000e0fff\x00-\x08\x0b-\x1f\x7f-\x9f]"
)
MIN_PADDING = 80
_PADDING = re.compile(rf"(?<=\S)[ \t]{{{MIN_PADDING},}}(?=\S)")


def escape_invisible(text: str) -> str:
    """Show invisible characters as `<U+200B>`, and count long runs of blanks."""
    escaped = _INVISIBLE.sub(lambda match: f"<U+{ord(match[0]):04X}>", text)
    return _PADDING.sub(lambda match: f" <{len(match[0])} blanks> ", escaped)


def escape_to_line(text: str) -> str:
    """Like `escape_invisible`, on one line."""
    return escape_invisible(text).replace("\n", "⏎")


def describe_invisible(text: str) -> str | None:
    """Describe the invisible part of a text; None where everything is visible."""
    if (character := _INVISIBLE.search(text)) is not None:
        return f"a character that cannot be seen (U+{ord(character[0]):04X})"
    if (padding := _PADDING.search(text)) is not None:
        return f"a run of {len(padding[0])} blanks"
    return None
