"""Format names and lines for a model: short, on one line, and always valid text."""

from __future__ import annotations

import re
from collections.abc import Mapping

LINE_CHARS = 500
LEAD_CHARS = 100
# How a carriage return is shown that is no line end: the progress bars of programs are full of them.
SHOWN_RETURN = "\N{SYMBOL FOR CARRIAGE RETURN}"
_SURROGATE = re.compile("[\ud800-\udfff]")
# Control characters that no result shows: `clean` in `engine/results.py` removes them.
HIDDEN_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_NAMES = {
    "\x07": "BEL",
    "\x08": "backspace",
    "\x0b": "vertical tab",
    "\x0c": "form feed",
    "\r": "carriage return",
    "\x1b": "ESC",
}
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def relative_path(path: str, cwd: str) -> str:
    """A path as a model can use it again: relative when it is below the working directory, else absolute."""
    prefix = cwd.rstrip("/") + "/"
    short = path.removeprefix(prefix)
    if short.startswith("~"):
        short = f"./{short}"
    return escape_controls(display_path(short))


def display_path(path: str) -> str:
    """A path as valid text; bytes that are not UTF-8 become replacement characters."""
    return path if path.isascii() else _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", path)


def escape_controls(text: str) -> str:
    """Make control characters visible."""
    return _CONTROL.sub(lambda match: repr(match[0])[1:-1], text)


def describe_characters(counts: Mapping[str, int]) -> str:
    """How many control characters there are of which kind."""
    total = sum(counts.values())
    kinds = [f"{count} {_NAMES.get(char, f'U+{ord(char):04X}')}" for char, count in sorted(counts.items())]
    listed = ", ".join(kinds[:5]) + (", …" if len(kinds) > 5 else "")
    return f"{total} control character{'' if total == 1 else 's'} ({listed})"


def cut_line(line: bytes, column: int = 0, missing_before: int = 0, missing_after: int = 0) -> str:
    """A line's text, or the part of a long one around a byte column, saying how many bytes were left out."""
    text = line.decode("utf-8", "replace")
    if len(text) <= LINE_CHARS and not missing_before and not missing_after:
        return text
    start = 0
    focus = len(line[: max(column - 1, 0)].decode("utf-8", "replace"))
    if focus > LINE_CHARS - LEAD_CHARS:
        start = focus - LEAD_CHARS
    middle = text[start : start + LINE_CHARS]
    before = missing_before + len(text[:start].encode())
    after = missing_after + len(text[start + LINE_CHARS :].encode())
    opening = f"[{before} bytes cut] " if before else ""
    return opening + middle + (f" [{after} bytes cut]" if after else "")


def format_size(count: int) -> str:
    """A number of bytes in a readable unit."""
    if count < 1000:
        return f"{count} byte{'s' if count != 1 else ''}"
    amount = float(count)
    for unit in ("KB", "MB", "GB"):
        amount /= 1000
        if amount < 999.5:
            return f"{amount:.3g} {unit}"
    return f"{amount / 1000:.3g} TB"
