"""Searching files for a regular expression.

Two steps: every matching file is found, with its number of matches, by all cores; then only the files whose lines are
on the page asked for are printed, in order. So totals are exact, pages do not depend on chance, and memory stays small.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence

from wieldy.core.threads import in_thread
from wieldy.search.command import Engine, printing
from wieldy.search.complaint import notices_of
from wieldy.search.failure import SearchFailure
from wieldy.search.lines import Line, LineReader
from wieldy.search.newest import newest_first
from wieldy.search.process import run
from wieldy.search.query import FileMatches, Found, Omit, Query
from wieldy.search.survey import Place, flags_for, place_of, survey_files

MAX_CHARS = 10_000_000
PATTERN_BYTES = 100_000
_BATCH = 200


async def grep(query: Query, engine: Engine, omit: Omit | None = None) -> Found:
    """Search. `omit` names files (by absolute path) that must not appear in any way."""
    _check_pattern(query.pattern)
    place = await in_thread(place_of, query.root)
    if place.binary:
        return Found(notices=("The file is binary, and binary files are not searched.",))
    deadline = time.monotonic() + engine.seconds
    survey = await survey_files(query, place, engine, omit)
    notices = (*notices_of(survey.ending, engine), *survey.notices)
    if query.mode == "content":
        # Whatever the first step took, its files deserve to be shown.
        left = max(deadline - time.monotonic(), engine.seconds / 4)
        return await _print_page(query, place, engine, survey.files, left, notices)
    files = survey.files
    if query.mode == "files_with_matches":
        newest = await in_thread(newest_first, ([file.path for file in files],))
        files = [FileMatches(path) for path in newest]
    page = tuple(files[query.offset :][: query.limit or None])
    return Found(
        files=page,
        total_files=len(files),
        total_matches=sum(file.count for file in files),
        more=query.offset + len(page) < len(files),
        notices=notices,
    )


async def _print_page(
    query: Query, place: Place, engine: Engine, files: Sequence[FileMatches], seconds: float, notices: tuple[str, ...]
) -> Found:
    page = _Page(query, place)
    for batch in _batches(files, query, page):
        names = [b"./" + os.fsencode(file.path[len(page.above) :]) for file in batch]
        argv = printing(engine, query.pattern, flags_for(query, context=True), names)
        ending = await run(argv, cwd=place.folder, env=engine.env, seconds=seconds, feed=page.reader.feed)
        if ending.out_of_time:
            notices += (f"Printing lines was stopped after {seconds:g} s, so some are missing. Narrow the search.",)
        if page.full or ending.out_of_time:
            break
    if page.chars > MAX_CHARS:
        notices += (f"The output was stopped at {MAX_CHARS} characters. Narrow the search or set head_limit.",)
    shown = {path for path, _ in page.kept}
    return Found(
        files=tuple(file for file in files if file.path in shown),
        lines=tuple(page.kept),
        total_files=len(files),
        total_matches=sum(file.count for file in files),
        more=page.full,
        notices=notices,
    )


def _check_pattern(pattern: str) -> None:
    if "\0" in pattern:
        raise SearchFailure("The pattern contains a NUL byte, which cannot be searched for. Write \\x00 to mean it.")
    try:
        size = len(pattern.encode())
    except UnicodeEncodeError:
        raise SearchFailure("The pattern is not valid Unicode text.") from None
    if size > PATTERN_BYTES:
        raise SearchFailure(f"The pattern is {size} bytes long; at most {PATTERN_BYTES} can be searched for.")


class _Page:
    """Collects the lines that are on the page asked for."""

    def __init__(self, query: Query, place: Place) -> None:
        self.above = place.folder.rstrip("/") + "/"
        self.skip = query.offset
        self.limit = query.limit
        self.only_parts = query.only_matching
        self.kept: list[tuple[str, Line]] = []
        self.chars = 0
        self.full = False
        self.reader = LineReader(self.take)

    def take(self, line: Line) -> bool:
        if self.only_parts and not line.text:
            return False
        if self.skip:
            self.skip -= 1
            return False
        if (self.limit and len(self.kept) == self.limit) or self.chars > MAX_CHARS:
            self.full = True
            return True
        self.kept.append((self.above + os.fsdecode(line.path[2:]), line))
        self.chars += len(line.text) + len(line.path)
        return False


def _batches(files: Sequence[FileMatches], query: Query, page: _Page) -> Iterator[Sequence[FileMatches]]:
    """The files to print, some at a time; those that are wholly before the page are not printed at all."""
    start = 0
    while query.one_line_a_match and start < len(files) and files[start].count <= page.skip:
        page.skip -= files[start].count
        start += 1
    for first in range(start, len(files), _BATCH):
        yield files[first : first + _BATCH]
