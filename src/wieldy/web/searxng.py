"""A SearXNG server as search service: one GET, JSON back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote_plus

from wieldy.core.failure import ToolFailure
from wieldy.core.workspace import Workspace
from wieldy.web.address import BadAddress, parse_address
from wieldy.web.fetch import Fetcher, Moved
from wieldy.web.search import Hit, Wanted


class SearXNG:
    """The server that the settings name. It may be private: whoever named it meant it."""

    name = "SearXNG"

    def __init__(self, server: str, workspace: Workspace) -> None:
        self._server = server
        self._fetcher = workspace.resident(Fetcher)

    async def search(self, wanted: Wanted) -> Sequence[Hit]:
        """The hits of this server."""
        try:
            where = parse_address(f"{self._server.rstrip('/')}/search?q={quote_plus(wanted.in_words())}&format=json")
        except BadAddress as problem:
            raise ToolFailure(f"The setting `web.searxng` is of no use: {problem}") from None
        answer = await self._fetcher.get(where, reach=self._fetcher.reach(where.host))
        if isinstance(answer, Moved):
            raise ToolFailure(
                f"The search server redirects to {answer.to}; the setting `web.searxng` should name that."
            )
        if answer.status == 403:
            raise ToolFailure(f"{where.place} refuses JSON: its settings need `json` among `search.formats`.")
        if answer.status != 200:
            raise ToolFailure(f"{where.place} answered {answer.status} {answer.reason}.")
        return _hits(answer.body, where.place)


def _hits(body: bytes, place: str) -> list[Hit]:
    try:
        results: Any = json.loads(body).get("results", [])
    except (ValueError, AttributeError):
        raise ToolFailure(f"{place} did not answer in JSON; is it a SearXNG server?") from None
    found = (item for item in results if isinstance(item, dict) and isinstance(item.get("url"), str))
    return [Hit(_line(item.get("title")), item["url"], _line(item.get("content"))) for item in found]


def _line(value: Any) -> str:
    return " ".join(value.split()) if isinstance(value, str) else ""
