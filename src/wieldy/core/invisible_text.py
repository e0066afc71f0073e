"""Make control and invisible characters visible before text is shown to a person.

`escape_controls` is for text of any kind: what could command a terminal or reorder text is spelled out, and blanks and
joiners that languages and emoji need stay. `escape_invisible` is for text that a person decides about: nothing that
cannot be seen stays.
"""

from __future__ import annotations

import re

# Zero-width, direction-changing and invisible-operator characters, tags, odd blanks and control characters.
_INVISIBLE = re.compile(
    "[\u00a0\u00ad\u034f\u061c\u115f\u1160\u1680\u17b4\u17b5\u180e\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\u3164"
    "\ud800-\udfff\ufeff\uffa0\U000e0000-\U000e0fff\x00-\x08\x0b-\x1f\x7f-\x9f]"
)
# C0 without tab and line feed, DEL, C1, direction marks and overrides, zero-width characters, line separators, annotations,
# tags and surrogates. The tags of a flag, and a joiner between characters beyond ASCII, are part of what is seen.
CONTROL = re.compile(
    "(?P<visible>\U0001f3f4[\U000e0020-\U000e007e]{1,8}\U000e007f"
    "|(?<=[^\x00-\xa0\u2000-\u206f])[\u200c\u200d](?=[^\x00-\xa0\u2000-\u206f]))"
    "|\r\n"
    "|[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e0fff]"
)
MIN_PADDING = 80
_PADDING = re.compile(rf"(?<=\S)[ \t]{{{MIN_PADDING},}}(?=\S)")


def escape_controls(text: str) -> str:
    """Show control characters as `<U+001B>`. CRLF becomes a line feed; a lone carriage return is a control character."""
    return CONTROL.sub(_escape_control, text)


def _escape_control(match: re.Match[str]) -> str:
    text = match[0]
    if match.lastgroup == "visible":
        return text
    return "\n" if text == "\r\n" else f"<U+{ord(text):04X}>"


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
