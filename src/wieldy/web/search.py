"""Searching the web: whichever service is set up finds, the wanted and unwanted domains are applied here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from wieldy.core.record import record
from wieldy.core.workspace import Workspace

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


@record
class Wanted:
    """What to look for; where domains are named, only there, and never on blocked ones."""

    query: str
    allowed: tuple[str, ...] = ()
    blocked: tuple[str, ...] = ()

    def in_words(self) -> str:
        """The query with the wanted domains as search engines understand them."""
        sites = [f"site:{domain}" for domain in map(bare, self.allowed)]
        return (
            f"{self.query} {sites[0] if len(sites) == 1 else '(' + ' OR '.join(sites) + ')'}" if sites else self.query
        )


class SearchService(Protocol):
    """Finds pages."""

    name: str

    async def search(self, wanted: Wanted) -> Sequence[Hit]:
        """The hits, best first. Raises `ToolFailure`."""
        ...


class Searches:
    """The search services of a workspace: `workspace.resident(Searches)`.

    A session whose provider searches by itself puts that into `provider`; it comes before what the settings name.
    """

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self.provider: SearchService | None = None
        self.installed: Callable[[Mapping[str, str]], SearchService | None] = _installed

    def service(self) -> SearchService | None:
        """The service to use, or None where none is set up."""
        if self.provider is not None:
            return self.provider
        if server := self._workspace.setting("web.searxng", ""):
            from wieldy.web.searxng import SearXNG

            return SearXNG(server, self._workspace)
        return self.installed(self._workspace.env)


def _installed(env: Mapping[str, str]) -> SearchService | None:
    from wieldy.web.duckduckgo import DuckDuckGo, is_installed

    return DuckDuckGo(env) if is_installed() else None


def bare(domain: str) -> str:
    """A domain without what people write around it."""
    return domain.strip().lower().removeprefix("*.").strip(".")


def kept(hits: Sequence[Hit], wanted: Wanted) -> list[Hit]:
    """The hits on wanted domains (sub-domains included) and on no blocked one, each address once."""
    from wieldy.web.address import BadAddress, parse_address

    found: dict[str, Hit] = {}
    for hit in hits:
        try:
            host = parse_address(hit.url).host
        except BadAddress:
            continue
        if (not wanted.allowed or _within(host, wanted.allowed)) and not _within(host, wanted.blocked):
            found.setdefault(hit.url, hit)
    return list(found.values())[:MOST_HITS]


def _within(host: str, domains: Sequence[str]) -> bool:
    return any(host == domain or host.endswith(f".{domain}") for domain in map(bare, domains) if domain)
