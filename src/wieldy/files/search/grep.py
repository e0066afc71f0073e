"""Search files for a regular expression, in two steps: ripgrep finds every matching file with its number of matches, on all
cores; then only the files whose lines are on the requested page are printed, in order. So totals are exact, pages are
stable, and memory stays small.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

from wieldy.core.filesystem import LOCAL_FILES, FileSystem
from wieldy.core.realpath import PathChanged
from wieldy.core.threads import in_thread
from wieldy.files.search.glob import newest_first
from wieldy.files.search.patterns import BadGlob, HiddenTest, PathTest, compile_globs
from wieldy.files.search.ripgrep import (
    LineReader,
    MatchLine,
    ProcessResult,
    Ripgrep,
    RipgrepProgram,
    SearchFailure,
    describe_gaps,
    exclude_flags,
    file_name_flags,
    has_failed,
)

MAX_FILES = 500_000
MAX_CHARS = 10_000_000
MAX_PATTERN_BYTES = 100_000
_PRINTED_AT_ONCE = 200
_BINARY_PROBE = 65_536
_COUNTED = re.compile(rb"([^\0]*)\0(\d+)\r?\n")

GrepMode: TypeAlias = Literal["files_with_matches", "content", "count"]


class GrepQuery(Struct, frozen=True):
    """A search for a regular expression in an absolute file or folder. A `limit` of 0 means all.

    `real_root` is where the root led when it was judged: nothing else is searched.
    """

    pattern: str
    root: str
    mode: GrepMode = "files_with_matches"
    globs: tuple[str, ...] = ()
    file_type: str | None = None
    ignore_case: bool = False
    only_matching: bool = False
    multiline: bool = False
    before: int = 0
    after: int = 0
    limit: int = 250
    offset: int = 0
    real_root: str = ""

    @property
    def has_context(self) -> bool:
        return bool(self.before or self.after) and not self.only_matching

    @property
    def counts_matches(self) -> bool:
        """Whether single matches are counted, not the lines that have them."""
        return self.multiline or self.only_matching

    @property
    def prints_one_line_per_match(self) -> bool:
        return not (self.has_context or self.counts_matches)


class FileMatches(Struct, frozen=True):
    """A file (absolute path) and how many matches it has; 0 where they were not counted."""

    path: str
    count: int = 0


class GrepResult(Struct, frozen=True):
    """One page of a search and the size of the whole. `notices` say what is missing and why."""

    files: tuple[FileMatches, ...] = ()
    lines: tuple[tuple[str, MatchLine], ...] = ()
    total_files: int = 0
    total_matches: int = 0
    more: bool = False
    notices: tuple[str, ...] = ()


async def grep(query: GrepQuery, ripgrep: Ripgrep, hidden: HiddenTest | None = None) -> GrepResult:
    """Search. Files that are `hidden` do not appear in any way."""
    _check_pattern(query.pattern)
    target = await in_thread(_open_target, query, ripgrep.files)
    if target.binary:
        return GrepResult(notices=("The file is binary, and binary files are not searched.",))
    deadline = time.monotonic() + ripgrep.seconds
    files, result, notices = await _find_matching_files(query, target, ripgrep, hidden)
    notices = (*describe_gaps(result, ripgrep), *notices)
    if query.mode == "content":
        # Whatever the first step took, leave time to print some of its files.
        seconds = max(deadline - time.monotonic(), ripgrep.seconds / 4)
        return await _print_page(query, target, ripgrep, files, seconds, notices)
    if query.mode == "files_with_matches" and ripgrep.files is LOCAL_FILES:  # a backend lists them in this order
        newest = await in_thread(newest_first, ([file.path for file in files],))
        files = [FileMatches(path) for path in newest]
    page = tuple(files[query.offset :][: query.limit or None])
    return GrepResult(
        files=page,
        total_files=len(files),
        total_matches=sum(file.count for file in files),
        more=query.offset + len(page) < len(files),
        notices=notices,
    )


def _check_pattern(pattern: str) -> None:
    if "\0" in pattern:
        raise SearchFailure("The pattern contains a NUL byte, which cannot be searched for. Write \\x00 to mean it.")
    try:
        size = len(pattern.encode())
    except UnicodeEncodeError:
        raise SearchFailure("The pattern is not valid Unicode text.") from None
    if size > MAX_PATTERN_BYTES:
        raise SearchFailure(f"The pattern is {size} bytes long; at most {MAX_PATTERN_BYTES} can be searched for.")


class _Target(Struct, frozen=True):
    """Where a search runs: in a folder, on one of its files (`name`) or on everything below.

    `place` is the folder where a judged path led, if there was one: nothing else may be searched.
    """

    folder: str
    name: str = ""
    binary: bool = False
    place: str = ""

    async def run(
        self,
        ripgrep: Ripgrep,
        argv: Sequence[str | bytes],
        consume: Callable[[bytes], bool],
        seconds: float | None = None,
    ) -> ProcessResult:
        """Run a command there."""
        return await ripgrep.run(argv, self.place or self.folder, consume, seconds, is_resolved=bool(self.place))

    @property
    def prefix(self) -> str:
        return self.folder.rstrip("/") + "/"


def _open_target(query: GrepQuery, files: FileSystem) -> _Target:
    """Raises OSError when the path cannot be opened."""
    root, real = query.root, query.real_root or query.root
    mode = (files.lstat if query.real_root else files.stat)(real).st_mode
    if stat.S_ISLNK(mode):
        files.read_link(real)  # one that may not be read is no link that came later
        raise PathChanged(root)
    if stat.S_ISDIR(mode):
        return _Target(root, place=query.real_root)
    if not stat.S_ISREG(mode):
        raise SearchFailure(f"{root} is neither a file nor a folder, so it cannot be searched.")
    head = files.read_start(real, _BINARY_PROBE)
    utf16 = head.startswith((b"\xff\xfe", b"\xfe\xff"))
    place, name = os.path.split(real)
    folder = os.path.dirname(root) if os.path.basename(root) == name else place
    return _Target(folder, name, b"\0" in head and not utf16, place if query.real_root else "")


async def _find_matching_files(
    query: GrepQuery, target: _Target, ripgrep: Ripgrep, hidden: HiddenTest | None
) -> tuple[list[FileMatches], ProcessResult, tuple[str, ...]]:
    """Every matching file, ordered by path."""
    excluded = [glob[1:] for glob in query.globs if glob.startswith("!") and glob != "!"]
    included = [glob for glob in query.globs if not glob.startswith("!")]
    try:
        compile_globs(excluded)
        test = compile_globs(included)
    except (BadGlob, re.error) as error:
        raise SearchFailure(f"The glob {' '.join(query.globs)!r} cannot be read: {error}.") from None
    flags = [*_match_flags(query), "--with-filename", _count_flag(query)]
    if target.name:
        flags.append("--text")
        test = None
    else:
        flags += exclude_flags(excluded)
        flags += [f"--type={query.file_type}"] if query.file_type else file_name_flags(included)
    collector = _FileCollector(target.prefix, test, counted=query.mode != "files_with_matches")
    is_newest_first = query.mode == "files_with_matches" and ripgrep.files is not LOCAL_FILES
    if is_newest_first:
        flags.append("--sortr=modified")
    argv = await ripgrep.files.run(ripgrep.search_command, target.folder, query.pattern, flags, f"./{target.name}")
    result = await target.run(ripgrep, argv, collector.consume)
    if has_failed(result):
        raise SearchFailure(await in_thread(_explain_failure, result.stderr, query, ripgrep))
    notices = (f"The search was stopped after {MAX_FILES} files; narrow it.",) if collector.full else ()
    visible = await in_thread(_visible, collector.files, hidden)
    return visible if is_newest_first else sorted(visible, key=lambda file: file.path), result, notices


def _visible(files: list[FileMatches], hidden: HiddenTest | None) -> list[FileMatches]:
    return [file for file in files if not hidden(file.path)] if hidden else files


def _match_flags(query: GrepQuery) -> list[str]:
    flags = ["--crlf"]
    if query.ignore_case:
        flags.append("--ignore-case")
    if query.multiline:
        flags += ["--multiline", "--multiline-dotall"]
    if query.only_matching:
        flags.append("--only-matching")
    return flags


def _count_flag(query: GrepQuery) -> str:
    if query.mode == "files_with_matches":
        return "--files-with-matches"
    return "--count-matches" if query.counts_matches else "--count"


class _FileCollector:
    """Collects matching files from ripgrep's output."""

    def __init__(self, prefix: str, test: PathTest | None, *, counted: bool) -> None:
        self.prefix = prefix
        self.test = test
        self.counted = counted
        self.files: list[FileMatches] = []
        self.rest = b""

    @property
    def full(self) -> bool:
        return len(self.files) >= MAX_FILES

    def consume(self, chunk: bytes) -> bool:
        data = self.rest + chunk
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
        relative = os.fsdecode(name[2:])
        if self.test is None or self.test(relative):
            self.files.append(FileMatches(self.prefix + relative, count))


