from __future__ import annotations

from wieldy.files.reading.read_file import RecentReads


def unchanged(path: str, first: int, last: int) -> bool:
    return True


def test_an_unchanged_page_is_withheld_once_after_it_was_shown() -> None:
    recent = RecentReads()
    assert not recent.withhold(("/a", 1, 9), unchanged)
    assert recent.withhold(("/a", 1, 9), unchanged)
    assert not recent.withhold(("/a", 1, 9), unchanged)
    assert recent.withhold(("/a", 1, 9), unchanged)


def test_a_changed_page_another_range_or_another_file_is_shown() -> None:
    recent = RecentReads()
    recent.withhold(("/a", 1, 9), unchanged)
    assert not recent.withhold(("/a", 1, 9), lambda *_: False)
    assert not recent.withhold(("/a", 1, 8), unchanged)
    assert not recent.withhold(("/b", 1, 9), unchanged)
