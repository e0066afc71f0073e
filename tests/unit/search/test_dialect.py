from __future__ import annotations

import re

import pytest

from wieldy.search.dialect import BadPattern, LineBreakInPattern, translate


def found(pattern: str, text: str, **kinds: bool) -> list[str]:
    return [match[0] for match in re.compile(translate(pattern, **kinds), re.MULTILINE).finditer(text)]


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        ("a.c", "abc a\nc a\rc", ["abc"]),
        (r"\s+", "a \n b", [" ", " "]),
        (r"[^a]", "a\nb", ["b"]),
        ("x$", "x\r\nx\nx", ["x", "x", "x"]),
        ("^x", "x\r\nx\nyx", ["x", "x"]),
        (r"a++", "aaa", ["aaa"]),
        (r"(?P<name>a)b", "ab", ["ab"]),
        (r"(?<name>a)b", "ab", ["ab"]),
        (r"a(?i)b|c", "aB C", ["aB", "C"]),
        (r"(?i:a)b", "Ab AB", ["Ab"]),
        (r"(?U)a+", "aa", ["a", "a"]),
        (r"\x41\u{42}\u0043\U00000044", "ABCD", ["ABCD"]),
        (r"[[:digit:]a-c]+", "12ab-", ["12ab"]),
        (r"[]x]+", "x]", ["x]"]),
        (r"\<to\>", "to tot", ["to"]),
        (r"a{2}", "aaaa", ["aa", "aa"]),
        (r"\.\{", ".{", [".{"]),
        (r"(?x) a b  # said", "ab", ["ab"]),
    ],
)
def test_patterns_mean_what_they_mean_to_rg(pattern, text, matches):
    assert found(pattern, text) == matches


def test_across_lines_the_dot_and_the_classes_match_line_ends():
    assert found("a.b", "a\nb", multiline=True) == ["a\nb"]
    assert found(r"a\sb", "a\nb", multiline=True) == ["a\nb"]
    assert found(r"a\nb", "a\nb", multiline=True) == ["a\nb"]
    assert found(r"\Aa|b\z", "a\nb", multiline=True) == ["a", "b"]


def test_bytes_that_are_not_text_match_nothing():
    for pattern in (".", r"\W", r"\S", r"[^a]", r"\D"):
        assert found(pattern, "\udcff") == []
        assert found(pattern, "\udcff", multiline=True) == []


def test_case_is_ignored_where_asked():
    assert found("größe", "GRÖSSE Größe GRÖßE", ignore_case=True) == ["Größe", "GRÖßE"]


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("a(", "unclosed group"),
        ("a)", "unopened group"),
        ("[a", "unclosed character class"),
        ("*a", "missing expression"),
        ("a{", "valid decimal"),
        ("a{2", "unclosed counted repetition"),
        ("a{3,2}", "start must be"),
        ("(?=a)", "look-around"),
        ("(?<!a)", "look-around"),
        (r"(a)\1", "backreferences"),
        (r"\Z", "unrecognized escape"),
        ("\\", "incomplete escape"),
        ("[z-a]", "start must be"),
        ("(?q)a", "unrecognized flag"),
        (r"\pL", "built-in"),
        ("[a&&b]", "built-in"),
        (r"\Aa", "built-in"),
        (r"\x{110000}", "Unicode"),
    ],
)
def test_what_cannot_be_read_is_refused_with_a_reason(pattern, reason):
    with pytest.raises(BadPattern, match=reason):
        translate(pattern)


def test_a_line_break_in_a_search_line_by_line_is_refused():
    with pytest.raises(LineBreakInPattern):
        translate(r"a\nb")
