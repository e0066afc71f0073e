"""DuckDuckGo as search service, and Brave and Mojeek where it says nothing. Wraps ddgs."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from typing import Any

from wieldy.core.failure import ToolFailure
from wieldy.core.threads import in_thread
from wieldy.web.search import MOST_HITS, Hit, Wanted

SECONDS = 15
# One after the other: what a person looks for is nobody else's business. (Left to itself ddgs asks every engine it knows.)
ENGINES = ("duckduckgo", "brave", "mojeek")
PROXY_VARIABLES = ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")


def is_installed() -> bool:
    """Whether ddgs is there."""
    return importlib.util.find_spec("ddgs") is not None


class DuckDuckGo:
    """What ddgs finds; proxy and certificate authorities as the environment says."""

    name = "ddgs"

    def __init__(self, env: Mapping[str, str]) -> None:
        self._proxy = next((env[name] for name in PROXY_VARIABLES if env.get(name)), None)
        self._authorities = env.get("WIELDY_CA_FILE") or env.get("SSL_CERT_FILE") or True

    async def search(self, wanted: Wanted) -> Sequence[Hit]:
        """The hits of the first engine that has any."""
        return await in_thread(self._search, wanted.in_words())

    def _search(self, query: str) -> list[Hit]:
        import ddgs
        from ddgs.exceptions import DDGSException

        engines = ddgs.DDGS(proxy=self._proxy, timeout=SECONDS, verify=self._authorities)
        failed: list[str] = []
        for engine in ENGINES:
            try:
                return hits(engines.text(query, max_results=MOST_HITS, backend=engine))
            except DDGSException as error:
                if "no results" not in str(error).lower():
                    failed.append(f"{engine}: {' '.join(str(error).split())}")
        if len(failed) == len(ENGINES):
            raise ToolFailure(f"The search failed ({failed[0][:300]}). Try again later.")
        return []


def hits(rows: Sequence[dict[str, Any]]) -> list[Hit]:
    """The rows of ddgs as hits."""
    return [
        Hit(str(row.get("title", "")), str(row["href"]), " ".join(str(row.get("body", "")).split()))
        for row in rows
        if row.get("href")
    ]
