"""Decoding of bash's `$'…'` quotes."""

from __future__ import annotations

import re

from wieldy.schema.pattern import pattern
from wieldy.shell.syntax import Unparsable

_ESCAPE = pattern(r"\\(?:x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{1,4})|U([0-9a-fA-F]{1,8})|([0-7]{1,3})|(c.)|(.))", re.DOTALL)
_NAMED = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "v": "\v"}


def decode(body: str) -> str:
    """The characters that `$'body'` stands for."""
    return _ESCAPE.sub(_character, body)


def _character(match: re.Match[str]) -> str:
    byte, short, long, octal, control, other = match.groups()
    if control:
        raise Unparsable("a control escape in $'…'")
    if other:
        return _NAMED.get(other) or (other if other in "\\'\"?" else "\\" + other)
    code = int(octal, 8) if octal else int(byte or short or long, 16)
    # Bytes above ASCII depend on the locale, and a NUL cuts the string short.
    if code == 0 or code > 0x10FFFF or 0xD800 <= code < 0xE000 or ((byte or octal) and code > 0x7F):
        raise Unparsable("an escape in $'…' that depends on the locale")
    return chr(code)