def _explain_failure(stderr: str, query: GrepQuery, ripgrep: Ripgrep) -> str:
    """Why a search could not be done, and what to do about it."""
    if "unrecognized file type" in stderr:
        near = ", ".join(RipgrepProgram(ripgrep.command[0], "path").nearest_types(query.file_type or ""))
        advice = f" Did you mean: {near}?" if near else ""
        return f"There is no file type {query.file_type!r}.{advice} A `glob` such as '*.ext' works for any file."
    reason = stderr.partition("Consider enabling")[0].removeprefix("rg: ").strip()
    if "is not allowed in a regex" in reason:
        return f"{reason[0].upper()}{reason[1:]}. Set multiline to true to match across lines."
    if "regex parse error" not in reason and "ompiled regex" not in reason:
        return f"The search failed: {reason or 'the search program gave no reason'}"
    # The text before the error shows the pattern as ripgrep wraps it, which the caller did not write.
    reason = reason.rpartition("error: ")[2]
    return f"The pattern is not a valid regular expression: {reason}.{_regex_advice(reason)}"


def _regex_advice(reason: str) -> str:
    if "repetition" in reason:
        return " To search for a literal { } * + or ?, write a backslash before it."
    if "group" in reason:
        return " To search for a literal parenthesis, write a backslash before it."
    if "class" in reason:
        return " To search for a literal [ or ], write a backslash before it."
    if "look-around" in reason or "backreference" in reason:
        return " Search for a simpler pattern and judge the lines found."
    return ""


