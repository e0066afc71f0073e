"""Ordering files by when they were last changed."""

from __future__ import annotations

import heapq
import os
from collections.abc import Iterable


def newest_first(batches: Iterable[Iterable[str]], limit: int = 0) -> list[str]:
    """Files by the time they were changed, latest first; equal times by path, files that are gone last. 0 means all."""
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
