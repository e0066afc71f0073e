"""What undo cannot restore, in words."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from wieldy.files.journal.entries import Uncovered
from wieldy.files.search.format import display_path, escape_controls

SHOWN_PATHS = 3
# An entry of the journal names so many paths; of more, the folders that they are in.
MAX_PATHS = 500
MAX_FOLDERS = 50


def limit_uncovered(uncovered: Sequence[Uncovered]) -> tuple[Uncovered, ...]:
    """At most so many as a journal entry names, those that are known to have changed first, and folders for the rest."""
    ordered = sorted(uncovered, key=lambda each: not each.changed)
    named, rest = ordered[:MAX_PATHS], ordered[MAX_PATHS:]
    for changed, reason in ((True, "more files in it changed than are named"), (False, "in part not looked at")):
        paths = [each.path for each in rest if each.changed is changed]
        named += [Uncovered(folder, reason, changed) for folder in enclosing_folders(paths)]
    return tuple(named)


def enclosing_folders(paths: Iterable[str], most: int = MAX_FOLDERS) -> list[str]:
    """The paths, or where they are too many the folders that they are in."""
    folders = set(paths)
    while len(folders) > most:
        depth = max(path.count("/") for path in folders)
        above = {os.path.dirname(path) if path.count("/") == depth else path for path in folders}
        if above == folders:
            break
        folders = above
    return sorted(folders)


def summarize_uncovered(uncovered: Sequence[Uncovered], root: str = "") -> str:
    """One phrase for each reason: the first paths, how many more, and why."""
    by_reason: dict[str, list[str]] = {}
    for each in uncovered:
        by_reason.setdefault(each.reason, []).append(each.path)
    return "; ".join(_phrase(paths, reason, root) for reason, paths in by_reason.items())


def uncovered_lines(uncovered: Sequence[Uncovered], root: str = "") -> list[str]:
    """The same as lines, for a list of changes."""
    by_reason: dict[str, list[str]] = {}
    for each in uncovered:
        by_reason.setdefault(each.reason, []).append(each.path)
    return [_phrase(paths, reason, root) for reason, paths in by_reason.items()]


def _phrase(paths: list[str], reason: str, root: str) -> str:
    names = ", ".join(_name(path, root) for path in paths[:SHOWN_PATHS])
    more = f" and {len(paths) - SHOWN_PATHS} more" if len(paths) > SHOWN_PATHS else ""
    return f"{names}{more} ({reason})"


def _name(path: str, root: str) -> str:
    inside = root and path.startswith(root.rstrip("/") + "/")
    return escape_controls(display_path(os.path.relpath(path, root) if inside else path))
