from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.unit.web.loopback import response, serving

from wieldy import Toolbox
from wieldy.engine.workspace_services import HostServices
from wieldy.tools.web_search import web_search
from wieldy.web.search import SearchHit, SearchQuery

RESULTS = [
    {"title": "Tea", "url": "https://tea.example/1", "content": "Hot."},
    {"title": "Cake", "url": "https://cake.example/2", "content": ""},
]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))


@pytest.mark.asyncio
async def test_hits_are_listed_with_their_addresses(tmp_path: Path) -> None:
    async with serving({"/search": response(json.dumps({"results": RESULTS}).encode())}) as site:
        async with Toolbox(tmp_path, mode="bypassPermissions", settings={"web": {"searxng": site.origin}}) as box:
            assert web_search.enabled(box.workspace) is True
            every = await box.call("WebSearch", {"query": "tea"})
            some = await box.call("WebSearch", {"query": "tea", "blocked_domains": ["cake.example"]})
            none = await box.call("WebSearch", {"query": "tea", "allowed_domains": ["milk.example"]})
        assert every.text == "1. Tea\n   https://tea.example/1\n   Hot.\n2. Cake\n   https://cake.example/2"
        assert [hit["url"] for hit in some.data["results"]] == ["https://tea.example/1"]
        assert none.text.startswith("Nothing was found on these domains")
        assert site.asked[-1] == "/search?q=tea+site%3Amilk.example&format=json"


@pytest.mark.asyncio
async def test_what_the_provider_finds_comes_first(tmp_path: Path) -> None:
    class OfProvider:
        name = "provider"

        async def search(self, wanted: SearchQuery) -> Sequence[SearchHit]:
            return [SearchHit(wanted.query.upper(), "https://p.example/")]

    host, settings = HostServices(search_service=OfProvider), {"web": {"searxng": "http://127.0.0.1:9"}}
    async with Toolbox(tmp_path, mode="bypassPermissions", settings=settings, host=host) as box:
        result = await box.call("WebSearch", {"query": "tea"})
    assert result.text == "1. TEA\n   https://p.example/"
    assert result.data["service"] == "provider"


@pytest.mark.asyncio
async def test_where_nothing_is_set_up_the_reason_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ddgs", None)  # not installed
    async with Toolbox(tmp_path, mode="bypassPermissions", settings={}) as box:
        assert "web.searxng" in str(web_search.enabled(box.workspace))
        row = next(row for row in await box.offer() if row.tool.name == "WebSearch")
        assert not row.offered
        result = await box.call("WebSearch", {"query": "tea"})
    assert result.is_error
    assert "no search service is set up" in result.text


@pytest.mark.asyncio
async def test_searching_asks_first_and_a_rule_allows_it(tmp_path: Path) -> None:
    asking = Toolbox(tmp_path, settings={})
    allowed = Toolbox(tmp_path, settings={"permissions": {"allow": ["WebSearch"]}})
    assert (await asking.explain("WebSearch", {"query": "tea"})).behavior == "ask"
    assert (await allowed.explain("WebSearch", {"query": "tea"})).behavior == "allow"
    await asking.aclose()
    await allowed.aclose()


def test_it_is_small() -> None:
    assert len(json.dumps(web_search.schema)) <= 500
    assert len(web_search.description) <= 350
