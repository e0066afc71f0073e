"""What a missing path may have been meant to be: existing names like it, found by a small bounded scan."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator

SCANNED_ENTRIES = 4_000
SCANNED_DEPTH = 4
ALIKE = 60.0
_NEVER_ENTERED = frozenset({".git", "node_modules", "__pycache__", ".venv", ".mypy_cache"})


def similar_names(path: str, limit: int = 3) -> list[str]:
    """Existing paths that resemble the missing absolute `path`, best first."""
    wanted = os.path.basename(path.rstrip(os.sep))
    start, lost = _nearest_folder(path)
    if not wanted or not start:
        return []
    alike = _likeness()
    scored: dict[str, float] = {}
    if len(lost) > 1:
        for folder in _folders_like(start, lost[0], alike):
            mended = os.path.join(folder, *lost[1:])
            if os.path.lexists(mended):
                scored[mended] = 100.0
    for depth, found in around(start):
        score = _score(wanted, os.path.basename(found), alike) - 4 * depth
        if score >= ALIKE:
            scored.setdefault(found, score)
    best = sorted(scored, key=lambda name: (-scored[name], name))
    return [name for name in best if _sayable(name)][:limit]


def _nearest_folder(path: str) -> tuple[str, list[str]]:
    """The deepest existing folder above `path`, and the names that are missing below it."""
    lost: list[str] = []
    while not os.path.isdir(path) or not lost:
        parent, name = os.path.split(path.rstrip(os.sep))
        if parent == path:
            return "", lost
        lost.insert(0, name)
        path = parent
    return path, lost


def _folders_like(folder: str, name: str, alike: Callable[[str, str], float]) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            found = [e.path for e, _ in zip(entries, range(SCANNED_ENTRIES), strict=False) if e.is_dir()]
    except OSError:
        return []
    return [f for f in found if _score(name, os.path.basename(f), alike) >= ALIKE]


def around(start: str, budget: int = SCANNED_ENTRIES) -> Iterator[tuple[int, str]]:
    """Entries below `start` with their depth, breadth first, at most `budget` of them."""
    waiting = deque([(0, start)])
    while waiting and budget > 0:
        depth, folder = waiting.popleft()
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    budget -= 1
                    if budget < 0:
                        return
                    yield depth, entry.path
                    if depth < SCANNED_DEPTH and entry.name not in _NEVER_ENTERED and _is_folder(entry):
                        waiting.append((depth + 1, entry.path))
        except OSError:
            continue


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False


def _score(wanted: str, name: str, alike: Callable[[str, str], float]) -> float:
    if wanted == name:
        return 100.0
    one, other = wanted.casefold(), name.casefold()
    if one == other:
        return 99.0
    stem, other_stem = os.path.splitext(one)[0], os.path.splitext(other)[0]
    return 90.0 if stem == other_stem else alike(one, other)


def _likeness() -> Callable[[str, str], float]:
    """How alike two names are, 0 to 100."""
    try:
        from rapidfuzz.fuzz import ratio
    except ImportError:
        from difflib import SequenceMatcher

        return lambda one, other: 100 * SequenceMatcher(None, one, other, autojunk=False).ratio()
    return ratio


def _sayable(name: str) -> bool:
    """A name that is not UTF-8 cannot be written back by a model, so it is no suggestion."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
