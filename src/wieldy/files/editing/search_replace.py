"""Search and replace over many files: every match with its line before and after, and the splices that would change it.

It runs as a process of its own, because a regular expression that runs wild in Python can only be stopped by killing it.
"""

from __future__ import annotations

import json
import os
import re
import stat
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from wieldy.core.errors import ToolFailure
from wieldy.core.truncate import truncate
from wieldy.files.editing.document import Document, Span, SplitsCharacter
from wieldy.files.editing.read_state import digest_of
from wieldy.files.editing.splicing import Splice, splice
from wieldy.files.kinds import binary_kind
from wieldy.search.ignore import VERSION_CONTROL, inside_repository, load_parent_rules, walk_files
from wieldy.search.patterns import compile_globs

_PROGRAM = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from wieldy.files.editing.search_replace import main; sys.exit(main(sys.argv[2]))"
)
_PACKAGES = str(Path(__file__).resolve().parents[3])
SHOWN_WIDTH = 300
SHOWN_HITS = 200
TOLD_EVERY = 0.5


class Sweep(Struct, frozen=True):
    """What to look for and where. `replace` is a template with `\\1` and `\\g<name>`; None only looks."""

    root: str
    pattern: str
    replace: str | None = None
    multiline: bool = False
    wanted: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()
    max_bytes: int = 50_000_000
    splices: bool = False

    @property
    def command(self) -> list[str]:
        """The command line that runs this sweep."""
        return [sys.executable, "-I", "-c", _PROGRAM, _PACKAGES, json.dumps(asdict(self))]

    def compiled(self) -> re.Pattern[str]:
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
                    f"replace_with cannot be read: {error}. Groups are \\1 or \\g<name>; a backslash is \\\\."
                ) from None
        return pattern


class Hit(Struct, frozen=True):
    """A line with a match, before and after; `after` is None where nothing is replaced."""

    line: int
    before: str
    after: str | None


class FileHits(Struct, frozen=True):
    """The matches in one file. `digest` is the fingerprint of the content they are in."""

    path: str
    count: int
    hits: tuple[Hit, ...]
    digest: bytes
    splices: tuple[Splice, ...] = ()

    def as_json(self) -> str:
        """One line another process can read."""
        hits = [(hit.line, hit.before, hit.after) for hit in self.hits]
        splices = [(one.start, one.end, one.new.decode("latin-1")) for one in self.splices]
        return json.dumps([self.path, self.count, hits, self.digest.hex(), splices])

    @staticmethod
    def from_json(line: Any) -> FileHits:
        """The reverse of `as_json`, given what `json.loads` made of it."""
        path, count, hits, digest, splices = line
        return FileHits(
            path,
            count,
            tuple(Hit(*hit) for hit in hits),
            bytes.fromhex(digest),
            tuple(Splice(start, end, new.encode("latin-1")) for start, end, new in splices),
        )


def main(request: str) -> int:
    """Sweep as told; a line of JSON for each file with matches, `{"seen": n}` now and then, `{"error": …}` at a failure."""
    fields = json.loads(request)
    sweep = Sweep(**{**fields, "wanted": tuple(fields["wanted"]), "excluded": tuple(fields["excluded"])})
    try:
        _run(sweep)
    except ToolFailure as failure:
        _say(json.dumps({"error": failure.message}))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return 0


def hits_in(path: str, data: bytes, pattern: re.Pattern[str], sweep: Sweep) -> FileHits | None:
    """The matches in one file's content."""
    document = Document.of(data)
    found = [m for m in _matches(document.text, pattern, sweep.multiline) if sweep.replace is not None or m[1] > m[0]]
    if not found:
        return None
    places = sorted({place for start, end, _ in found for place in (start, end)})
    try:
        at = dict(zip(places, document.offsets(places), strict=True))
    except SplitsCharacter:
        return None
    splices: list[Splice] = []
    if sweep.replace is not None:
        new = [match.expand(sweep.replace) for _, _, match in found]
        try:
            document.codec.require(sweep.replace, "replace_with")  # all else that comes in is the file's own
        except ToolFailure as failure:
            raise ToolFailure(f"{path}: {failure.message}") from None
        splices = [
            splice(document, Span(at[start], at[end]), text) for (start, end, _), text in zip(found, new, strict=True)
        ]
        if all(one.new == data[one.start : one.end] for one in splices):
            return None
    hits = tuple(_shown(document, found, at, sweep))
    return FileHits(path, len(found), hits, digest_of(data), tuple(splices) if sweep.splices else ())


def _run(sweep: Sweep) -> None:
    pattern = sweep.compiled()
    told, skipped = time.monotonic(), 0
    seen = 0
    for seen, path in enumerate(_files(sweep), start=1):
        data = _content(path, sweep.max_bytes)
        if data is None:
            skipped += 1
        elif data and (hits := hits_in(path, data, pattern, sweep)):
            _say(hits.as_json())
        if time.monotonic() - told > TOLD_EVERY:
            told = time.monotonic()
            _say(json.dumps({"seen": seen}))
    _say(json.dumps({"seen": seen, "skipped": skipped}))


def _files(sweep: Sweep) -> Iterator[str]:
    root = sweep.root
    if not os.path.isdir(root):
        yield root
        return
    wanted = compile_globs(sweep.wanted)
    excluded = compile_globs((*sweep.excluded, *VERSION_CONTROL))
    below = len(root.rstrip("/")) + 1
    found = walk_files(root, load_parent_rules(root, inside_repository(root)), excluded)
    yield from sorted(e.path for e in found if wanted is None or wanted(e.path[below:]))


def _content(path: str, most: int) -> bytes | None:
    """What a file holds; None where it is no text, too large or not to be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        with open(fd, "rb") as file:
            known = os.fstat(fd)
            if not stat.S_ISREG(known.st_mode) or known.st_size > most:
                return None
            data = file.read()
    except OSError:
        return None
    return None if binary_kind(data) else data


def _matches(text: str, pattern: re.Pattern[str], multiline: bool) -> Iterator[tuple[int, int, re.Match[str]]]:
    if multiline:
        yield from ((match.start(), match.end(), match) for match in pattern.finditer(text))
        return
    start = 0
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    for line in lines:
        for match in pattern.finditer(line):
            yield start + match.start(), start + match.end(), match
        start += len(line) + 1


def _shown(
    document: Document, found: list[tuple[int, int, re.Match[str]]], at: dict[int, int], sweep: Sweep
) -> Iterator[Hit]:
    """One hit a line, with all its replacements made."""
    text, index, shown = document.text, 0, 0
    while index < len(found) and shown < SHOWN_HITS:
        first = index
        begin = text.rfind("\n", 0, found[first][0]) + 1
        end = _line_end(text, found[first][1])
        while index < len(found) and found[index][0] <= end:
            end = max(end, _line_end(text, found[index][1]))
            index += 1
        pieces, read = [], begin
        for start, stop, match in found[first:index]:
            pieces += [text[read:start], match.expand(sweep.replace) if sweep.replace is not None else ""]
            read = stop
        after = truncate("".join((*pieces, text[read:end])), SHOWN_WIDTH) if sweep.replace is not None else None
        yield Hit(
            document.line_number(at[found[first][0]]),
            truncate(text[begin:end], SHOWN_WIDTH),
            after,
        )
        shown += 1


def _line_end(text: str, place: int) -> int:
    end = text.find("\n", place)
    return len(text) if end < 0 else end


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
