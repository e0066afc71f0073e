"""Searching the web: whichever service is set up finds, the wanted and unwanted domains are applied here."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol
from urllib.parse import quote_plus

from msgspec import Struct

from wieldy.core.errors import ToolFailure
from wieldy.core.threads import in_thread
from wieldy.core.workspace import Workspace
from wieldy.web.address import BadAddress, parse_address
from wieldy.web.fetch import Fetcher, Moved

MOST_HITS = 20
NONE_SET_UP = (
    "no search service is set up: name a SearXNG server in the setting `web.searxng`, "
    "or pip install 'wieldy[web]' for ddgs"
)


class Hit(Struct, frozen=True):
    """One thing found."""

    title: str
    url: str
    excerpt: str = ""


class Wanted(Struct, frozen=True):
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
    """The search services of a workspace: `workspace.service(Searches)`.

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
            return SearXNG(server, self._workspace)
        return self.installed(self._workspace.env)


def _installed(env: Mapping[str, str]) -> SearchService | None:

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


class SearXNG:
    """The server that the settings name. It may be private: whoever named it meant it."""

    name = "SearXNG"

    def __init__(self, server: str, workspace: Workspace) -> None:
        self._server = server
        self._fetcher = workspace.service(Fetcher)

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
