from __future__ import annotations

import pytest

from wieldy.shell.effects.words import ShellState, Word, literal, resolve_words
from wieldy.shell.parsing.parser import parse
from wieldy.shell.parsing.syntax import SimpleCommand

STATE = ShellState("/home/me", "/w", ("/w",))


def resolve(text: str, state: ShellState = STATE) -> tuple[Word, ...]:
    command = parse("x " + text).and_or_lists[0].links[0][1].stages[0]
    assert isinstance(command, SimpleCommand)
    return resolve_words(command.words[1:], state)


def texts(text: str) -> list[str]:
    words = resolve(text)
    assert all(word.kind == "literal" for word in words), words
    return [word.text for word in words]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("a", ["a"]),
        ("'a b' \"c d\"", ["a b", "c d"]),
        (r"\r\m", ["rm"]),
        ("r'm' \"r\"m ''rm", ["rm", "rm", "rm"]),
        (r"$'\x72\155' $'a\tb' $'\u00e9' $'it\'s'", ["rm", "a\tb", "é", "it's"]),
        (r'"a\$b\"c\\d\e"', ['a$b"c\\d\\e']),
        ("''", [""]),
        ("~ ~/x '~' \\~ a~", ["/home/me", "/home/me/x", "~", "~", "a~"]),
        ('$HOME "${HOME}/x" ${HOME:?} "${HOME:-/y}"', ["/home/me", "/home/me/x", "/home/me", "/home/me"]),
        ("$PWD/x ~+", ["/w/x", "/w"]),
        ("{a,b}c x{1..3} {a..c}", ["ac", "bc", "x1", "x2", "x3", "a", "b", "c"]),
        ("{a,b{c,d}} {01..03} {3..1}", ["a", "bc", "bd", "01", "02", "03", "3", "2", "1"]),
        ("{a} {} a{b '{a,b}' \\{a,b}", ["{a}", "{}", "a{b", "{a,b}", "{a,b}"]),
        ("'*' \"?\" \\[a] [", ["*", "?", "[a]", "["]),
        ("a=b --x=y $ a$", ["a=b", "--x=y", "$", "a$"]),
    ],
)
def test_a_word_is_resolved_as_bash_would(written: str, meant: list[str]) -> None:
    assert texts(written) == meant


@pytest.mark.parametrize(
    ("written", "kind", "prefix"),
    [
        ("*.py", "glob", ""),
        ("src/*.py", "glob", "src/"),
        ("a?b", "glob", "a"),
        ("x[ab]", "glob", "x"),
        ('"$x"', "single", ""),
        ("$x", "multiple", ""),
        ("a$x", "multiple", "a"),
        ('a"$x"', "single", "a"),
        ('"$@"', "multiple", ""),
        ('"${a[@]}"', "multiple", ""),
        ("$(ls)", "multiple", ""),
        ('"$(ls)"', "single", ""),
        ("`ls`", "multiple", ""),
        ("~other/x", "single", ""),
        ("${x:-y}", "multiple", ""),
        ("$((1))", "multiple", ""),
        ("{1..1000}", "multiple", ""),
    ],
)
def test_a_word_that_cannot_be_known_says_what_is_known(written: str, kind: str, prefix: str) -> None:
    (word,) = resolve(written)
    assert (word.kind, word.prefix) == (kind, prefix)


def test_a_home_with_blanks_is_split_unless_quoted() -> None:
    state = ShellState("/home/a b", "/w", ("/w",))
    assert resolve('"$HOME"', state)[0].text == "/home/a b"
    assert resolve("$HOME", state)[0].kind == "multiple"
    assert resolve("~", state)[0].text == "/home/a b"


def test_the_working_directory_is_used_only_where_it_is_certain() -> None:
    assert resolve("$PWD", ShellState("/h", "/w", ("/a", "/b")))[0].dynamic
    assert resolve("$PWD", ShellState("/h", "/w", ()))[0].dynamic


def test_a_known_variable_takes_its_value() -> None:
    assert resolve('"$f" $f.txt', STATE.with_variable("f", literal("a")))[1].text == "a.txt"
    assert resolve("$f", STATE.with_variable("f", literal("a b")))[0].dynamic
    (word,) = resolve('"$f"', STATE.with_variable("f", Word("src/*", "single", "", "src/", ("/w/src",))))
    assert (word.scope, word.may_be_option) == (("/w/src",), False)


def test_only_words_that_may_begin_with_a_dash_can_become_options() -> None:
    assert [word.may_be_option for word in resolve('-a a *.py src/*.py "$x" a"$x" a$x')] == [
        True,
        False,
        True,
        False,
        True,
        False,
        True,
    ]


@pytest.mark.parametrize(
    ("written", "places"),
    [
        ("a", ("/w/a",)),
        ("./a/.", ("/w/a",)),
        ("/etc//x", ("/etc/x",)),
        ("//etc/x", ("/etc/x",)),
        ("../a", ("/a", "/w/../a")),
        ("s/../a", ("/w/a", "/w/s/../a")),
        ("src/*.py", ("/w/src",)),
        ("*.py", ("/w",)),
        ("/*", ("/",)),
        ("*/../x", None),
        ('"$x"', None),
    ],
)
def test_a_path_is_given_as_text_and_where_links_matter_as_written(
    written: str, places: tuple[str, ...] | None
) -> None:
    assert resolve(written)[0].paths(STATE) == places
