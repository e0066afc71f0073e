"""Search and replace over many files: every match with its line before and after, and the splices that would change it.

It runs in a process of its own, because a runaway Python regular expression can only be stopped by killing it. Where every
match must contain a certain text, ripgrep finds the files to search.
"""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

from wieldy.core.console import write_to_parent
from wieldy.core.errors import ToolFailure
from wieldy.core.programs import own_python, run_limited
from wieldy.core.schema.strict_json import from_json, to_json
from wieldy.core.text import truncate
from wieldy.files.detection import binary_kind, detect_encoding
from wieldy.files.editing.document import Document, Span, Splice, SplitsCharacter, apply_splices, replace_span
from wieldy.files.editing.read_state import ReadState, digest_of
from wieldy.files.search.patterns import (
    VERSION_CONTROL,
    PathTest,
    compile_globs,
    load_parent_rules,
    walk_files,
)
from wieldy.files.search.ripgrep import Ripgrep, SearchFailure

if TYPE_CHECKING:
    from wieldy.files.editing.revision import EditSettings, Revision
    from wieldy.files.writing.disk import Target

_PROGRAM = "from wieldy.files.editing.search_replace import main; sys.exit(main(sys.argv[1]))"
MAX_WIDTH = 300
MAX_HITS = 200
PROGRESS_SECONDS = 0.5
PREFILTER_SECONDS = 10.0
CHANGE_BY_EDIT = "Leave this file out with `exclude` and change it with Edit, which takes an `encoding`."


class FileSearchRequest(Struct, frozen=True):
    """What to search for and where. `replace` is a template with `\\1` and `\\g<name>`; None only searches."""

    root: str
    pattern: str
    replace: str | None = None
    multiline: bool = False
    globs: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()
    max_bytes: int = 50_000_000
    with_splices: bool = False

    @property
    def command(self) -> list[str]:
        """The command line that runs this search."""
        command = own_python(_PROGRAM, to_json(self))
        if command is None:
            raise ToolFailure("Searching files needs a Python interpreter, and there is none here.", "Use Grep.")
        return command

    def compile_pattern(self) -> re.Pattern[str]:
        """The pattern; raises `ToolFailure` where it, or the template, cannot be read."""
        try:
            pattern = re.compile(self.pattern, re.MULTILINE | re.DOTALL if self.multiline else 0)
        except (re.error, RecursionError, OverflowError) as error:
            raise ToolFailure(f"The pattern is no valid regular expression: {error}.") from None
        if self.replace is not None:
            try:
                pattern.sub(self.replace, "")
            except (re.error, IndexError) as error:
                raise ToolFailure(
                    f"replace_with cannot be read: {error}.", "Groups are \\1 or \\g<name>; a backslash is \\\\."
                ) from None
        return pattern


class LineHit(Struct, frozen=True):
    """A line with matches, before and after; `after` is None where nothing is replaced."""

    line: int
    before: str
    after: str | None


class FileSearchResult(Struct, frozen=True, array_like=True):
    """The matches in one file. `digest` is that of the content they are in."""

    path: str
    count: int
    hits: tuple[LineHit, ...]
    digest: bytes
    splices: tuple[Splice, ...] = ()

    def revise(self, target: Target, state: ReadState, settings: EditSettings) -> Revision:
        """Make the replacements that were found, if the file is still the one that was searched."""
        from wieldy.core.errors import StaleFileError
        from wieldy.files.editing.revision import Revision

        data, stat = target.content, target.stat
        if data is None or stat is None or digest_of(data) != self.digest:
            raise StaleFileError(target.path, "was changed by someone else meanwhile")
        reading = state.reading(target.real_path)
        known_whole = reading.whole if reading is not None and state.is_current(target.real_path, data, stat) else None
        read_in = reading.encoding if reading is not None and known_whole is not None else None
        if read_in is not None and not all(splice.new.isascii() for splice in self.splices):
            # The search detected the encoding by itself.
            detected = detect_encoding(data)
            if detected.name != read_in.name:
                raise ToolFailure(
                    f"{target.path} was read in {read_in.name}, but searched in {detected.name}. Nothing was written.",
                    CHANGE_BY_EDIT,
                )
        after = apply_splices(data, self.splices)
        return Revision(target, after, self.splices, self.count, known_whole=known_whole)


