from __future__ import annotations

from pathlib import Path

from wieldy.core.outcome import Text
from wieldy.web.page import CACHE_PAGES, CACHE_SECONDS, PageCache, WebPage


def page(text: str) -> WebPage:
    return WebPage("https://e.org/", "", "text/plain", (Text(text),), len(text))


def test_a_page_is_kept_for_a_quarter_of_an_hour(tmp_path: Path) -> None:
    now = [0.0]
    cache = PageCache(clock=lambda: now[0])
    cache.put("u", page("old"))
    now[0] = CACHE_SECONDS
    assert cache.get("u") == page("old")
    now[0] = CACHE_SECONDS + 1
    assert cache.get("u") is None


def test_a_newer_page_replaces_an_older_one(tmp_path: Path) -> None:
    cache = PageCache()
    cache.put("u", page("old"))
    cache.put("u", page("new"))
    assert cache.get("u") == page("new")


def test_pages_not_looked_at_make_room(tmp_path: Path) -> None:
    cache = PageCache(budget=10_000)
    for name in "abcd":
        cache.put(name, page(name * 1900))
    assert cache.get("a") is not None
    cache.put("e", page("e" * 1900))
    assert {name for name in "abcde" if cache.get(name)} == {"a", "c", "d", "e"}
    cache.put("huge", page("x" * 9_000))
    assert cache.get("huge") is None


def test_the_number_of_pages_is_bounded(tmp_path: Path) -> None:
    cache = PageCache()
    for n in range(CACHE_PAGES + 5):
        cache.put(str(n), page("x"))
    assert sum(cache.get(str(n)) is not None for n in range(CACHE_PAGES + 5)) == CACHE_PAGES
