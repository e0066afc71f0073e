from __future__ import annotations

import pytest

from wieldy.shell.policy.programs.spec import ParsedArgs, option_table, parse_args
from wieldy.shell.policy.words import Word, literal

TABLE = option_table(
    "-ab -n: -f:r -o:w -C? -# --alpha --number= --file=r --output=w --color=? --pair=2r !--alpaca !--nuke"
)


def parsed(text: str, *extra: Word) -> ParsedArgs:
    return parse_args((*map(literal, text.split()), *extra), TABLE)


@pytest.mark.parametrize(
    ("arguments", "found", "operands"),
    [
        ("-a x", {"-a": [None]}, ["x"]),
        ("-ab x", {"-a": [None], "-b": [None]}, ["x"]),
        ("-n 5 x", {"-n": ["5"]}, ["x"]),
        ("-an5 x", {"-a": [None], "-n": ["5"]}, ["x"]),
        ("-C x", {"-C": [None]}, ["x"]),
        ("-C3 x", {"-C": ["3"]}, ["x"]),
        ("-12 x", {"-#": ["-12"]}, ["x"]),
        ("--alpha x", {"--alpha": [None]}, ["x"]),
        ("--number=5 x", {"--number": ["5"]}, ["x"]),
        ("--number 5 x", {"--number": ["5"]}, ["x"]),
        ("--num 5 x", {"--number": ["5"]}, ["x"]),
        ("--color x", {"--color": [None]}, ["x"]),
        ("--color=never x", {"--color": ["never"]}, ["x"]),
        ("--pair a b x", {"--pair": ["b"]}, ["x"]),
        ("x -a y", {"-a": [None]}, ["x", "y"]),
        ("-- -z --nuke", {}, ["-z", "--nuke"]),
        ("- x", {}, ["-", "x"]),
    ],
)
def test_options_and_operands_are_told_apart(
    arguments: str, found: dict[str, list[str | None]], operands: list[str]
) -> None:
    result = parsed(arguments)
    assert not result.problem
    assert {name: [word and word.text for word in words] for name, words in result.options.items()} == found
    assert [word.text for word in result.operands] == operands


@pytest.mark.parametrize(
    "arguments",
    [
        "-z",
        "-az",
        "--zeta",
        "--alp",
        "--nuke",
        "--nu",
        "--alpaca",
        "--alpha=1",
        "-n",
        "--number",
        "--pair a",
        "--=",
    ],
)
def test_what_is_not_in_the_table_is_a_problem(arguments: str) -> None:
    assert parsed(arguments).problem


def test_files_named_by_options_are_kept() -> None:
    result = parsed("-f a --file=b -ofc --output d")
    assert [word.text for word in result.reads] == ["a", "b"]
    assert [word.text for word in result.writes] == ["fc", "d"]


def test_an_unknown_word_is_accepted_only_where_it_cannot_become_an_option() -> None:
    one, many = Word('"$x"', "single", "", ""), Word("$x", "multiple", "", "")
    assert parsed("", one).problem
    assert not parse_args((one,), option_table("-a", harmless=True)).problem
    assert not parsed("--", one, many).problem
    assert not parsed("-n", one).problem
    assert parsed("-n", many).problem
    assert not parsed("", Word('--number="$x"', "single", "--number=", "--number=")).problem
    assert parsed("", Word('--"$x"', "single", "--", "--")).problem
    assert parsed("", Word('-a"$x"', "single", "-a", "-a")).problem
    assert not parsed("", Word('-n"$x"', "single", "-n", "-n")).problem


def test_abbreviations_are_refused_where_a_program_takes_none() -> None:
    assert parse_args((literal("--num=5"),), option_table("--number=", exact=True)).problem