def main(arguments: str) -> int:
    """Search; print a line of JSON for each file with matches, `{"seen": n}` as progress, `{"error": …}` at a failure."""
    try:
        _search(from_json(arguments, FileSearchRequest))
    except ToolFailure as failure:
        _print_line(json.dumps({"error": failure.message}))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return 0


def _search(request: FileSearchRequest) -> None:
    pattern = request.compile_pattern()
    reported, skipped, seen = time.monotonic(), 0, 0
    for seen, path in enumerate(_list_files(request), start=1):
        data = _read_text_file(path, request.max_bytes)
        if data is None:
            skipped += 1
        elif data and (result := search_file(path, data, pattern, request)):
            _print_line(to_json(result))
        if time.monotonic() - reported > PROGRESS_SECONDS:
            reported = time.monotonic()
            _print_line(json.dumps({"seen": seen}))
    _print_line(json.dumps({"seen": seen, "skipped": skipped}))


def _print_line(line: str) -> None:
    write_to_parent(f"{line}\n".encode())


def _list_files(request: FileSearchRequest) -> Iterator[str]:
    """The files to search: those in which ripgrep finds what every match contains, or all of them."""
    root = request.root
    if not os.path.isdir(root):
        yield root
        return
    included = compile_globs(request.globs)
    excluded = compile_globs((*request.excluded, *VERSION_CONTROL))
    prefix = len(root.rstrip("/")) + 1
    candidates = _files_with_literal(root, request)
    if candidates is None:
        entries = walk_files(root, load_parent_rules(root), excluded)
        yield from sorted(entry.path for entry in entries if included is None or included(entry.path[prefix:]))
        return
    for path in sorted(candidates):
        is_excluded = excluded is not None and _excludes(excluded, path[prefix:])
        if not is_excluded and (included is None or included(path[prefix:])):
            yield path


def _files_with_literal(root: str, request: FileSearchRequest) -> list[str] | None:
    """The files that contain what every match contains, or a NUL byte, as UTF-16 does; None where all must be searched."""
    literal = required_literal(request.pattern)
    if literal is None:
        return None
    flags = (
        "--files-with-matches",
        "--text",
        "--encoding=none",
        f"--max-filesize={request.max_bytes}",
        r"--regexp=\x00",
    )
    try:
        command = Ripgrep.installed().search_command(root, re.escape(literal).replace("\\ ", " "), flags, "./")
        done = run_limited(command, root, PREFILTER_SECONDS)
    except (OSError, SearchFailure, subprocess.TimeoutExpired):
        return None
    if done.returncode not in (0, 1) and not done.stdout:
        return None  # 2 is also the exit code where some folder could not be read
    prefix = root.rstrip("/")
    return [f"{prefix}/{os.fsdecode(path).removeprefix('./')}" for path in done.stdout.split(b"\0") if path]


def _excludes(excluded: PathTest, path: str) -> bool:
    """Whether a path or one of the folders that it is in is excluded."""
    steps = path.split("/")
    return any(excluded("/".join(steps[:depth])) for depth in range(1, len(steps) + 1))


def _read_text_file(path: str, max_bytes: int) -> bytes | None:
    """The content of a file; None where it is no text, too large or cannot be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        with open(fd, "rb") as file:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode) or status.st_size > max_bytes:
                return None
            data = file.read()
    except OSError:
        return None
    return None if binary_kind(data) else data


def search_file(
    path: str, data: bytes, pattern: re.Pattern[str], request: FileSearchRequest
) -> FileSearchResult | None:
    """The matches in one file's content; None where there are none, or nothing would change."""
    document = Document.of(data)
    matches = [
        match
        for match in _find_matches(document.text, pattern, request.multiline)
        if request.replace is not None or match[1] > match[0]
    ]
    if not matches:
        return None
    positions = sorted({position for start, end, _ in matches for position in (start, end)})
    try:
        offset_of = dict(zip(positions, document.byte_offsets(positions), strict=True))
    except SplitsCharacter:
        return None
    splices: list[Splice] = []
    if request.replace is not None:
        try:
            # Groups hold only the file's own characters.
            document.codec.require(request.replace, "replace_with")
            document.codec.require_certain(request.replace, document.text, "replace_with", CHANGE_BY_EDIT)
        except ToolFailure as failure:
            raise failure.with_problem(f"{path}: {failure.problem}") from None
        splices = [
            replace_span(document, Span(offset_of[start], offset_of[end]), match.expand(request.replace))
            for start, end, match in matches
        ]
        if all(splice.new == data[splice.start : splice.end] for splice in splices):
            return None
    hits = tuple(_line_hits(document, matches, offset_of, request.replace))
    return FileSearchResult(path, len(matches), hits, digest_of(data), tuple(splices) if request.with_splices else ())


