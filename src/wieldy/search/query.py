"""What is searched for, and what was found."""

from __future__ import annotations

import heapq
import os
from collections.abc import Callable, Iterable
from typing import Literal, TypeAlias

from msgspec import Struct

from wieldy.search.ripgrep import Line

Mode: TypeAlias = Literal["files_with_matches", "content", "count"]
Omit: TypeAlias = Callable[[str], bool]


def omitted_by(judge: object) -> Omit | None:
    """What a judge of permissions keeps from being seen, if it keeps anything."""
    hides: Omit | None = getattr(judge, "hides", None)
    return hides if getattr(judge, "hides_anything", True) else None


class Query(Struct, frozen=True):
    """A search for a regular expression in an absolute file or folder. A `limit` of 0 means all."""

    pattern: str
    root: str
    mode: Mode = "files_with_matches"
    globs: tuple[str, ...] = ()
    file_type: str | None = None
    ignore_case: bool = False
    only_matching: bool = False
    multiline: bool = False
    before: int = 0
    after: int = 0
    limit: int = 250
    offset: int = 0

    @property
    def around(self) -> bool:
        """Whether lines beside a match are wanted."""
        return bool(self.before or self.after) and not self.only_matching

    @property
    def counts_matches(self) -> bool:
        """Whether single matches are counted, not the lines that have them."""
        return self.multiline or self.only_matching

    @property
    def one_line_a_match(self) -> bool:
        """Whether every match counted is exactly one line printed."""
        return not (self.around or self.counts_matches)


class FileMatches(Struct, frozen=True):
    """A file (absolute path) and how many matches it has; 0 where they were not counted."""

    path: str
    count: int = 0


class Found(Struct, frozen=True):
    """One page of a search and the size of the whole. `notices` say what is missing from it and why."""

    files: tuple[FileMatches, ...] = ()
    lines: tuple[tuple[str, Line], ...] = ()
    total_files: int = 0
    total_matches: int = 0
    more: bool = False
    notices: tuple[str, ...] = ()


def newest_first(batches: Iterable[Iterable[str]], limit: int = 0) -> list[str]:
    """Files by the time they were changed, latest first; equal times by path, files that are gone last. 0 means all."""
    keyed = []
    stat = os.stat
    for batch in batches:
        for path in batch:
            try:
                keyed.append((-stat(path).st_mtime_ns, path))
            except OSError:
                keyed.append((0, path))
    if limit and limit * 8 < len(keyed):
        keyed = heapq.nsmallest(limit, keyed)
    else:
        keyed.sort()
    return [path for _, path in keyed[: limit or None]]
