from __future__ import annotations

from pathlib import Path

from tests.unit.web.loopback import workspace

from wieldy.core.content import Text
from wieldy.web.page import MOST, SECONDS, Page, PageCache


def page(text: str) -> Page:
    return Page("https://e.org/", "", "text/plain", (Text(text),), len(text))


def test_a_page_is_kept_for_a_quarter_of_an_hour(tmp_path: Path) -> None:
    now = [0.0]
    cache = PageCache(workspace(tmp_path), clock=lambda: now[0])
    cache.keep("u", page("old"))
    now[0] = SECONDS
    assert cache.find("u") == page("old")
    now[0] = SECONDS + 1
    assert cache.find("u") is None


def test_a_newer_page_replaces_an_older_one(tmp_path: Path) -> None:
    cache = PageCache(workspace(tmp_path))
    cache.keep("u", page("old"))
    cache.keep("u", page("new"))
    assert cache.find("u") == page("new")


def test_pages_not_looked_at_make_room(tmp_path: Path) -> None:
    cache = PageCache(workspace(tmp_path), budget=10_000)
    for name in "abcd":
        cache.keep(name, page(name * 1900))
    assert cache.find("a") is not None
    cache.keep("e", page("e" * 1900))
    assert {name for name in "abcde" if cache.find(name)} == {"a", "c", "d", "e"}
    cache.keep("huge", page("x" * 9_000))
    assert cache.find("huge") is None


def test_the_number_of_pages_is_bounded(tmp_path: Path) -> None:
    cache = PageCache(workspace(tmp_path))
    for n in range(MOST + 5):
        cache.keep(str(n), page("x"))
    assert sum(cache.find(str(n)) is not None for n in range(MOST + 5)) == MOST
