from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.unit.web.loopback import response, serving, workspace

from wieldy.core.errors import ToolFailure
from wieldy.web.search import SearchHit, SearchQuery, SearXNG, ddgs_hits, filter_hits

FOUND = [
    SearchHit("A", "https://a.org/1"),
    SearchHit("Sub", "https://docs.a.org/2"),
    SearchHit("Like", "https://nota.org/3"),
]


def test_domains_include_their_sub_domains_and_no_lookalikes() -> None:
    assert filter_hits(FOUND, SearchQuery("", ("A.org",))) == FOUND[:2]
    assert filter_hits(FOUND, SearchQuery("", ("*.a.org",), ("docs.a.org",))) == FOUND[:1]
    assert filter_hits(FOUND, SearchQuery("", (), ("a.org",))) == FOUND[2:]


def test_a_hit_is_shown_once_and_only_if_it_is_a_web_address() -> None:
    assert (
        filter_hits([FOUND[0], FOUND[0], SearchHit("x", "javascript:alert(1)"), SearchHit("y", "")], SearchQuery(""))
        == FOUND[:1]
    )


def test_wanted_domains_become_part_of_the_query() -> None:
    assert SearchQuery("tea").engine_text() == "tea"
    assert SearchQuery("tea", ("a.org",)).engine_text() == "tea site:a.org"
    assert SearchQuery("tea", ("a.org", "*.b.org")).engine_text() == "tea (site:a.org OR site:b.org)"


def test_rows_of_ddgs_become_hits() -> None:
    rows = [{"title": "T", "href": "https://a.org/", "body": "one\n two"}, {"title": "no address"}]
    assert ddgs_hits(rows) == [SearchHit("T", "https://a.org/", "one two")]


@pytest.mark.asyncio
async def test_a_searxng_server_is_asked_for_json(tmp_path: Path) -> None:
    results = [
        {"title": "T", "url": "https://a.org/", "content": "one\ntwo"},
        {"title": None, "url": "https://b.org/"},
        "?",
    ]
    async with serving({"/searx/search": response(json.dumps({"results": results}).encode())}) as site:
        found = await SearXNG(f"{site.origin}/searx/", workspace(tmp_path).services.fetcher).search(
            SearchQuery("tea & cake")
        )
        assert found == [SearchHit("T", "https://a.org/", "one two"), SearchHit("", "https://b.org/")]
        assert site.asked == ["/searx/search?q=tea+%26+cake&format=json"]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("said", "message"),
    [
        (response(status="403 Forbidden"), "formats"),
        (response(b"<html>"), "not answer in JSON"),
        (response(b"[]"), "not answer in JSON"),
        (response(b'{"results": 3}'), "not answer in JSON"),
        (response(status="500 Oops"), "500 Oops"),
        (response(status="302 x", location="https://other.example/"), r"other\.example"),
    ],
)
async def test_a_server_that_is_of_no_use_is_explained(tmp_path: Path, said: bytes, message: str) -> None:
    async with serving({"/search": said}) as site:
        with pytest.raises(ToolFailure, match=message):
            await SearXNG(site.origin, workspace(tmp_path).services.fetcher).search(SearchQuery("tea"))


@pytest.mark.asyncio
async def test_a_wrong_setting_is_named(tmp_path: Path) -> None:
    with pytest.raises(ToolFailure, match=r"web\.searxng"):
        await SearXNG("search.example", workspace(tmp_path).services.fetcher).search(SearchQuery("tea"))
