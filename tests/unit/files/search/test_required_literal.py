"""What every match of a pattern contains."""

from __future__ import annotations

import re
import warnings

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from wieldy.files.editing.search_replace import required_literal


@pytest.mark.parametrize(
    ("pattern", "literal"),
    [
        ("old_name", "old_name"),
        (r"old_name\(", "old_name("),
        (r"\bdef (\w+)\(self", "(self"),
        ("colou?r", "colo"),
        ("ab+cde", "cde"),
        ("foo(bar)?bazz", "bazz"),
        ("[abc]rest", "rest"),
        ("[]x]rest", "rest"),
        (r"\x41\u0042rest", "rest"),
        ("x{3}yyy", "yyy"),
        ("x{,3}yyy", "yyy"),
        (r"(abc)\1def", "def"),
        (r"abc\ndef!", "def!"),
    ],
)
def test_the_longest_plain_run_is_found(pattern, literal):
    assert required_literal(pattern) == literal


@pytest.mark.parametrize(
    "pattern", ["foo|bar", "(?i)foobar", "(?i:foobar)", "fo", "(foobar)?", ".*", "größe", r"\d+", "[foobar]"]
)
def test_in_doubt_there_is_none(pattern):
    assert required_literal(pattern) is None


PIECES = st.sampled_from(
    r"""a b abc xyz . \. \( \w \b ^ $ * + ? {2} {0,2} {,2} {x ( ) (?: [ ] [^]a] [a\]b] \n \x61 \1 (?= (?! (?<= (?P<n> (?P=n)
    (?#note) (?#[) | (?i) ~ é *? ++ (?>""".split()  # noqa: SIM905
)
TEXTS = st.text(st.sampled_from("abcxyz.(){}[]~é\n 2,"), max_size=30)


@given(st.lists(PIECES, max_size=10).map("".join), st.lists(TEXTS, min_size=1, max_size=8))
@settings(max_examples=1500, deadline=None)
def test_every_match_contains_it(pattern, texts):
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            compiled = re.compile(pattern, re.MULTILINE)
    except re.error:
        assume(False)
    literal = required_literal(pattern)
    if literal is not None:
        for text in texts:
            for match in compiled.finditer(text):
                assert literal in match[0] or literal in text
