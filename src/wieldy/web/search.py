"""Web search by the service that is set up: the provider's own, a SearXNG server, or ddgs."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote_plus

from msgspec import Struct

from wieldy.core.errors import ToolFailure
from wieldy.core.threads import in_thread
from wieldy.core.workspace import Workspace
from wieldy.web.url import InvalidUrl, parse_url

if TYPE_CHECKING:
    from wieldy.web.fetch import Fetcher

MAX_HITS = 20
NONE_SET_UP = (
    "no search service is set up: name a SearXNG server in the setting `web.searxng`, "
    "or pip install 'wieldy[web]' for ddgs"
)


class SearchHit(Struct, frozen=True):
    title: str
    url: str
    excerpt: str = ""


class SearchQuery(Struct, frozen=True):
    """A query, limited to the `allowed` domains if there are any, and without the `blocked` ones."""

    query: str
    allowed: tuple[str, ...] = ()
    blocked: tuple[str, ...] = ()

    def engine_text(self) -> str:
        """The query with the allowed domains in the syntax of search engines."""
        sites = " OR ".join(f"site:{bare_domain(domain)}" for domain in self.allowed)
        if not sites:
            return self.query
        return f"{self.query} ({sites})" if len(self.allowed) > 1 else f"{self.query} {sites}"


class SearchService(Protocol):
    name: str

    async def search(self, query: SearchQuery) -> Sequence[SearchHit]:
        """The hits, best first. Raises `ToolFailure`."""
        ...


class SearchServices:
    """Chooses the search service of a workspace: that of the `host` (a session's model provider), of the settings, or ddgs."""

    def __init__(
        self,
        workspace: Workspace,
        fetcher: Callable[[], Fetcher],
        host: Callable[[], SearchService | None] | None = None,
    ) -> None:
        self._workspace = workspace
        self._fetcher = fetcher
        self._host = host

    def service(self) -> SearchService | None:
        """The service to use, or None if none is set up."""
        if self._host is not None and (service := self._host()) is not None:
            return service
        if server := self._workspace.setting("web.searxng"):
            return SearXNG(server, self._fetcher())
        return DuckDuckGo(self._workspace.env) if importlib.util.find_spec("ddgs") is not None else None


def filter_hits(hits: Sequence[SearchHit], query: SearchQuery) -> list[SearchHit]:
    """Keep hits on allowed domains (with subdomains) and on no blocked one, each URL once."""
    matches: dict[str, SearchHit] = {}
    for hit in hits:
        try:
            host = parse_url(hit.url).host
        except InvalidUrl:
            continue
        if (not query.allowed or _is_within(host, query.allowed)) and not _is_within(host, query.blocked):
            matches.setdefault(hit.url, hit)
    return list(matches.values())[:MAX_HITS]


def bare_domain(domain: str) -> str:
    """A domain without the wildcard and dots that people write around it."""
    return domain.strip().lower().removeprefix("*.").strip(".")


def _is_within(host: str, domains: Sequence[str]) -> bool:
    return any(host == domain or host.endswith(f".{domain}") for domain in map(bare_domain, domains) if domain)


class SearXNG:
    """The server named in `web.searxng`. It may be a private host, because the user named it."""

    name = "SearXNG"

    def __init__(self, server: str, fetcher: Fetcher) -> None:
        self._server = server
        self._fetcher = fetcher

    async def search(self, query: SearchQuery) -> Sequence[SearchHit]:
        from wieldy.web.fetch import HttpRedirect

        try:
            url = parse_url(f"{self._server.rstrip('/')}/search?q={quote_plus(query.engine_text())}&format=json")
        except InvalidUrl as problem:
            raise ToolFailure(f"The setting `web.searxng` cannot be used: {problem}") from None
        response = await self._fetcher.fetch(url, policy=self._fetcher.address_policy(url.host))
        if isinstance(response, HttpRedirect):
            raise ToolFailure(
                f"The search server redirects to {response.location}; the setting `web.searxng` should name that."
            )
        if response.status == 403:
            raise ToolFailure(f"{url.authority} refuses JSON: its settings need `json` among `search.formats`.")
        if response.status != 200:
            raise ToolFailure(f"{url.authority} answered {response.status} {response.reason}.")
        return _parse_hits(response.body, url.authority)


def _parse_hits(body: bytes, server: str) -> list[SearchHit]:
    try:
        results: list[Any] = list(json.loads(body).get("results") or ())
    except (ValueError, AttributeError, TypeError, RecursionError):
        raise ToolFailure(f"{server} did not answer in JSON; is it a SearXNG server?") from None
    items = (item for item in results if isinstance(item, dict) and isinstance(item.get("url"), str))
    return [SearchHit(_one_line(item.get("title")), item["url"], _one_line(item.get("content"))) for item in items]


def _one_line(value: Any) -> str:
    return " ".join(value.split()) if isinstance(value, str) else ""


DDGS_TIMEOUT = 15
# One after the other: by default ddgs sends the query to every engine it knows.
ENGINES = ("duckduckgo", "brave", "mojeek")
PROXY_VARIABLES = ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")


class DuckDuckGo:
    """Searches with ddgs; proxy and certificate authorities come from the environment."""

    name = "ddgs"

    def __init__(self, env: Mapping[str, str]) -> None:
        self._proxy = next((env[name] for name in PROXY_VARIABLES if env.get(name)), None)
        self._ca_file = env.get("WIELDY_CA_FILE") or env.get("SSL_CERT_FILE") or True

    async def search(self, query: SearchQuery) -> Sequence[SearchHit]:
        """The hits of the first engine that has any."""
        return await in_thread(self._search, query.engine_text())

    def _search(self, query: str) -> list[SearchHit]:
        import ddgs
        from ddgs.exceptions import DDGSException

        engines = ddgs.DDGS(proxy=self._proxy, timeout=DDGS_TIMEOUT, verify=self._ca_file)
        errors: list[str] = []
        for engine in ENGINES:
            try:
                return ddgs_hits(engines.text(query, max_results=MAX_HITS, backend=engine))
            except DDGSException as error:
                if "no results" not in str(error).lower():
                    errors.append(f"{engine}: {' '.join(str(error).split())}")
        if len(errors) == len(ENGINES):
            raise ToolFailure(f"The search failed ({errors[0][:300]}).", "Try again later.")
        return []


def ddgs_hits(rows: Sequence[dict[str, Any]]) -> list[SearchHit]:
    """Convert the rows of ddgs."""
    return [
        SearchHit(str(row.get("title", "")), str(row["href"]), " ".join(str(row.get("body", "")).split()))
        for row in rows
        if row.get("href")
    ]
