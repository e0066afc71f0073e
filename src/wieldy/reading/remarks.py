"""What has to be said about a page beside its lines: what else there is, and how the file keeps its text."""

from __future__ import annotations

from wieldy.reading.page import Page
from wieldy.text.encoding import Encoding


def remarks(page: Page) -> str:
    """Short sentences, or nothing where the page is a whole file in UTF-8 with plain line feeds."""
    said = [_extent(page), _encoding(page.encoding), _breaks(page.breaks)]
    return " ".join(filter(None, said))


def size_of(count: int) -> str:
    """A number of bytes as a person says it."""
    if count < 1000:
        return f"{count} bytes"
    amount = float(count)
    for unit in ("KB", "MB", "GB"):
        amount /= 1000
        if amount < 999.5:
            return f"{amount:.3g} {unit}"
    return f"{amount / 1000:.3g} TB"


def _extent(page: Page) -> str:
    if not page.lines:
        if page.total == 0:
            return "The file exists but is empty."
        return f"Nothing to show: the file has {page.total} lines, so offset={page.first} is beyond its end."
    span = f"Lines {page.first}-{page.last}"
    if not page.counted:
        return f"{span} of more than {page.total} ({size_of(page.size)}). Read on with offset={page.last + 1}."
    if page.last < page.total:
        return f"{span} of {page.total}. Read on with offset={page.last + 1}."
    return f"{span} of {page.total}: the end of the file." if page.first > 1 else ""


def _encoding(encoding: Encoding) -> str:
    if encoding.name == "utf-8":
        mark = "The file starts with a UTF-8 byte order mark." if encoding.bom else ""
        stray = "" if encoding.sure else "Some bytes are not valid UTF-8 and are shown as \N{REPLACEMENT CHARACTER}."
        return " ".join(filter(None, (mark, stray)))
    return f"Encoding: {encoding.name}{' with byte order mark' if encoding.bom else ''}{_doubt(encoding)}."


def _doubt(encoding: Encoding) -> str:
    if encoding.sure:
        return ""
    return ", but some of it does not decode" if encoding.bom else " (a guess)"


def _breaks(name: str) -> str:
    return f"Line endings: {name}." if name in {"CRLF", "CR", "mixed"} else ""