async def _print_page(
    query: GrepQuery,
    target: _Target,
    ripgrep: Ripgrep,
    files: Sequence[FileMatches],
    seconds: float,
    notices: tuple[str, ...],
) -> GrepResult:
    page = _Page(query, target.prefix)
    flags = _match_flags(query)
    if query.has_context:
        flags += [f"--before-context={query.before}", f"--after-context={query.after}"]
    for batch in _batches(files, query, page):
        names = [b"./" + os.fsencode(file.path[len(target.prefix) :]) for file in batch]
        argv = ripgrep.print_command(query.pattern, flags, names)
        result = await target.run(ripgrep, argv, page.reader.consume, seconds)
        if result.timed_out:
            notices += (f"Printing lines was stopped after {seconds:g} s, so some are missing. Narrow the search.",)
        if page.full or result.timed_out:
            break
    if page.chars > MAX_CHARS:
        notices += (f"The output was stopped at {MAX_CHARS} characters. Narrow the search or set head_limit.",)
    on_page = {path for path, _ in page.lines}
    return GrepResult(
        files=tuple(file for file in files if file.path in on_page),
        lines=tuple(page.lines),
        total_files=len(files),
        total_matches=sum(file.count for file in files),
        more=page.full,
        notices=notices,
    )


class _Page:
    """Collects the lines that are on the requested page."""

    def __init__(self, query: GrepQuery, prefix: str) -> None:
        self.prefix = prefix
        self.skip = query.offset
        self.limit = query.limit
        self.only_matching = query.only_matching
        self.lines: list[tuple[str, MatchLine]] = []
        self.chars = 0
        self.full = False
        self.reader = LineReader(self.take)

    def take(self, line: MatchLine) -> bool:
        if self.only_matching and not line.text:
            return False
        if self.skip:
            self.skip -= 1
            return False
        if (self.limit and len(self.lines) == self.limit) or self.chars > MAX_CHARS:
            self.full = True
            return True
        self.lines.append((self.prefix + os.fsdecode(line.path[2:]), line))
        self.chars += len(line.text) + len(line.path)
        return False


def _batches(files: Sequence[FileMatches], query: GrepQuery, page: _Page) -> Iterator[Sequence[FileMatches]]:
    """The files to print, some at a time; those that are wholly before the page are not printed at all."""
    start = 0
    while query.prints_one_line_per_match and start < len(files) and files[start].count <= page.skip:
        page.skip -= files[start].count
        start += 1
    for first in range(start, len(files), _PRINTED_AT_ONCE):
        yield files[first : first + _PRINTED_AT_ONCE]
