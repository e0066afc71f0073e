"""A miss tells where the closest text is and what the first difference is."""

from __future__ import annotations

import pytest

from wieldy.files.editing.document import Document
from wieldy.files.editing.matching import describe_closest

FILE = "import os\n\n\ndef area(width, height):\n\treturn width * height\n\n\ndef name():\n    return 'x'\n"


def hint(old: str, text: str = FILE) -> str:
    return describe_closest(Document.of(text.encode()), old)


def test_the_closest_lines_are_shown_with_their_numbers() -> None:
    words = hint("def area(width, heigth):\n\treturn width * height")
    assert "lines 4-5" in words
    assert "- def area(width, heigth):\n+ def area(width, height):\n" in words
    assert "line 4, after 20 characters: old_string has `t`, the file has `h`" in words


def test_a_tab_and_spaces_are_told_apart() -> None:
    words = hint("def area(width, height):\n    return width / height")
    assert "line 5, after 0 characters: old_string has 4 spaces, the file has a tab" in words


@pytest.mark.parametrize(
    ("text", "old", "named"),
    [
        ("price = 10\u00a0EUR + tax\n", "price = 11 EUR + tax", "`1`, the file has `0`"),
        ("total = a\u2009+ b * c\n", "total = a + b * d", "a space, the file has (U+2009 THIN SPACE)"),
        (
            "say ‘yes’ to all of it\n",
            "say 'yes' to all if it",
            "`'`, the file has '‘' (U+2018 LEFT SINGLE QUOTATION MARK)",
        ),
    ],
)
def test_odd_characters_are_named_by_code_point(text: str, old: str, named: str) -> None:
    assert named in hint(old, text)


def test_the_indentation_before_a_text_that_begins_within_its_line_is_no_difference() -> None:
    assert "line 9, after 7 characters: old_string has `y`, the file has `'`" in hint("return y")


@pytest.mark.parametrize(
    ("text", "old", "named"),
    [
        (
            "    foo = 1\n    bar = 2\n",
            "foo = 1\n    bar = 3",
            "line 2, after 10 characters: old_string has `3`, the file has `2`",
        ),
        (
            "    foo = 1\nx = 2\n",
            "foo = 1\n  x = 2",
            "line 2, after 0 characters: old_string has 2 spaces, the file has `x`",
        ),
        ("foo = 1\nbar = 2\n", "\nfoo = 1", "line breaks before this text: old_string has 1, the file has 0"),
        ("foo = 1\nbar = 2\n", "foo = 1\n\n", "line breaks after this text: old_string has 2, the file has 1"),
        ("a\nfoo = 1", "foo = 1\n", "line breaks after this text: old_string has 1, the file has 0"),
    ],
)
def test_the_difference_named_is_one(text: str, old: str, named: str) -> None:
    words = hint(old, text)
    assert named in words
    assert "has the end of the line, the file has the end of the line" not in words


def test_nothing_alike_is_said_to_be_nothing() -> None:
    assert "Nothing in it is much like it" in hint("zzzzzzzzzzzz qqqqqqqqqqqq")


def test_long_lines_and_texts_give_a_short_hint() -> None:
    long = "x" * 500_000
    words = hint(long + "y\n" * 500, long + "z\n" + "w\n" * 500)
    assert len(words) < 6_000
