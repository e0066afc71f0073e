"""DuckDuckGo and its like as search service. Wraps ddgs."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import Any

from wieldy.core.failure import ToolFailure
from wieldy.core.threads import in_thread
from wieldy.web.search import MOST_HITS, Hit, Wanted

SECONDS = 15


def is_installed() -> bool:
    """Whether ddgs is there."""
    return importlib.util.find_spec("ddgs") is not None


class DuckDuckGo:
    """What ddgs finds."""

    name = "ddgs"

    async def search(self, wanted: Wanted) -> Sequence[Hit]:
        """The hits."""
        return await in_thread(_search, wanted.in_words())


def _search(query: str) -> list[Hit]:
    import ddgs
    from ddgs.exceptions import DDGSException

    try:
        return hits(ddgs.DDGS(timeout=SECONDS).text(query, max_results=MOST_HITS))
    except DDGSException as error:
        if "no results" in str(error).lower():
            return []
        raise ToolFailure(f"The search failed: {' '.join(str(error).split())}. Try again later.") from None


def hits(rows: Sequence[dict[str, Any]]) -> list[Hit]:
    """The rows of ddgs as hits."""
    return [
        Hit(str(row.get("title", "")), str(row["href"]), " ".join(str(row.get("body", "")).split()))
        for row in rows
        if row.get("href")
    ]
