from __future__ import annotations

import pytest

from wieldy.shell.effects.programs.spec import (
    OperandMeaning,
    OptionTable,
    ParsedArgs,
    ProgramSpec,
    UnknownArguments,
    option_table,
    parse_args,
)
from wieldy.shell.effects.words import Word, literal

TABLE = option_table(
    "-ab -n: -f:r -o:w -C? -# --alpha --number= --file=r --output=w --color=? --pair=2r !--alpaca !--nuke"
)


def accepts(*args: Word, table: OptionTable = TABLE) -> bool:
    try:
        parse_args(args, table)
    except UnknownArguments:
        return False
    return True


def parsed(text: str) -> ParsedArgs:
    return parse_args(tuple(map(literal, text.split())), TABLE)


@pytest.mark.parametrize(
    ("arguments", "options", "operands"),
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
    arguments: str, options: dict[str, list[str | None]], operands: list[str]
) -> None:
    result = parsed(arguments)
    assert {name: [word and word.text for word in words] for name, words in result.options.items()} == options
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
def test_what_is_not_in_the_table_is_refused(arguments: str) -> None:
    assert not accepts(*map(literal, arguments.split()))


def test_files_named_by_options_are_kept() -> None:
    result = parsed("-f a --file=b -ofc --output d")
    assert [word.text for word in result.reads] == ["a", "b"]
    assert [word.text for word in result.writes] == ["fc", "d"]


def test_an_unknown_word_is_accepted_only_where_it_cannot_become_an_option() -> None:
    one, many = Word('"$x"', "single", "", ""), Word("$x", "multiple", "", "")
    assert not accepts(one)
    assert accepts(one, table=option_table("-a", harmless=True))
    assert accepts(literal("--"), one, many)
    assert accepts(literal("-n"), one)
    assert not accepts(literal("-n"), many)
    assert accepts(Word('--number="$x"', "single", "--number=", "--number="))
    assert not accepts(Word('--"$x"', "single", "--", "--"))
    assert not accepts(Word('-a"$x"', "single", "-a", "-a"))
    assert accepts(Word('-n"$x"', "single", "-n", "-n"))


def test_abbreviations_are_refused_where_a_program_takes_none() -> None:
    assert not accepts(literal("--num=5"), table=option_table("--number=", exact=True))


def test_an_option_of_several_letters_behind_one_dash_is_no_cluster() -> None:
    table = option_table("-i: -l -ci/ -ln/:")
    words = tuple(map(literal, ["-ci", "-ln", "bash", "-ln=posix", "-l", "x"]))
    found = parse_args(words, table)
    assert (list(found.options), found.operands) == (["-ci", "-ln", "-l"], [words[-1]])
    assert [word.text for word in found.values("-ln")] == ["bash", "posix"]
    for text in ("-c", "-ic", "-ci=1", "-lnx", "-cil"):
        assert not accepts(literal(text), table=table) or text == "-ic"


@pytest.mark.parametrize(
    ("operands", "fields"),
    [
        ("files or cwd", {"recursive": True}),
        ("none", {"recursive": True}),
        ("files", {"recursive_options": ("-r",)}),
        ("text", {"pattern_options": ("-e",)}),
        ("pattern then files", {"recursive_options": ("-x",)}),
        ("pattern then files", {"bounding_options": ("--max",)}),
    ],
)
def test_a_program_whose_fields_contradict_each_other_cannot_be_specified(
    operands: OperandMeaning, fields: dict[str, object]
) -> None:
    with pytest.raises(ValueError, match=r"neither a pattern|says nothing|none of the options"):
        ProgramSpec("-r -e:", operands, **fields)  # type: ignore[arg-type]
