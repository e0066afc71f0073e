"""Symlinks among the files that a command opens without naming them: what `*.md` or `find | xargs` meets on disk."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from wieldy.core.filesystem import LOCAL_FILES, Entry, FileSystem

if TYPE_CHECKING:
    from wieldy.shell.effects.command_part import Sweep

MAX_ENTRIES = 50_000
_IGNORE_FILES = (".ignore", ".rgignore", ".gitignore")
_SPECIAL = re.compile(r"[*?\[\]\\]")
_SPLIT_CHARACTERS = re.compile(r"[\s'\"\\]")
_EXPANDED_CHARACTERS = re.compile(r"[\s*?\[\]\\]")


class UncertainNames(Exception):
    """It cannot be told which files a command opens; the message says why."""


def find_links(
    sweeps: Iterable[Sweep], files: FileSystem = LOCAL_FILES, *, max_entries: int = MAX_ENTRIES
) -> Iterator[str]:
    """The symlinks that the files of these sweeps may be or be reached by. Raises `UncertainNames`."""
    finder = _LinkFinder(files, max_entries)
    for sweep in sweeps:
        if sweep.pattern:
            yield from finder.match(sweep, sweep.folder, [name for name in sweep.pattern.split("/") if name])
        else:
            yield from finder.walk(sweep)


def enclosing_folders(paths: Iterable[str], is_inside: Callable[[str], bool]) -> Iterator[str]:
    """These paths and the folders above them, as far as they are inside, each once."""
    seen: set[str] = set()
    for path in paths:
        folder = path
        while folder not in seen and is_inside(folder):
            seen.add(folder)
            yield folder
            folder = os.path.dirname(folder)


def ignore_file_links(folder: str, files: FileSystem = LOCAL_FILES) -> list[str]:
    """The symlinks among the ignore files of a folder: rg quotes lines that it does not understand.

    That holds where it starts and above; of those below, `ripgreprc` keeps it from saying anything.
    """
    return [path for name in _IGNORE_FILES if files.is_link(path := os.path.join(folder, name))]


class _LinkFinder:
    """Looks at a bounded number of folder entries."""

    def __init__(self, files: FileSystem, max_entries: int) -> None:
        self._files = files
        self._entries_left = max_entries

    def match(self, sweep: Sweep, folder: str, names: list[str]) -> Iterator[str]:
        """The symlinks on the way to the files that a glob matches."""
        pattern, rest = names[0], names[1:]
        if _SPECIAL.search(pattern):
            matches = [entry.path for entry in self._scan(folder) if _may_match(entry.name, pattern)]
        else:
            matches = [os.path.join(folder, pattern)]
        if sweep.dashes:
            _refuse_dashes(map(os.path.basename, matches))
            return
        for path in matches:
            if sweep.splits and _EXPANDED_CHARACTERS.search(os.path.basename(path)):
                raise UncertainNames(f"without quotes bash splits the name of {path!r}; put the variable into quotes")
            if self._files.is_link(path):
                yield path
            if rest and self._files.is_folder(path):
                yield from self.match(sweep, path, rest)

    def walk(self, sweep: Sweep) -> Iterator[str]:
        """The symlinks below a folder whose names fit."""
        pending = [sweep.folder]
        while pending:
            folder = pending.pop()
            listing = self._scan(folder)
            if sweep.dashes and folder == sweep.folder:
                _refuse_dashes(entry.name for entry in listing)
            for entry in listing:
                is_folder = entry.is_dir(follow_symlinks=False)
                if sweep.splits and _SPLIT_CHARACTERS.search(entry.name):
                    raise UncertainNames(f"xargs splits the name of {entry.path!r}; use `find -print0 | xargs -0`")
                if is_folder:
                    pending.append(entry.path)
                elif sweep.links is not None and entry.is_symlink() and _may_match(entry.name, sweep.links):
                    yield entry.path

    def _scan(self, folder: str) -> Sequence[Entry]:
        try:
            listing = self._files.list_folder(folder)
        except OSError:
            # The command cannot list it either.
            return []
        self._entries_left -= len(listing)
        if self._entries_left < 0:
            raise UncertainNames("there are too many files to see whether symlinks among them lead to other places")
        return listing


def _refuse_dashes(names: Iterable[str]) -> None:
    if name := next((name for name in names if name.startswith("-")), None):
        text = "which programs take for an option; put `./` before a glob, or list with `find .`"
        raise UncertainNames(f"there is a file named {name!r}, {text}")


def _may_match(name: str, pattern: str) -> bool:
    """Whether a name may match a glob: it begins and ends like it. Shells differ in what brackets mean."""
    marks = list(_SPECIAL.finditer(pattern))
    if not marks:
        return name.casefold() == pattern.casefold()
    start, end = pattern[: marks[0].start()].casefold(), pattern[marks[-1].end() :].casefold()
    return name.casefold().startswith(start) and name.casefold().endswith(end)
