"""Finding files by a pattern of their path."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from wieldy.core.threads import in_thread
from wieldy.search.command import Engine, listing
from wieldy.search.complaint import failed
from wieldy.search.failure import SearchFailure
from wieldy.search.globs import BadGlob, anchor, compile_glob, literal_prefix
from wieldy.search.newest import newest_first
from wieldy.search.process import run
from wieldy.search.query import Omit

MAX_FILES = 1_000_000


@dataclass(frozen=True, slots=True)
class FoundFiles:
    """The newest files that match (absolute paths), how many there are in all, and what is missing from them."""

    files: tuple[str, ...]
    total: int
    notices: tuple[str, ...]


def search_place(pattern: str, folder: str) -> tuple[str, str]:
    """The deepest folder a pattern can be searched from, and the rest of the pattern, which belongs to that folder."""
    if pattern.startswith("~/"):
        pattern = os.path.expanduser("~") + pattern[1:]
    if not pattern.startswith(("/", "../")) and pattern != "..":
        pattern = anchor(pattern)
    prefix, rest = literal_prefix(pattern)
    if pattern.startswith("/"):
        return os.path.normpath(f"/{prefix}"), f"/{rest}"
    if not prefix:
        return folder, rest
    place = os.path.join(folder, prefix)
    return os.path.realpath(place) if ".." in prefix.split("/") else place, f"/{rest}"


async def find_files(
    pattern: str, folder: str, engine: Engine, limit: int = 100, omit: Omit | None = None
) -> FoundFiles:
    """Files below `folder` that match, latest change first; a `limit` of 0 means all."""
    root, rest = search_place(pattern, folder)
    if not os.path.isdir(root):
        return FoundFiles((), 0, ())
    try:
        listed = _Listed(root, rest)
    except (BadGlob, re.error) as error:
        raise SearchFailure(f"The pattern {pattern!r} cannot be read: {error}.") from None
    ending = await run(listing(engine, root), cwd=root, env=engine.env, seconds=engine.seconds, feed=listed.feed)
    if failed(ending):
        raise SearchFailure(f"The search failed: {ending.complaint or 'the search program gave no reason'}")
    notices = []
    if ending.out_of_time:
        notices.append(f"The search was stopped after {engine.seconds:g} s, so files may be missing. Narrow the path.")
    if len(listed.files) >= MAX_FILES:
        notices.append(f"The search was stopped after {MAX_FILES} files. Narrow the pattern.")
    if ending.unreadable:
        notices.append(f"{ending.unreadable} folder(s) could not be read.")
    files = await in_thread(_ordered, listed.files, omit)
    return FoundFiles(tuple(files[: limit or None]), len(files), tuple(notices))


def _ordered(files: list[str], omit: Omit | None) -> list[str]:
    kept = [path for path in files if not omit(path)] if omit else files
    return newest_first(kept, str)


class _Listed:
    """Collects the files that match from a list of all."""

    def __init__(self, root: str, glob: str) -> None:
        self.above = root.rstrip("/") + "/"
        self.matches = compile_glob(glob)
        self.files: list[str] = []
        self.rest = b""
        # A name such as `[slug].tsx` is a pattern to us and a file's name to whoever wrote it.
        literal = self.above + glob.lstrip("/")
        if os.path.isfile(literal) and not self.matches(glob.lstrip("/")):
            self.files.append(literal)

    def feed(self, piece: bytes) -> bool:
        *names, self.rest = (self.rest + piece).split(b"\0")
        above, matches = self.above, self.matches
        for name in names:
            below = os.fsdecode(name[2:])
            if matches(below):
                self.files.append(above + below)
        return len(self.files) >= MAX_FILES
