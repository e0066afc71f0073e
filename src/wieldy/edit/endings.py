"""Line ends for new text: a line that was there keeps its own, a new one takes its neighbour's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import SequenceMatcher

from wieldy.schema.pattern import pattern

_ENDED = pattern(r"([^\r\n]*)(\r\n|\n|\r)")
ALIGNED_AT_MOST = 1_000_000


def with_endings(new: str, old: str, neighbour: str) -> str:
    """`new`, with `\\n` ends, as it belongs in place of `old`, whose line ends are as in the file."""
    if "\n" not in new:
        return new
    lines = _ENDED.findall(old)
    kinds = {end for _, end in lines}
    if len(kinds) > 1:
        pieces = new.split("\n")
        ends = _kept_apart(pieces, _aligned([text for text, _ in lines], [end for _, end in lines], pieces[:-1]))
        return "".join(map("".join, zip(pieces, ends, strict=False))) + pieces[-1]
    end = kinds.pop() if kinds else neighbour
    return new if end == "\n" else new.replace("\n", end)


def _kept_apart(lines: list[str], ends: Iterable[str]) -> Iterator[str]:
    """The line ends, none of which makes one with the end of the line before: an empty line ends as that does."""
    last = ""
    for line, end in zip(lines, ends, strict=False):
        last = "\r" if not line and last == "\r" and end == "\n" else end
        yield last


def _aligned(old: list[str], ends: list[str], new: list[str]) -> Iterator[str]:
    """One line end for each new line: of the line it equals or stands for, else of the one before."""
    if len(old) * len(new) > ALIGNED_AT_MOST:
        yield from (ends[min(i, len(ends) - 1)] for i in range(len(new)))
        return
    last = ends[0]
    for _, i, j, k, m in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        for n in range(m - k):
            if i + n < j:
                last = ends[i + n]
            yield last
