"""Format lines of files for a model: short, and always valid text; suggest paths like one that is missing."""

from __future__ import annotations

import errno
import os
import re
from collections import deque
from collections.abc import Iterator, Mapping

from wieldy.core.filesystem import LOCAL_FILES, Entry, FileSystem
from wieldy.core.realpath import PathChanged
from wieldy.core.text import plural, printable_path, relative_path

LINE_CHARS = 500
LEAD_CHARS = 100
# How a carriage return is shown that is no line end: the progress bars of programs are full of them.
SHOWN_RETURN = "\N{SYMBOL FOR CARRIAGE RETURN}"
# Control characters that no result shows: `clean` in `engine/results.py` removes them.
HIDDEN_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_NAMES = {
    "\x07": "BEL",
    "\x08": "backspace",
    "\x0b": "vertical tab",
    "\x0c": "form feed",
    "\r": "carriage return",
    "\x1b": "ESC",
}


def describe_characters(counts: Mapping[str, int]) -> str:
    """How many control characters there are of which kind."""
    total = sum(counts.values())
    kinds = [f"{count} {_NAMES.get(char, f'U+{ord(char):04X}')}" for char, count in sorted(counts.items())]
    listed = ", ".join(kinds[:5]) + (", …" if len(kinds) > 5 else "")
    return f"{plural(total, 'control character')} ({listed})"


def cut_line(line: bytes, column: int = 0, missing_before: int = 0, missing_after: int = 0) -> str:
    """A line's text, or the part of a long one around a byte column, saying how many bytes were left out."""
    text = line.decode("utf-8", "replace")
    if len(text) <= LINE_CHARS and not missing_before and not missing_after:
        return text
    start = 0
    focus = len(line[: max(column - 1, 0)].decode("utf-8", "replace"))
    if focus > LINE_CHARS - LEAD_CHARS:
        start = focus - LEAD_CHARS
    middle = text[start : start + LINE_CHARS]
    before = missing_before + len(text[:start].encode())
    after = missing_after + len(text[start + LINE_CHARS :].encode())
    opening = f"[{before} bytes cut] " if before else ""
    return opening + middle + (f" [{after} bytes cut]" if after else "")


MAX_SCANNED = 4_000
MAX_DEPTH = 4
MIN_SCORE = 60.0
_SKIPPED_FOLDERS = frozenset({".git", "node_modules", "__pycache__", ".venv", ".mypy_cache"})


def explain_unreadable(path: str, error: OSError, cwd: str = "", files: FileSystem = LOCAL_FILES) -> tuple[str, str]:
    """Why a path cannot be read, with similar paths for a missing one, and what a model can do next."""
    name = printable_path(path)
    if isinstance(error, PathChanged):
        return (
            f"{name} leads elsewhere than when it was checked; nothing was read.",
            "Try again when it stays in place.",
        )
    match error.errno:
        case errno.ENOENT if (target := _link_target(path, files)) is not None:
            return f"{name} is a symbolic link to {printable_path(target)}, which does not exist.", ""
        case errno.ENOENT:
            problem = f"{name} does not exist."
        case errno.ENOTDIR:
            problem = f"{name} cannot exist: part of the path is a file, not a directory."
        case errno.ELOOP:
            return f"{name} is a symbolic link that leads back to itself.", ""
        case errno.EACCES | errno.EPERM:
            return f"{name} may not be read: permission denied.", ""
        case errno.EAGAIN:
            return f"{name} has nothing to read now and would wait for more.", "Use Bash with a timeout."
        case _:
            return f"{name} cannot be read: {error.strerror or error}.", ""
    suggestion = suggest_paths(path, cwd, files)
    return problem + suggestion, "" if suggestion else "Use Glob or LS to find the right path."


def _link_target(path: str, files: FileSystem) -> str | None:
    """What a symlink leads to; None for anything else, also for what another process changes meanwhile."""
    try:
        return files.read_link(path)
    except OSError:
        return None


def suggest_paths(path: str, cwd: str = "", files: FileSystem = LOCAL_FILES) -> str:
    """A question that names existing paths like a missing one; empty where there are none."""
    similar = [relative_path(other, cwd) if cwd else other for other in find_similar_paths(path, files=files)]
    return f" Did you mean {' or '.join(similar)}?" if similar else ""


def find_similar_paths(path: str, limit: int = 3, files: FileSystem = LOCAL_FILES) -> list[str]:
    """Existing paths that resemble the missing absolute `path`, best first."""
    name = os.path.basename(path.rstrip(os.sep))
    start, missing = _nearest_folder(path, files)
    if not name or not start:
        return []
    scores: dict[str, float] = {}
    if len(missing) > 1:
        for folder in _folders_like(start, missing[0], files):
            corrected = os.path.join(folder, *missing[1:])
            if files.exists(corrected):
                scores[corrected] = 100.0
    for depth, candidate in scan_breadth_first(start, files=files):
        score = _score(name, os.path.basename(candidate)) - 4 * depth
        if score >= MIN_SCORE:
            scores.setdefault(candidate, score)
    best = sorted(scores, key=lambda name: (-scores[name], name))
    return [name for name in best if _is_utf8(name)][:limit]


def _nearest_folder(path: str, files: FileSystem) -> tuple[str, list[str]]:
    """The deepest existing folder above `path`, and the names that are missing below it."""
    missing: list[str] = []
    while not files.is_folder(path) or not missing:
        parent, name = os.path.split(path.rstrip(os.sep))
        if parent == path:
            return "", missing
        missing.insert(0, name)
        path = parent
    return path, missing


def _folders_like(folder: str, name: str, files: FileSystem) -> list[str]:
    try:
        folders = [entry.path for entry in files.list_folder(folder)[:MAX_SCANNED] if entry.is_dir()]
    except OSError:
        return []
    return [path for path in folders if _score(name, os.path.basename(path)) >= MIN_SCORE]


def scan_breadth_first(
    start: str, budget: int = MAX_SCANNED, files: FileSystem = LOCAL_FILES
) -> Iterator[tuple[int, str]]:
    """Entries below `start` with their depth, at most `budget` of them."""
    pending = deque([(0, start)])
    while pending and budget > 0:
        depth, folder = pending.popleft()
        try:
            entries = files.list_folder(folder)
        except OSError:
            continue
        for entry in entries:
            budget -= 1
            if budget < 0:
                return
            yield depth, entry.path
            if depth < MAX_DEPTH and entry.name not in _SKIPPED_FOLDERS and _is_folder(entry):
                pending.append((depth + 1, entry.path))


def _is_folder(entry: Entry) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False


def _score(requested: str, name: str) -> float:
    """How alike two names are, 0 to 100."""
    if requested == name:
        return 100.0
    one, other = requested.casefold(), name.casefold()
    if one == other:
        return 99.0
    (stem, ending), (other_stem, other_ending) = os.path.splitext(one), os.path.splitext(other)
    if stem == other_stem:
        return 90.0
    from rapidfuzz.fuzz import ratio

    # A shared ending alone makes no two names alike: `nope.py` and `app.py`.
    return ratio(stem, other_stem) if ending == other_ending else ratio(one, other)


def _is_utf8(name: str) -> bool:
    """A name that is not UTF-8 cannot be written back by a model, so it is no suggestion."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
