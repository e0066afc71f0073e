"""Cut text is never longer than allowed; what escapes the eye is spelled out; numbers and names read as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wieldy.core.text import (
    MISSPELLED,
    describe_invisible,
    did_you_mean,
    display_path,
    escape_invisible,
    format_duration,
    format_size,
    keep_head,
    keep_tail,
    nearest_name,
    nearest_names,
    plural,
    printable_path,
    relative_path,
    suggest_name,
    truncate,
    truncate_line,
    truncate_middle,
)


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


@pytest.mark.parametrize("code", range(128))
def test_of_plain_characters_those_without_a_shape_are_hidden(code):
    text = f"echo a{chr(code)}b"
    honest = chr(code).isprintable() or chr(code) in "\t\n"
    assert (describe_invisible(text) is None) == honest
    assert (escape_invisible(text) == text) == honest


@pytest.mark.parametrize("odd", ["\u200b", "\u202e", "\u00a0", "\ufeff", "\udc80", "\x85", "\U000e0041"])
def test_beyond_them_what_cannot_be_seen_is_named(odd):
    assert describe_invisible(f"rm {odd}x") == f"a character that cannot be seen (U+{ord(odd):04X})"
    assert f"<U+{ord(odd):04X}>" in escape_invisible(f"rm {odd}x")


def test_letters_of_other_scripts_are_honest():
    assert describe_invisible("echo größe 日本語") is None


def test_blanks_that_push_the_rest_out_of_sight_are_told():
    assert describe_invisible("ls" + " " * 100 + "; rm x") == "a run of 100 blanks"


def test_names_are_short_below_the_working_directory_and_absolute_elsewhere():
    assert relative_path("/w/a/b.py", "/w") == "a/b.py"
    assert relative_path("/elsewhere/b.py", "/w") == "/elsewhere/b.py"
    assert relative_path("/world/b", "/w") == "/world/b"
    assert relative_path("/etc/x", "/") == "etc/x"


def test_a_name_that_would_mean_home_is_made_safe():
    assert relative_path("/w/~/x", "/w") == "./~/x"


def test_odd_names_become_readable_text():
    assert display_path("a\udcff") == "a\ufffd"
    assert printable_path("a\nb\x1b") == "a\\nb\\x1b"


@pytest.mark.parametrize(
    ("count", "noun", "text"),
    [
        (1, "match", "1 match"),
        (2, "match", "2 matches"),
        (0, "entry", "0 entries"),
        (2, "key", "2 keys"),
        (1234, "more line", "1,234 more lines"),
        (2, "process", "2 processes"),
    ],
)
def test_a_count_agrees_with_its_noun(count: int, noun: str, text: str) -> None:
    assert plural(count, noun) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1000, "1 KB"),
        (151_000, "151 KB"),
        (999_600, "1 MB"),
        (2_500_000_000_000, "2.5 TB"),
    ],
)
def test_sizes_are_said_as_people_say_them(count: int, text: str) -> None:
    assert format_size(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0 s"),
        (0.44, "0.4 s"),
        (4, "4 s"),
        (42.2, "42 s"),
        (59.6, "1 min 0 s"),
        (192, "3 min 12 s"),
        (7500, "2 h 5 min"),
        (274_000, "3 d 4 h"),
    ],
)
def test_durations_are_shown(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


def test_a_name_is_found_whatever_its_case_and_separators():
    names = ["TodoWrite", "mcp__git__log", "Read"]
    assert nearest_names("todo_write", names) == ["TodoWrite"]
    assert nearest_name("mcp-git-log", names) == "mcp__git__log"
    assert nearest_name("Bananas", names) is None
    assert did_you_mean("raed", names) == "; did you mean `Read`?"
    assert did_you_mean("Bananas", names) == ""
    assert suggest_name("Bananas", names) == "; there are `Read`, `TodoWrite`, `mcp__git__log`"
    assert suggest_name("Bananas", []) == "; there are none"


def test_a_name_that_only_resembles_another_is_no_misspelling():
    assert nearest_name("reader", ["Read"]) == "Read"
    assert nearest_name("tool", ["to", "total"], cutoff=MISSPELLED) is None


@given(st.text(max_size=30), st.lists(st.text(min_size=1, max_size=10), max_size=5))
def test_a_known_name_is_its_own_nearest(name: str, others: list[str]):
    assert set(nearest_names(name, others)) <= set(others)
    assert nearest_name("Edit", [*others, "Edit"]) == "Edit"
