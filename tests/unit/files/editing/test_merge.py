"""An edit and a foreign change become one content, or a conflict that shows both."""

from __future__ import annotations

import pytest

from wieldy.files.editing.diff import merge, merge_bytes

BASE = b"one\ntwo\nthree\nfour\nfive\n"


def test_changes_in_different_places_are_both_kept() -> None:
    merged = merge(BASE, BASE.replace(b"one", b"ONE"), BASE + b"six\n")
    assert merged is not None and merged.clean
    assert merged.data == b"ONE\ntwo\nthree\nfour\nfive\nsix\n"


def test_the_same_change_on_both_sides_is_made_once() -> None:
    changed = BASE.replace(b"two", b"2")
    merged = merge(BASE, changed.replace(b"five", b"5"), changed)
    assert merged is not None and merged.data == b"one\n2\nthree\nfour\n5\n"


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_a_conflict_shows_both_sides_between_markers(end: bytes) -> None:
    base = BASE.replace(b"\n", end)
    merged = merge(base, base.replace(b"two", b"ours"), base.replace(b"two", b"theirs"))
    assert merged is not None and merged.conflicts == 1
    marked = b"one\n<<<<<<< your edit\nours\n=======\ntheirs\n>>>>>>> on disk\nthree\nfour\nfive\n"
    assert merged.data == marked.replace(b"\n", end)
    assert merged.excerpt() == "one\n<<<<<<< your edit\nours\n=======\ntheirs\n>>>>>>> on disk\nthree\nfour\nfive"


def test_undecodable_bytes_and_mixed_line_ends_are_kept() -> None:
    base = b"a\r\n\xff\xfe\xe9\nb\r\nc\nd\ne\n"
    assert merge_bytes(base, base.replace(b"a", b"A"), base.replace(b"e\n", b"E\n")) == base.replace(
        b"a", b"A"
    ).replace(b"e\n", b"E\n")


def test_a_wide_text_is_merged_by_its_own_lines() -> None:
    base = "\ufeffa\nb\nc\nਊ\nd\n".encode("utf-16-le")
    ours, theirs = (base.decode("utf-16-le").replace(*pair).encode("utf-16-le") for pair in (("a", "A"), ("d", "D")))
    merged = merge_bytes(base, ours, theirs)
    assert merged is not None and merged.decode("utf-16-le") == "\ufeffA\nb\nc\nਊ\nD\n"


def test_a_file_in_another_encoding_is_not_merged() -> None:
    base = "é\nb\nc\nd\n".encode()
    assert merge(base, base.replace(b"d", b"D"), "é\nb\nc\nd\n".encode("utf-16")) is None


def test_a_side_that_changed_nothing_gives_way() -> None:
    assert merge_bytes(BASE, BASE, b"x\n") == b"x\n"
    assert merge_bytes(BASE, b"x\n", BASE) == b"x\n"


def test_conflicts_give_no_merged_content() -> None:
    assert merge_bytes(b"a\n", b"b\n", b"c\n") is None
