"""Searching the web: whichever service is set up finds, the wanted and unwanted domains are applied here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from wieldy.core.record import record
from wieldy.core.workspace import Workspace
from wieldy.web.address import BadAddress, parse_address

MOST_HITS = 20
NONE_SET_UP = (
    "no search service is set up: name a SearXNG server in the setting `web.searxng`, "
    "or pip install 'wieldy[web]' for ddgs"
)


@record
class Hit:
    """One thing found."""

    title: str
    url: str
    excerpt: str = ""


class SearchService(Protocol):
    """Finds pages."""

    name: str

    async def search(self, query: str) -> Sequence[Hit]:
        """The hits, best first. Raises `ToolFailure`."""
        ...


class Searches:
    """The search services of a workspace: `workspace.resident(Searches)`.

    A session whose provider searches by itself puts that into `provider`; it comes before what the settings name.
    """

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self.provider: SearchService | None = None
        self.installed: Callable[[], SearchService | None] = _installed

    def service(self) -> SearchService | None:
        """The service to use, or None where none is set up."""
        if self.provider is not None:
            return self.provider
        if server := self._workspace.setting("web.searxng", ""):
            from wieldy.web.searxng import SearXNG

            return SearXNG(server, self._workspace)
        return self.installed()


def _installed() -> SearchService | None:
    from wieldy.web.duckduckgo import DuckDuckGo, is_installed

    return DuckDuckGo() if is_installed() else None


def narrowed(query: str, allowed: Sequence[str]) -> str:
    """The query with the wanted domains as search services understand them."""
    sites = [f"site:{domain.lower().removeprefix('*.')}" for domain in allowed]
    return f"{query} {sites[0] if len(sites) == 1 else '(' + ' OR '.join(sites) + ')'}" if sites else query


def kept(hits: Sequence[Hit], allowed: Sequence[str], blocked: Sequence[str]) -> list[Hit]:
    """The hits on wanted domains (sub-domains included) and on no blocked one, each address once."""
    found: dict[str, Hit] = {}
    for hit in hits:
        try:
            host = parse_address(hit.url).host
        except BadAddress:
            continue
        if (not allowed or _within(host, allowed)) and not _within(host, blocked):
            found.setdefault(hit.url, hit)
    return list(found.values())[:MOST_HITS]


def _within(host: str, domains: Sequence[str]) -> bool:
    bare = [domain.strip().lower().removeprefix("*.").strip(".") for domain in domains]
    return any(host == domain or host.endswith(f".{domain}") for domain in bare if domain)
