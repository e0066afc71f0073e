"""Command lines of `wieldy -p`: what is read without argparse is what argparse reads."""

from __future__ import annotations

from contextlib import redirect_stderr
from io import StringIO

from hypothesis import example, given, settings
from hypothesis import strategies as st

from wieldy.cli.arguments import read
from wieldy.cli.headless import declare, parser

OPTIONS: list[str] = []
declare(lambda *names, **how: OPTIONS.extend(names))

OTHERS = ["text", "json", "stream-json", "plan", "nowhere", ".", "3", "0", "-1", "1.5", "nan", "-", "-pc", "Read,Grep"]
ODD = ["", " ", "a b", "-x y", "--model=m", "--root=.", "--mod", "-rID", "--no-such", "-c=1", "--output-format="]
words = st.sampled_from([*OPTIONS, *OTHERS, *ODD]) | st.text(max_size=4)


def by_argparse(line: list[str]) -> dict[str, object] | None:
    with redirect_stderr(StringIO()):
        try:
            return vars(parser().parse_intermixed_args(line))
        except SystemExit:
            return None


@settings(max_examples=400, deadline=None)
@given(st.lists(words.filter(lambda word: word not in ("--", "-h", "--help")), max_size=7))
@example(["-p", "hello", "--model", "anthropic/m", "there", "--allowed-tools", "Read", "--allowedTools", "Grep"])
@example(["-p", "--root", "nowhere"])
@example(["--permission-mode", "default", "-c", "--max-turns", "3", "--max-budget-usd", "1.5"])
def test_what_is_read_is_what_argparse_reads(line):
    found = read(declare, line)
    if found is not None:
        assert vars(found) == by_argparse(line)


def test_a_plain_line_needs_no_argparse():
    line = ["-p", "hello", "--model", "m", "--add-dir", ".", "--output-format", "json", "again", "--max-turns", "2"]
    found = read(declare, line)
    assert found is not None
    assert (found.prompt, found.model, found.add_dir, found.max_turns) == (["hello", "again"], "m", ["."], 2)


def test_an_option_without_help_is_not_shown():
    assert "--model" in parser().format_help()
    assert "--verbose" not in parser().format_help()
