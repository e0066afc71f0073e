"""Ordering files by when they were last changed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


def newest_first(items: Iterable[T], path_of: Callable[[T], str]) -> list[T]:
    """Items by the time their file was changed, latest first; equal times by path, files that are gone last."""
    keyed = [(-_changed(path), path, item) for item in items for path in (path_of(item),)]
    keyed.sort(key=lambda key: key[:2])
    return [item for _, _, item in keyed]


def _changed(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0
