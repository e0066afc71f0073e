"""Whatever is read by splitting alone, every other parser reads in the same way."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wieldy.shell.parsing.parser import DECLARATIONS, parse
from wieldy.shell.parsing.read import BARE, MORE_THAN_NAMES, bare_script, plain_outline
from wieldy.shell.parsing.shfmt import full_outline
from wieldy.shell.parsing.tree_sitter import common_outline, outline

WORDS = st.sampled_from(
    [
        *("ls", "echo", "-la", "a=b", "src/x.py", "'a b'", '"c; d"', "0.5", "--x=1", "if", "in", "time", "let", "''"),
        *("@%,+:", "$x", "$a$b.c", '"$HOME/x y"', "$x=1", "2"),
    ]
)
REDIRECTIONS = st.sampled_from(["> f", ">>g", "2>&1", "2>/dev/null", "< 'h i'", ">$x", "1>&2", ">&3", "2 > f"])
SEPARATORS = st.sampled_from([" ", "  ", "\t", "; ", ";", " && ", "&&", " || ", " | ", "|", ";;", "|&", " & ", "\n"])
ODD = st.sampled_from(
    ["$", "$1", "${x}", "$(ls)", "`ls`", "\\", "*", "~", "{a,b}", "#", "!", "(", ")", "<", ">", "2>", "é", '"', "'"]
)


@st.composite
def lines(draw: st.DrawFn) -> str:
    pieces = [draw(WORDS)]
    for _ in range(draw(st.integers(0, 8))):
        pieces += [draw(SEPARATORS), draw(WORDS | REDIRECTIONS)]
    if draw(st.integers(0, 3)) == 0:
        pieces.insert(draw(st.integers(0, len(pieces))), draw(ODD))
    return "".join(pieces)


@settings(max_examples=1_500, deadline=None)
@given(lines())
def test_what_splitting_reads_our_grammar_and_tree_sitter_or_shfmt_read_in_the_same_way(text):
    read = plain_outline(text)
    if read is not None:
        assert outline(parse(text), text).entries == read
        # Of words after a redirection tree-sitter makes more files; that much is known of it.
        assert common_outline(text) == read or full_outline(text) in (read, None)


FIRST = sorted(
    MORE_THAN_NAMES | DECLARATIONS | {"ls", ".", ":", "2", "cd", "eval", "exec", "set", "-", "+x", "@", "%1", "a:"}
)
BARE_LINES = st.builds(
    lambda blanks, first, rest: blanks + first + rest,
    st.sampled_from(["", " ", "   "]),
    st.sampled_from(FIRST) | st.text(sorted(BARE), max_size=8),
    st.text(sorted(BARE | set("  ")), max_size=40) | st.sampled_from([" if then", " 2 3", " a  b ", ""]),
)


@settings(max_examples=1_500, deadline=None)
@given(BARE_LINES)
def test_bare_words_are_read_as_the_grammar_reads_them_and_every_other_parser(text):
    script = bare_script(text)
    if script is not None:
        assert script == parse(text)
        drawn = outline(script, text).entries
        assert drawn == plain_outline(text)
        assert common_outline(text) == drawn or full_outline(text) in (drawn, None)


@settings(max_examples=100, deadline=None)
@given(BARE_LINES)
def test_bare_words_are_read_as_shfmt_reads_them(text):
    if full_outline("true") is None:
        pytest.skip("SHFMT IS NOT COMPARED: it is not installed")
    script = bare_script(text)
    if script is not None:
        assert full_outline(text) == outline(script, text).entries


@pytest.mark.parametrize(
    "text", ["", "  ", "a=b", "ls -la; pwd", "if", "time ls", "let x", "ls\tx", "l\n", "~", "é", "a" * 2_000]
)
def test_what_is_more_than_bare_words_is_for_the_grammar(text):
    assert bare_script(text) is None


@settings(max_examples=120, deadline=None)
@given(lines())
def test_what_splitting_reads_shfmt_reads_in_the_same_way(text):
    if full_outline("true") is None:
        pytest.skip("SHFMT IS NOT COMPARED: it is not installed")
    read = plain_outline(text)
    if read is not None:
        assert full_outline(text) == read


@pytest.mark.parametrize(
    "text",
    [
        *(
            "true",
            "ls -la src",
            "sleep 0.5; echo slept",
            "grep -rn 'a b' src | head -5 && git status;",
            'echo "x" "" y',
        ),
        *("ls $x", 'echo "$x/a b"', "ls 2>&1 | head", "ls 2>/dev/null > f", "sort < f >> g; pwd"),
    ],
)
def test_everyday_words_are_plain(text):
    assert plain_outline(text) is not None


@pytest.mark.parametrize(
    "text",
    [
        *("a=b ls", "if x", "time ls", "let x=1", "ls *", "ls ~", "ls $1", "ls ${x}", "(ls)", "ls &"),
        *(
            "> f",
            "> f ls",
            "ls>f",
            "ls &> f",
            "ls >& f",
            "ls >| f",
            "ls 12> f",
            "ls << f",
            "ls <<< f",
            "ls <> f",
            "ls >",
        ),
        *("cat <(ls)", "ls >(cat)", "ls 2>&-", "echo $'a'", 'echo $"a"', 'echo "a $"', "echo $a[1]", "echo a$"),
        *("ls\npwd", "a;;b", "a |& b", "a &&", "; a", "a; ; b", "", " ", "# a", "! a", "a'b'", "écho"),
        *('echo "a\\"b"', "echo `ls`", "a{b,c}", "a\\ b", "{ a; }", "[ a ]", "a[1]=2"),
    ],
)
def test_anything_else_is_left_to_a_parser(text):
    assert plain_outline(text) is None