def _find_matches(text: str, pattern: re.Pattern[str], multiline: bool) -> Iterator[tuple[int, int, re.Match[str]]]:
    """Start, end and match object of each match; positions are in the text, not in the line."""
    if multiline:
        yield from ((match.start(), match.end(), match) for match in pattern.finditer(text))
        return
    start = 0
    for line in text.removesuffix("\n").split("\n") if text else ():
        for match in pattern.finditer(line):
            yield start + match.start(), start + match.end(), match
        start += len(line) + 1


def _line_hits(
    document: Document, matches: list[tuple[int, int, re.Match[str]]], offset_of: dict[int, int], template: str | None
) -> Iterator[LineHit]:
    """One hit for each line, or lines that matches join, with all replacements made."""
    text, index, count = document.text, 0, 0
    while index < len(matches) and count < MAX_HITS:
        first = index
        begin = text.rfind("\n", 0, matches[first][0]) + 1
        end = _line_end(text, matches[first][1])
        while index < len(matches) and matches[index][0] <= end:
            end = max(end, _line_end(text, matches[index][1]))
            index += 1
        after = None
        if template is not None:
            pieces, read = [], begin
            for start, stop, match in matches[first:index]:
                pieces += [text[read:start], match.expand(template)]
                read = stop
            after = truncate("".join((*pieces, text[read:end])), MAX_WIDTH)
        line = document.line_number(offset_of[matches[first][0]])
        yield LineHit(line, truncate(text[begin:end], MAX_WIDTH), after)
        count += 1


def _line_end(text: str, position: int) -> int:
    end = text.find("\n", position)
    return len(text) if end < 0 else end


# Shorter texts are in most files.
LEAST_CHARS = 3
_INLINE_FLAGS = re.compile(r"\(\?[aiLmsux-]")
# What follows the backslash of a character code, a character's name or a back-reference.
_CHARACTER_CODE = re.compile(r"x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|N\{[^}]*\}|[0-9]+")
_QUANTIFIER = re.compile(r"[*+?]|\{\d*(?:,\d*)?\}")
_MAY_BE_ABSENT = re.compile(r"[*?]|\{(?:0|,)")


def required_literal(pattern: str) -> str | None:
    """The longest run of ASCII characters in every match of a pattern; None if there is none that is long enough."""
    if "|" in pattern or _INLINE_FLAGS.search(pattern):
        return None
    longest = max(_runs(pattern), key=len, default="")
    return longest if len(longest) >= LEAST_CHARS else None


def _runs(pattern: str) -> Iterator[str]:
    """The runs of literal characters outside groups and character classes."""
    run, position, depth = "", 0, 0
    while position < len(pattern):
        char = pattern[position]
        literal: str | None = None
        if char == "\\":
            escaped = pattern[position + 1 : position + 2]
            position += 2
            if not escaped.isalnum():
                literal = escaped
            elif code := _CHARACTER_CODE.match(pattern, position - 1):
                position = code.end()
        elif char == "[":
            position = _end_of_class(pattern, position)
        else:
            position += 1
            depth += (char == "(") - (char == ")")
            if char not in ".^$*+?{}()":
                literal = char
        quantifier = _QUANTIFIER.match(pattern, position)
        if depth > 0 or literal is None or not (literal.isascii() and literal.isprintable()) or literal == "~":
            yield run
            run = ""
        elif quantifier is None:
            run += literal
        else:
            yield run if _MAY_BE_ABSENT.match(quantifier[0]) else run + literal
            run = ""
        if quantifier is not None:
            position = quantifier.end()
    yield run


def _end_of_class(pattern: str, start: int) -> int:
    """The position after the `]` of a character class; a `]` that comes first stands for itself."""
    position = start + 1
    if pattern[position : position + 1] == "^":
        position += 1
    if pattern[position : position + 1] == "]":
        position += 1
    while position < len(pattern) and pattern[position] != "]":
        position += 2 if pattern[position] == "\\" else 1
    return position + 1
