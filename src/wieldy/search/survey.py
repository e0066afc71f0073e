"""The first step of a search: every file that matches, found by all cores, with its number of matches."""

from __future__ import annotations

import os
import re
import stat

from wieldy.core.record import record
from wieldy.core.threads import in_thread
from wieldy.schema.pattern import pattern
from wieldy.search.command import Engine, excluding, matching, name_filter
from wieldy.search.complaint import failed, failure
from wieldy.search.failure import SearchFailure
from wieldy.search.globs import BadGlob, Matches, compile_any
from wieldy.search.process import Ending, run
from wieldy.search.query import FileMatches, Omit, Query

MAX_FILES = 500_000
_BINARY_PROBE = 65_536
_COUNTED = pattern(rb"([^\0]*)\0(\d+)\r?\n")


@record
class Place:
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


@record
class Survey:
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
    ending = await run(argv, cwd=place.folder, env=engine.env, seconds=engine.seconds, feed=found.feed)
    if failed(ending):
        raise failure(ending.complaint, query)
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
