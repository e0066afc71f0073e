"""One page of a text file of any size, encoding and line ending."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate

from wieldy.core.failure import ToolFailure
from wieldy.core.record import record
from wieldy.reading.extent import CHARS, LIMIT
from wieldy.reading.opened import Opened, shown
from wieldy.text.encoding import UTF8, Encoding, detect

WIDEST = 2000
LOADED = 16 << 20
BLOCK = 256 * 1024


@record
class Page:
    """Some lines of a file, plain and as a model reads them (`numbered`).

    `total` is the number of lines in the file, or at least that many where not all were `counted`; `data` is the whole
    file where it was small enough to be loaded.
    """

    lines: list[str]
    numbered: str
    first: int
    total: int
    counted: bool
    size: int
    encoding: Encoding
    breaks: str
    data: bytes | None

    @property
    def last(self) -> int:
        """The number of the last line on the page; before `first` when the page is empty."""
        return self.first + len(self.lines) - 1

    @property
    def complete(self) -> bool:
        """Whether the page holds every line of the file."""
        return self.first == 1 and self.counted and self.last == self.total


def read_page(
    file: Opened,
    *,
    first: int = 1,
    limit: int = LIMIT,
    chars: int = CHARS,
    loaded: int = LOADED,
    block: int = BLOCK,
    stopped: Callable[[], bool] = lambda: False,
) -> Page:
    """Lines `first` to `first + limit - 1`, fewer if they would take more than `chars` characters.

    Files up to `loaded` bytes are held whole, larger ones pass in blocks. `stopped` is asked between blocks.
    """
    data = file.whole(loaded)
    if data is not None and first == 1 and (page := _whole_page(data, limit, chars)) is not None:
        return page
    if data is None and not file.sized:
        raise ToolFailure(f"{shown(file.path)} gives data without end. Use Bash with `head -c` to see its beginning.")
    from wieldy.reading.source import Source

    source = Source(file, data, block, stopped)
    window = source.window(max(first, 1), limit, chars, WIDEST)
    lines, numbered = _within(window.lines, window.first, chars)
    return Page(
        lines=lines,
        numbered=numbered,
        first=window.first,
        total=window.total,
        counted=window.ended,
        size=file.stat.st_size if data is None else len(data),
        encoding=source.encoding,
        breaks=source.breaks.name,
        data=data,
    )


def _whole_page(data: bytes, limit: int, chars: int) -> Page | None:
    """All of a file that needs no more than to be cut into lines, as most do; None for any other."""
    if len(data) >= chars or b"\r" in data or detect(data) is not UTF8:
        return None
    lines = data.decode().split("\n")
    if not lines[-1]:
        lines.pop()
    if not lines or len(lines) > limit or max(map(len, lines)) > WIDEST:
        return None
    numbered = "\n".join([f"{number}\t{line}" for number, line in enumerate(lines, 1)])
    if len(numbered) >= chars:
        return None
    breaks = "LF" if b"\n" in data else ""
    return Page(lines, numbered, 1, len(lines), True, len(data), UTF8, breaks, data)


def _within(lines: list[str], first: int, chars: int) -> tuple[list[str], str]:
    """As many of the lines as fit in so many characters when numbered, but at least one; and how they look then."""
    numbered = [f"{number}\t{line}" for number, line in enumerate(lines, first)]
    text = "\n".join(numbered)
    if len(text) <= chars:
        return lines, text
    ends = accumulate(len(line) + 1 for line in numbered)
    fitting = max(sum(end <= chars + 1 for end in ends), 1)
    return lines[:fitting], "\n".join(numbered[:fitting])
