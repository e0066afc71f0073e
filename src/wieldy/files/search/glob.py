"""Find files by a pattern of their path."""

from __future__ import annotations

import asyncio
import heapq
import os
import re
from collections.abc import Callable, Iterable, Iterator
from queue import SimpleQueue

from msgspec import Struct

from wieldy.core.filesystem import LOCAL_FILES, FileSystem
from wieldy.core.realpath import realpath
from wieldy.core.threads import in_thread
from wieldy.files.search.patterns import BadGlob, HiddenTest, anchor_glob, compile_glob, literal_prefix
from wieldy.files.search.ripgrep import (
    ProcessResult,
    Ripgrep,
    SearchFailure,
    describe_gaps,
    file_name_flags,
    has_failed,
)

MAX_FILES = 1_000_000


class GlobResult(Struct, frozen=True):
    """The newest files that match (absolute paths), how many there are in all, and what is missing from them."""

    files: tuple[str, ...]
    total: int
    notices: tuple[str, ...]


def split_pattern(pattern: str, folder: str, files: FileSystem = LOCAL_FILES) -> tuple[str, str]:
    """The deepest folder a pattern can be searched from, and the rest of the pattern, which starts at that folder."""
    if pattern.startswith("~/"):
        pattern = os.path.expanduser("~") + pattern[1:]
    if not pattern.startswith(("/", "../")):
        pattern = anchor_glob(pattern)
    prefix, rest = literal_prefix(pattern)
    if pattern.startswith("/"):
        prefix = f"/{prefix.lstrip('/')}"
    root = os.path.join(folder, prefix)
    # After a link, `..` is the parent of what it points to.
    if ".." in prefix.split("/") and files is LOCAL_FILES:
        return realpath(root), f"/{rest}"
    return os.path.normpath(root), f"/{rest}"


async def find_files(
    pattern: str,
    folder: str,
    ripgrep: Ripgrep,
    limit: int = 100,
    hidden: HiddenTest | None = None,
    resolve: Callable[[str], str] | None = None,
) -> GlobResult:
    """Files below `folder` that match and are not hidden, latest change first; a `limit` of 0 means all.

    `resolve` maps the folder that the search begins in to its realpath when the call was judged: no other is searched.
    """
    files = ripgrep.files
    root, rest = split_pattern(pattern, folder, files)
    if rest.endswith("/"):
        return GlobResult((), 0, ("The pattern names folders. Add * or **/* to list the files in them.",))
    if not await files.run(files.is_folder, root):
        return GlobResult((), 0, ())
    try:
        listing = await files.run(_Listing, root, rest, hidden, files)
    except (BadGlob, re.error) as error:
        raise SearchFailure(f"The pattern {pattern!r} cannot be read: {error}.") from None
    newest_by_rg = () if files is LOCAL_FILES else ("--sortr=modified",)
    argv = await files.run(ripgrep.list_command, root, (*newest_by_rg, *file_name_flags([rest])))

    async def list_files() -> ProcessResult:
        try:
            place = resolve(root) if resolve else root
            return await ripgrep.run(argv, place, listing.consume, is_resolved=resolve is not None)
        finally:
            listing.end()

    # Reading times takes as long as listing: a thread does it while more files are still being listed.
    order = newest_first if files is LOCAL_FILES else _as_listed
    # Both are awaited to the end, also when this is cancelled: the search program must not outlive the call.
    result, newest = await asyncio.gather(list_files(), in_thread(order, listing, limit), return_exceptions=True)
    if isinstance(result, BaseException):
        raise result
    if isinstance(newest, BaseException):
        raise newest
    if has_failed(result):
        raise SearchFailure(f"The search failed: {result.stderr or 'the search program gave no reason'}")
    notices = tuple(describe_gaps(result, ripgrep))
    if listing.total >= MAX_FILES:
        notices += (f"The search was stopped after {MAX_FILES} files. Narrow the pattern.",)
    return GlobResult(tuple(newest), listing.total - listing.hidden_files, notices)


def newest_first(batches: Iterable[Iterable[str]], limit: int = 0) -> list[str]:
    """Sort files by modification time, latest first; equal times by path, files that are gone last. 0 means all."""
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


def _as_listed(batches: Iterable[Iterable[str]], limit: int = 0) -> list[str]:
    """The files in the order in which they come; a `limit` of 0 means all."""
    return [path for batch in batches for path in batch][: limit or None]


class _Listing:
    """Consumes a list of all files chunk by chunk; iterating gives batches of those that match, until the end."""

    def __init__(self, root: str, glob: str, hidden: HiddenTest | None, files: FileSystem) -> None:
        self.prefix = root.rstrip("/") + "/"
        self.matches = compile_glob(glob)
        self.hidden = hidden
        self.total = self.hidden_files = 0
        self.rest = b""
        self.batches: SimpleQueue[list[str]] = SimpleQueue()
        # A name such as `[slug].tsx` is a pattern to us and the name of a file to its author.
        name = glob.lstrip("/")
        if files.is_file(self.prefix + name) and not self.matches(name):
            self.add([self.prefix + name])

    def consume(self, chunk: bytes) -> bool:
        names, separator, self.rest = (self.rest + chunk).rpartition(b"\0")
        if separator:
            prefix, matches = self.prefix, self.matches
            self.add([prefix + path for name in os.fsdecode(names).split("\0") if matches(path := name[2:])])
        return self.total >= MAX_FILES

    def add(self, files: list[str]) -> None:
        if files:
            self.total += len(files)
            self.batches.put(files)

    def end(self) -> None:
        self.batches.put([])

    def __iter__(self) -> Iterator[list[str]]:
        for files in iter(self.batches.get, []):
            # Tested here and not in `consume`, because it may take a while and this runs in a thread.
            visible = [path for path in files if not self.hidden(path)] if self.hidden else files
            self.hidden_files += len(files) - len(visible)
            yield visible
