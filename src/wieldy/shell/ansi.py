"""Turns what a program sent to a terminal into the text a person would have seen there. Linear in its input."""

from __future__ import annotations

import re

from wieldy.schema.pattern import pattern

_ERASE_TAIL = "\x00"
_ERASE_LINE = "\x01"
_NOWHERE = 1 << 60

_SEQUENCE = pattern(
    r"\x1b\[(?P<parameters>[0-?]*+)[ -/]*+(?P<final>[@-~])?"  # control sequences: colours, cursor, erasing
    r"|\x1b[\]PX^_][^\x07\x1b\n]*+(?:\x07|\x1b\\)?"  # titles, links and other strings, which the line's end also ends
    r"|\x1b[ -/]*+[0-~]?"  # short sequences, and an escape that leads nowhere
    r"|[\x00-\x07\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f]"  # everything else that is no text
)
_NEEDS_CARE = pattern(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def clean(text: str) -> str:
    """The text without control characters: sequences gone, overwritten progress folded to its last state."""
    if not _NEEDS_CARE.search(text):
        return text
    text = _SEQUENCE.sub(_replacement, text.replace("\r\n", "\n"))
    if not re.search(r"[\r\x08\x00\x01]", text):
        return text
    return "\n".join(map(_shown, text.split("\n")))


def clean_bytes(data: bytes | bytearray) -> str:
    """`clean` for bytes; what is not UTF-8 is shown as U+FFFD."""
    return clean(data.decode("utf-8", "replace"))


def _replacement(match: re.Match[str]) -> str:
    if match["final"] != "K":
        return ""
    return {"": _ERASE_TAIL, "0": _ERASE_TAIL, "2": _ERASE_LINE}.get(match["parameters"], "")


def _shown(line: str) -> str:
    """One line as it stood on the screen in the end. Later text covers earlier text, so it is read backwards."""
    if not re.search(r"[\r\x08\x00\x01]", line):
        return line
    pieces: list[str] = []
    covered, limit = 0, len(line)
    for segment in reversed(line.rstrip("\r").split("\r")):
        text, erased_from = _written(segment)
        if covered < min(len(text), limit):
            pieces.append(text[covered:limit])
            covered = min(len(text), limit)
        limit = min(limit, erased_from)
        if covered >= limit:
            break
    return "".join(pieces).rstrip(" ") if len(pieces) > 1 else "".join(pieces)


def _written(segment: str) -> tuple[str, int]:
    """What one pass over a line wrote, and the column from which it erased what was there before."""
    if not re.search(r"[\x08\x00\x01]", segment):
        return segment, _NOWHERE
    written: list[str] = []
    erased_from = _NOWHERE
    for character in segment:
        if character == "\x08":
            if written:
                written.pop()
        elif character == _ERASE_TAIL:
            erased_from = min(erased_from, len(written))
        elif character == _ERASE_LINE:
            erased_from = 0
            written.clear()
        else:
            written.append(character)
    return "".join(written), erased_from
