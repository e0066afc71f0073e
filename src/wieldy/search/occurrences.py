"""Where a regular expression occurs in a text, by match, by line, and by line with its neighbours."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from functools import cached_property
from typing import TypeAlias

# Line number, column in bytes (0 for a line that is only context), text.
Written: TypeAlias = tuple[int, int, str]


class Occurrences:
    """The matches of one regular expression in one text; never an empty one after the last line break."""

    def __init__(self, text: str, regex: re.Pattern[str]) -> None:
        self.text = text
        self.regex = regex

    def __iter__(self) -> Iterator[re.Match[str]]:
        # Not `finditer`: after an empty match Python tries the same place again, Rust goes on to the next.
        search, text = self.regex.search, self.text
        past_the_last_line = len(text) if text.endswith("\n") or not text else -1
        position, last_end = 0, -1
        while position <= len(text) and (match := search(text, position)):
            start, end = match.span()
            position = end + (start == end)
            if start < end or start not in (last_end, past_the_last_line):
                last_end = end
                yield match

    @cached_property
    def _starts(self) -> list[int]:
        """Where each line begins."""
        starts = [0, *(found.end() for found in re.finditer("\n", self.text))]
        return starts[:-1] if len(starts) > 1 and starts[-1] == len(self.text) else starts

    def _line_of(self, position: int) -> int:
        return bisect_right(self._starts, position) - 1

    def _line(self, index: int) -> str:
        end = self._starts[index + 1] if index + 1 < len(self._starts) else len(self.text)
        return self.text[self._starts[index] : end].removesuffix("\n")

    def _column(self, position: int) -> int:
        before = self.text[self._starts[self._line_of(position)] : position]
        return len(before.encode("utf-8", "surrogateescape")) + 1

    def lines(self) -> dict[int, int]:
        """The lines that are matched, each with the column of its first match."""
        found: dict[int, int] = {}
        for match in self:
            first = self._line_of(match.start())
            last = self._line_of(max(match.start(), match.end() - 1))
            for index in range(first, last + 1):
                found.setdefault(index, self._column(match.start()) if index == first else 1)
        return found

    def parts(self) -> Iterator[Written]:
        """The matched text alone, line by line, without empty parts."""
        for match in self:
            first = self._line_of(match.start())
            for index, part in enumerate(match[0].split("\n")):
                if part:
                    yield first + index + 1, self._column(match.start()) if index == 0 else 1, part

    def in_context(self, before: int, after: int) -> Iterator[Written]:
        """The matched lines with their neighbours, each line once."""
        matched = self.lines()
        shown = -1
        for index in sorted(matched):
            end = min(index + after, len(self._starts) - 1)
            for near in range(max(shown + 1, index - before), end + 1):
                yield near + 1, matched.get(near, 0), self._line(near)
            shown = max(shown, end)
