"""Patterns compiled late behave like patterns."""

from __future__ import annotations

import re

import pytest

from wieldy.schema.pattern import pattern


def test_it_does_what_a_compiled_pattern_does():
    late, early = pattern(r"(a)(b)?", re.IGNORECASE), re.compile(r"(a)(b)?", re.IGNORECASE)
    for method in ("search", "match", "fullmatch"):
        found, expected = getattr(late, method)("AB"), getattr(early, method)("AB")
        assert found.groups() == expected.groups()
    assert late.findall("xabAx") == early.findall("xabAx")
    assert late.sub("-", "xabx") == "x-x"
    assert [found.span() for found in late.finditer("ab a")] == [(0, 2), (3, 4)]
    assert (late.pattern, late.flags, late.groups) == (early.pattern, early.flags, early.groups)


def test_bytes_are_matched_by_bytes():
    assert pattern(rb"\n+").split(b"a\n\nb") == [b"a", b"b"]


def test_nothing_is_compiled_before_it_is_used():
    broken = pattern("(")
    with pytest.raises(re.error):
        broken.search("x")
