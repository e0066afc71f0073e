"""Where our parser and tree-sitter agree on a line, shfmt reads it in the same way."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.peers.shfmt_outline import shfmt_outline

from wieldy.shell.parsing.cross_check import Entry, outline, parsers_agree
from wieldy.shell.parsing.parser import parse
from wieldy.shell.parsing.syntax import Unparsable

WORDS = st.sampled_from(
    [
        *("ls", "echo", "-la", "a=b", "src/x.py", "'a b'", '"c; d"', "0.5", "--x=1", "if", "in", "time", "''"),
        *("@%,+:", "$x", "$a$b.c", '"$HOME/x y"', "$x=1", "2", "$(ls)", "`ls`", "${x:-$(ls)}", "$((1+2))", "<(ls)"),
        *("coproc", "export", "-p", "{", "}", "!", "[", "]", "[[", "]]", "x=(a b)", "{a,b}", "${x:-`ls`}", "é"),
    ]
)
REDIRECTIONS = st.sampled_from(
    ["> f", ">>g", "2>&1", "2>/dev/null", "< 'h i'", ">$x", "1>&2", ">&3", "2 > f", "2>&-", "<<< x", "> f x", "<<E"]
)
SEPARATORS = st.sampled_from(
    [" ", "  ", "\t", "; ", ";", " && ", "&&", " || ", " | ", "|", ";;", "|&", " & ", "\n", "\nE\n"]
)
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


def without_heredocs(entries: list[Entry]) -> list[Entry]:
    """shfmt does not say where an empty here-document is."""
    return [entry for entry in entries if entry[0] not in ("<<", "<<-")]


@settings(max_examples=600, deadline=None)
@given(lines())
def test_what_two_parsers_agree_on_shfmt_reads_in_the_same_way(text: str) -> None:
    if shfmt_outline("true") is None:
        pytest.skip("SHFMT IS NOT COMPARED: it is not installed")
    try:
        script = parse(text)
    except Unparsable:
        return
    # Behind a pipe `time` is a program for bash and a keyword for shfmt.
    if script.and_or_lists and parsers_agree(text, script) and not re.search(r"(?<!\|)\|&?\s*time\b", text):
        third = shfmt_outline(text)
        assert third is None or without_heredocs(third) == without_heredocs(outline(text, script))
