"""Turns terminal output into plain text: removes control sequences and folds overwritten lines to their last state."""

from __future__ import annotations

import re

_ERASE_TO_END = "\x00"
_ERASE_LINE = "\x01"
_NO_COLUMN = 1 << 60

_SEQUENCE = re.compile(
    r"\x1b\[(?P<parameters>[0-?]*+)[ -/]*+(?P<final>[@-~])?"  # control sequences: colors, cursor, erasing
    r"|\x1b[\]PX^_][^\x07\x1b\n]*+(?:\x07|\x1b\\)?"  # titles, links and other strings, ended at the latest by the line
    r"|\x1b[ -/]*+[0-~]?"  # short sequences and incomplete ones
    r"|[\x00-\x07\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f]"  # other control characters
)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def clean(text: str) -> str:
    """The text as a terminal would show it in the end, without control characters."""
    if not _CONTROL.search(text):
        return text
    text = _SEQUENCE.sub(_replace_sequence, text.replace("\r\n", "\n"))
    if not re.search(r"[\r\x08\x00\x01]", text):
        return text
    return "\n".join(map(_fold_line, text.split("\n")))


def clean_bytes(data: bytes | bytearray) -> str:
    """`clean` for bytes; what is not UTF-8 becomes U+FFFD."""
    return clean(data.decode("utf-8", "replace"))


def _replace_sequence(match: re.Match[str]) -> str:
    if match["final"] != "K":
        return ""
    return {"": _ERASE_TO_END, "0": _ERASE_TO_END, "2": _ERASE_LINE}.get(match["parameters"], "")


def _fold_line(line: str) -> str:
    """One line after its carriage returns, read backwards because later text covers earlier text."""
    if not re.search(r"[\r\x08\x00\x01]", line):
        return line
    pieces: list[str] = []
    covered, limit = 0, len(line)
    for segment in reversed(line.rstrip("\r").split("\r")):
        text, erased_from = _apply_erasing(segment)
        if covered < min(len(text), limit):
            pieces.append(text[covered:limit])
            covered = min(len(text), limit)
        limit = min(limit, erased_from)
        if covered >= limit:
            break
    return "".join(pieces).rstrip(" ") if len(pieces) > 1 else "".join(pieces)


def _apply_erasing(segment: str) -> tuple[str, int]:
    """The text that one pass over a line wrote, and the column from which it erased earlier text."""
    if not re.search(r"[\x08\x00\x01]", segment):
        return segment, _NO_COLUMN
    characters: list[str] = []
    erased_from = _NO_COLUMN
    for character in segment:
        if character == "\x08":
            if characters:
                characters.pop()
        elif character == _ERASE_TO_END:
            erased_from = min(erased_from, len(characters))
        elif character == _ERASE_LINE:
            erased_from = 0
            characters.clear()
        else:
            characters.append(character)
    return "".join(characters), erased_from
