"""Whatever is read by splitting alone, every other parser reads in the same way."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wieldy.shell.grammar import common_outline
from wieldy.shell.outline import outline
from wieldy.shell.parse import parse
from wieldy.shell.plain import plain_outline
from wieldy.shell.shfmt import full_outline

WORDS = st.sampled_from(
    [
        "ls",
        "echo",
        "-la",
        "a=b",
        "src/x.py",
        "'a b'",
        '"c; d"',
        "0.5",
        "--x=1",
        "if",
        "in",
        "time",
        "let",
        "''",
        "@%,+:",
    ]
)
SEPARATORS = st.sampled_from([" ", "  ", "\t", "; ", ";", " && ", "&&", " || ", " | ", "|", ";;", "|&", " & ", "\n"])
ODD = st.sampled_from(["$x", "`ls`", "\\", "*", "~", "{a,b}", "#", "!", "(", ")", "<", ">", "2>", "é", '"', "'"])


@st.composite
def lines(draw: st.DrawFn) -> str:
    pieces = [draw(WORDS)]
    for _ in range(draw(st.integers(0, 8))):
        pieces += [draw(SEPARATORS), draw(WORDS)]
    if draw(st.integers(0, 3)) == 0:
        pieces.insert(draw(st.integers(0, len(pieces))), draw(ODD))
    return "".join(pieces)


@settings(max_examples=1_500, deadline=None)
@given(lines())
def test_what_splitting_reads_tree_sitter_and_our_grammar_read_in_the_same_way(text):
    read = plain_outline(text)
    if read is not None:
        assert common_outline(text) == read
        assert outline(parse(text), text).entries == read


@settings(max_examples=60, deadline=None)
@given(lines())
def test_what_splitting_reads_shfmt_reads_in_the_same_way(text):
    if full_outline("true") is None:
        pytest.skip("SHFMT IS NOT COMPARED: it is not installed")
    read = plain_outline(text)
    if read is not None:
        assert full_outline(text) == read


@pytest.mark.parametrize(
    "text",
    ["true", "ls -la src", "sleep 0.5; echo slept", "grep -rn 'a b' src | head -5 && git status;", 'echo "x" "" y'],
)
def test_everyday_words_are_plain(text):
    assert plain_outline(text) is not None


@pytest.mark.parametrize(
    "text",
    [
        *("a=b ls", "if x", "time ls", "let x=1", "ls *", "ls ~", "ls $x", "ls > f", "ls 2>&1", "(ls)", "ls &"),
        *("ls\npwd", "a;;b", "a |& b", "a &&", "; a", "a; ; b", "", " ", "# a", "! a", "a'b'", 'echo "$x"', "écho"),
        *('echo "a\\"b"', "echo `ls`", "a{b,c}", "a\\ b", "{ a; }", "[ a ]", "a[1]=2"),
    ],
)
def test_anything_else_is_left_to_a_parser(text):
    assert plain_outline(text) is None
