"""Truncation: never longer than allowed, at line breaks where one is near, saying what is missing."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from wieldy.core.truncate import keep_head, keep_tail, truncate, truncate_line, truncate_middle


def test_the_end_is_replaced_by_an_ellipsis():
    assert truncate("abcdef", 6) == "abcdef"
    assert truncate("abcdefg", 6) == "abcde…"
    assert truncate_line("a\n  b\tc", 10) == "a b c"


def test_the_middle_is_counted_and_cut_at_line_breaks():
    text = "".join(f"line {number}\n" for number in range(1000))
    short = truncate_middle(text, 400)
    head, marker, tail = short.partition("… ")
    assert head.endswith("\n") and all(line in text.split("\n") for line in head.split("\n"))
    assert marker and tail.partition("…\n")[2].startswith("line ")
    assert truncate_middle("short", 400) == "short"


@given(st.text(alphabet="ab\n"), st.integers(1, 50))
def test_head_and_tail_are_parts_of_the_text_within_the_limit(text: str, limit: int):
    head, tail = keep_head(text, limit), keep_tail(text, min(limit, len(text)))
    assert text.startswith(head) and len(head) <= limit
    assert text.endswith(tail) and len(tail) <= limit
