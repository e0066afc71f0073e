"""Searching files for a regular expression.

Two steps: every matching file is found, with its number of matches, by all cores; then only the files whose lines are
on the page asked for are printed, in order. So totals are exact, pages do not depend on chance, and memory stays small.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Iterator, Sequence

from msgspec import Struct

from wieldy.core.threads import in_thread
from wieldy.search.errors import SearchFailure
from wieldy.search.ignore import BadGlob, Matches, compile_any
from wieldy.search.query import FileMatches, Found, Omit, Query, newest_first
from wieldy.search.ripgrep import (
    Ending,
    Engine,
    Line,
    LineReader,
    excluding,
    matching,
    name_filter,
    nearest_types,
    printing,
)


def failed(ending: Ending) -> bool:
    """Whether a program could not do its work at all; a complaint about single files is no failure."""
    about_files = ending.complaint.startswith(("rg: ./", "rg: /"))
    return ending.code not in (None, 0, 1) and not about_files


def notices_of(ending: Ending, engine: Engine) -> Iterator[str]:
    """What is missing from a result, in sentences."""
    if ending.out_of_time:
        yield f"The search was stopped after {engine.seconds:g} s, so results are incomplete. Narrow path or glob."
    if ending.unreadable:
        files = "1 file or folder" if ending.unreadable == 1 else f"{ending.unreadable} files or folders"
        yield f"{files} could not be read."


async def failure(complaint: str, query: Query, engine: Engine) -> SearchFailure:
    """Why a search could not be done, and what to do about it."""
    if "unrecognized file type" in complaint:
        near = ", ".join(await in_thread(nearest_types, engine.program[0], query.file_type or ""))
        advice = f" Did you mean: {near}?" if near else ""
        return SearchFailure(
            f"There is no file type {query.file_type!r}.{advice} A `glob` such as '*.ext' works for any file."
        )
    reason = complaint.partition("Consider enabling")[0].removeprefix("rg: ").strip()
    if "is not allowed in a regex" in reason:
        return SearchFailure(f"{reason[0].upper()}{reason[1:]}. Set multiline to true to match across lines.")
    if "regex parse error" not in reason and "ompiled regex" not in reason:
        return SearchFailure(f"The search failed: {reason or 'the search program gave no reason'}")
    # What comes before the error shows the pattern as the program wraps it, which nobody wrote.
    reason = reason.rpartition("error: ")[2]
    return SearchFailure(f"The pattern is not a valid regular expression: {reason}.{_advice(reason)}")


def _advice(reason: str) -> str:
    if "repetition" in reason:
        return " To search for a literal { } * + or ?, write a backslash before it."
    if "group" in reason:
        return " To search for a literal parenthesis, write a backslash before it."
    if "class" in reason:
        return " To search for a literal [ or ], write a backslash before it."
    if "look-around" in reason or "backreference" in reason:
        return " Search for a simpler pattern and judge the lines found."
    return ""


MAX_FILES = 500_000
_BINARY_PROBE = 65_536
_COUNTED = re.compile(rb"([^\0]*)\0(\d+)\r?\n")


class Place(Struct, frozen=True):
    """Where a search runs: in a folder, on one of its files or on all that is below."""

    folder: str
    name: str = ""
    binary: bool = False


def place_of(root: str) -> Place:
    """Where to search for an absolute path; raises OSError when it cannot be opened."""
    kind = os.stat(root).st_mode
    if stat.S_ISDIR(kind):
        return Place(root)
    if not stat.S_ISREG(kind):
        raise SearchFailure(f"{root} is neither a file nor a folder, so it cannot be searched.")
    with open(root, "rb") as file:
        beginning = file.read(_BINARY_PROBE)
    utf16 = beginning.startswith((b"\xff\xfe", b"\xfe\xff"))
    return Place(os.path.dirname(root), os.path.basename(root), b"\0" in beginning and not utf16)


class Survey(Struct, frozen=True):
    """Every file that matches."""

    files: list[FileMatches]
    ending: Ending
    notices: tuple[str, ...]


async def survey_files(query: Query, place: Place, engine: Engine, omit: Omit | None) -> Survey:
    """Find every matching file, in the order of paths."""
    excluded = [glob[1:] for glob in query.globs if glob.startswith("!") and glob != "!"]
    wanted = [glob for glob in query.globs if not glob.startswith("!")]
    try:
        compile_any(excluded)
        test = compile_any(wanted)
    except (BadGlob, re.error) as error:
        raise SearchFailure(f"The glob {' '.join(query.globs)!r} cannot be read: {error}.") from None
    flags = flags_for(query)
    flags += ["--with-filename", _what_to_count(query)]
    if place.name:
        flags.append("--text")
        test = None
    else:
        flags += excluding(excluded)
        flags += [f"--type={query.file_type}"] if query.file_type else name_filter(wanted)
    found = _FoundFiles(place.folder, test, counted=query.mode != "files_with_matches")
    argv = matching(engine, place.folder, query.pattern, flags, f"./{place.name}")
    ending = await engine.run(argv, place.folder, engine.seconds, found.feed)
    if failed(ending):
        raise await failure(ending.complaint, query, engine)
    notices = (f"The search was stopped after {MAX_FILES} files; narrow it.",) if found.full else ()
    return Survey(await in_thread(_ordered, found.files, omit), ending, notices)


def _ordered(files: list[FileMatches], omit: Omit | None) -> list[FileMatches]:
    kept = [file for file in files if not omit(file.path)] if omit else files
    return sorted(kept, key=lambda file: file.path)


def _what_to_count(query: Query) -> str:
    if query.mode == "files_with_matches":
        return "--files-with-matches"
    return "--count-matches" if query.counts_matches else "--count"


class _FoundFiles:
    """Collects matching files from a program's output."""

    def __init__(self, folder: str, test: Matches | None, *, counted: bool) -> None:
        self.above = folder.rstrip("/") + "/"
        self.test = test
        self.counted = counted
        self.files: list[FileMatches] = []
        self.rest = b""

    @property
    def full(self) -> bool:
        return len(self.files) >= MAX_FILES

    def feed(self, piece: bytes) -> bool:
        data = self.rest + piece
        if self.counted:
            end = 0
            for match in _COUNTED.finditer(data):
                end = match.end()
                self.add(match[1], int(match[2]))
            self.rest = data[end:]
        else:
            *names, self.rest = data.split(b"\0")
            for name in names:
                self.add(name, 0)
        return self.full

    def add(self, name: bytes, count: int) -> None:
        below = os.fsdecode(name[2:])
        if self.test is None or self.test(below):
            self.files.append(FileMatches(self.above + below, count))


def flags_for(query: Query, *, context: bool = False) -> list[str]:
    """The options that decide what matches, and how much around it is printed."""
    flags = ["--crlf"]
    if query.ignore_case:
        flags.append("--ignore-case")
    if query.multiline:
        flags += ["--multiline", "--multiline-dotall"]
    if query.only_matching:
        flags.append("--only-matching")
    elif context and query.around:
        flags += [f"--before-context={query.before}", f"--after-context={query.after}"]
    return flags


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
        ending = await engine.run(argv, place.folder, seconds, page.reader.feed)
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
