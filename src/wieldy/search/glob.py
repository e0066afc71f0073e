"""Finding files by a pattern of their path."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator
from queue import SimpleQueue

from msgspec import Struct

from wieldy.core.threads import in_thread
from wieldy.search.errors import SearchFailure
from wieldy.search.grep import failed, notices_of
from wieldy.search.ignore import BadGlob, anchor, compile_glob, literal_prefix
from wieldy.search.query import Omit, newest_first
from wieldy.search.ripgrep import Ending, Engine, listing, name_filter

MAX_FILES = 1_000_000


class FoundFiles(Struct, frozen=True):
    """The newest files that match (absolute paths), how many there are in all, and what is missing from them."""

    files: tuple[str, ...]
    total: int
    notices: tuple[str, ...]


def search_place(pattern: str, folder: str) -> tuple[str, str]:
    """The deepest folder a pattern can be searched from, and the rest of the pattern, which starts at that folder."""
    if pattern.startswith("~/"):
        pattern = os.path.expanduser("~") + pattern[1:]
    if not pattern.startswith(("/", "../")):
        pattern = anchor(pattern)
    prefix, rest = literal_prefix(pattern)
    if pattern.startswith("/"):
        prefix = f"/{prefix.lstrip('/')}"
    place = os.path.join(folder, prefix)
    # After a link, `..` is the parent of what it points to.
    real = os.path.realpath(place) if ".." in prefix.split("/") else os.path.normpath(place)
    return real, f"/{rest}"


async def find_files(
    pattern: str, folder: str, engine: Engine, limit: int = 100, omit: Omit | None = None
) -> FoundFiles:
    """Files below `folder` that match, latest change first; a `limit` of 0 means all."""
    root, rest = search_place(pattern, folder)
    if rest.endswith("/"):
        return FoundFiles((), 0, ("The pattern names folders. Add * or **/* to list the files in them.",))
    if not os.path.isdir(root):
        return FoundFiles((), 0, ())
    try:
        listed = _Listed(root, rest, omit)
    except (BadGlob, re.error) as error:
        raise SearchFailure(f"The pattern {pattern!r} cannot be read: {error}.") from None
    argv = listing(engine, root, name_filter([rest]))

    async def list_all() -> Ending:
        try:
            return await engine.run(argv, root, engine.seconds, listed.feed)
        finally:
            listed.end()

    # Looking up times takes as long as listing: a thread does it while more files are still being listed.
    ending, newest = await asyncio.gather(list_all(), in_thread(newest_first, listed, limit))
    if failed(ending):
        raise SearchFailure(f"The search failed: {ending.complaint or 'the search program gave no reason'}")
    return FoundFiles(tuple(newest), listed.total - listed.omitted, tuple(_notices(ending, listed, engine)))


def _notices(ending: Ending, listed: _Listed, engine: Engine) -> Iterator[str]:
    yield from notices_of(ending, engine)
    if listed.total >= MAX_FILES:
        yield f"The search was stopped after {MAX_FILES} files. Narrow the pattern."


class _Listed:
    """Takes a list of all files piece by piece; iterating gives those that match, as they come, until the end."""

    def __init__(self, root: str, glob: str, omit: Omit | None) -> None:
        self.above = root.rstrip("/") + "/"
        self.matches = compile_glob(glob)
        self.omit = omit
        self.total = self.omitted = 0
        self.rest = b""
        self.batches: SimpleQueue[list[str]] = SimpleQueue()
        # A name such as `[slug].tsx` is a pattern to us and a file's name to whoever wrote it.
        name = glob.lstrip("/")
        if os.path.isfile(self.above + name) and not self.matches(name):
            self.add([self.above + name])

    def feed(self, piece: bytes) -> bool:
        names, end, self.rest = (self.rest + piece).rpartition(b"\0")
        if end:
            above, matches = self.above, self.matches
            listed = os.fsdecode(names).split("\0")
            self.add([above + below for name in listed if matches(below := name[2:])])
        return self.total >= MAX_FILES

    def add(self, files: list[str]) -> None:
        if files:
            self.total += len(files)
            self.batches.put(files)

    def end(self) -> None:
        self.batches.put([])

    def __iter__(self) -> Iterator[list[str]]:
        for files in iter(self.batches.get, []):
            # Here and not where they are added, because it may take its time and this runs in a thread.
            kept = [path for path in files if not self.omit(path)] if self.omit else files
            self.omitted += len(files) - len(kept)
            yield kept
