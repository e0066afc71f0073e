"""What undo cannot restore, in words."""

from __future__ import annotations

import os
from collections.abc import Sequence

from wieldy.files.journal.entries import Uncovered
from wieldy.search.format import display_path, escape_controls

SHOWN_PATHS = 3


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
    if paths == [""]:
        return reason
    names = ", ".join(_name(path, root) for path in paths[:SHOWN_PATHS])
    more = f" and {len(paths) - SHOWN_PATHS} more" if len(paths) > SHOWN_PATHS else ""
    return f"{names}{more} ({reason})"


def _name(path: str, root: str) -> str:
    inside = root and path.startswith(root.rstrip("/") + "/")
    return escape_controls(display_path(os.path.relpath(path, root) if inside else path))
