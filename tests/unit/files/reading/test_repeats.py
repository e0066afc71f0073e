from __future__ import annotations

from wieldy.files.reading.read_file import RecentReads


def test_a_page_is_held_back_once_after_it_was_shown() -> None:
    repeats = RecentReads()
    assert not repeats.hold_back("/a", 1, 9)
    repeats.show("/a", 1, 9)
    assert repeats.hold_back("/a", 1, 9)
    assert not repeats.hold_back("/a", 1, 9)


def test_another_range_or_file_is_another_page() -> None:
    repeats = RecentReads()
    repeats.show("/a", 1, 9)
    assert not repeats.hold_back("/a", 1, 8)
    assert not repeats.hold_back("/b", 1, 9)
