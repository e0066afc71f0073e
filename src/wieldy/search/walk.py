"""A tree without what its ignore files leave out, folders pruned before they are opened."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

from wieldy.search.globs import Matches
from wieldy.search.ignore import Rules

# Where version control keeps its own files. Other hidden files are part of a project; these are not.
VERSION_CONTROL = (".git", ".hg", ".jj", ".svn")


def walk_files(
    root: str,
    rules: Rules | None,
    excluded: Matches | None = None,
    on_error: Callable[[OSError], None] = lambda error: None,
) -> Iterator[os.DirEntry[str]]:
    """Every regular file below an absolute root; `excluded` tests paths relative to it. Links are not followed."""
    below = len(root.rstrip("/")) + 1
    waiting = [(root, rules)]
    while waiting:
        folder, rules = waiting.pop()
        try:
            with os.scandir(folder) as opened:
                entries = list(opened)
        except OSError as error:
            on_error(error)
            continue
        rules = rules and rules.entering(folder, {entry.name for entry in entries})
        for entry in entries:
            kind = _kind(entry)
            if kind is None or (excluded and excluded(entry.path[below:])):
                continue
            if rules and rules.ignored(entry.path, kind == "folder"):
                continue
            if kind == "folder":
                waiting.append((entry.path, rules))
            else:
                yield entry


def _kind(entry: os.DirEntry[str]) -> str | None:
    try:
        if entry.is_dir(follow_symlinks=False):
            return "folder"
        return "file" if entry.is_file(follow_symlinks=False) else None
    except OSError:
        return None
