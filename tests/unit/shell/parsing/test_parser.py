from __future__ import annotations

import subprocess

import pytest

from wieldy.shell.parsing.parser import MAX_LENGTH, parse
from wieldy.shell.parsing.syntax import (
    BranchCommand,
    ConditionCommand,
    Coprocess,
    FunctionDefinition,
    GroupCommand,
    LiteralText,
    LoopCommand,
    Pipeline,
    ShellScript,
    SimpleCommand,
    Substitution,
    Unparsable,
)


def only(text: str) -> object:
    """The one command of a text."""
    script = parse(text)
    assert len(script.and_or_lists) == 1 and len(script.and_or_lists[0].links) == 1
    pipeline = script.and_or_lists[0].links[0][1]
    assert len(pipeline.stages) == 1
    return pipeline.stages[0]


def words(text: str) -> list[str]:
    command = only(text)
    assert isinstance(command, SimpleCommand)
    return [word.source for word in command.words]


def test_words_end_at_blanks_and_operators() -> None:
    assert words("a  b\tc") == ["a", "b", "c"]
    assert words(r"a\ b 'c d' \"e f\"") == [r"a\ b", "'c d'", r"\"e", r"f\""]
    assert words('a"b c"d') == ['a"b c"d']
    assert words("a \\\n  b") == ["a", "b"]
    assert words("a b # c d") == ["a", "b"]
    assert words("a b#c") == ["a", "b#c"]


def test_chains_and_pipes_are_told_apart() -> None:
    script = parse("a && b || c; d & e | f |& g\nh")
    assert [[(operator, len(pipe.stages)) for operator, pipe in chain.links] for chain in script.and_or_lists] == [
        [("", 1), ("&&", 1), ("||", 1)],
        [("", 1)],
        [("", 3)],
        [("", 1)],
    ]
    assert [chain.background for chain in script.and_or_lists] == [False, True, False, False]


def test_line_breaks_may_follow_operators() -> None:
    assert len(parse("a &&\n\n  b |\n c").and_or_lists) == 1


def test_redirections_may_stand_anywhere() -> None:
    command = only("< in a > out b 2>&1 &>> log >| x <<< 'text'")
    assert isinstance(command, SimpleCommand)
    assert [word.source for word in command.words] == ["a", "b"]
    assert [(r.descriptor, r.operator, r.target.source) for r in command.redirects] == [
        ("", "<", "in"),
        ("", ">", "out"),
        ("2", ">&", "1"),
        ("", "&>>", "log"),
        ("", ">|", "x"),
        ("", "<<<", "'text'"),
    ]


def test_a_number_is_a_descriptor_only_right_before_the_operator() -> None:
    command = only("a2>f 3 >g")
    assert isinstance(command, SimpleCommand)
    assert [word.source for word in command.words] == ["a2", "3"]
    assert [r.descriptor for r in command.redirects] == ["", ""]


def test_here_documents_are_read_after_their_line() -> None:
    script = parse("cat <<A <<-'B' | wc\none $(x)\nA\n\ttwo $(y)\n\tB\nls")
    first, second = script.and_or_lists
    cat = first.links[0][1].stages[0]
    assert isinstance(cat, SimpleCommand)
    expanded, quoted = cat.redirects
    assert any(isinstance(piece, Substitution) for piece in expanded.target.pieces)
    assert all(isinstance(piece, LiteralText) for piece in quoted.target.pieces)
    assert quoted.target.source == "\ttwo $(y)\n"
    assert isinstance(second.links[0][1].stages[0], SimpleCommand)


def test_assignments_stand_before_the_program_only() -> None:
    command = only("a=1 b+=2 c[0]=3 d=(x y) e f=4")
    assert isinstance(command, SimpleCommand)
    assert [one.name for one in command.assignments] == ["a", "b", "c", "d"]
    assert [item.source for item in command.assignments[3].items] == ["x", "y"]
    assert [word.source for word in command.words] == ["e", "f=4"]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("(a; b)", GroupCommand),
        ("{ a; b; }", GroupCommand),
        ("((a);(b))", GroupCommand),
        ("if a; then b; elif c; then d; else e; fi", BranchCommand),
        ("case $x in a|b) c;; (d) e;& *) f;;& esac", BranchCommand),
        ("case x in\na) ;;\nesac", BranchCommand),
        ("while a; do b; done", LoopCommand),
        ("until a\ndo b\ndone", LoopCommand),
        ("for x in 1 2; do a; done", LoopCommand),
        ("for x; do a; done", LoopCommand),
        ("for x\nin 1\ndo a; done", LoopCommand),
        ("for ((;;)); do a; done", LoopCommand),
        ("select x in a b; do c; done", LoopCommand),
        ("f() { a; }", FunctionDefinition),
        ("f () ( a )", FunctionDefinition),
        ("function f { a; }", FunctionDefinition),
        ("function f() { a; }", FunctionDefinition),
        ("coproc a b", Coprocess),
        ("coproc NAME { a; }", Coprocess),
        ("[[ -f a && ( b < c || ! d ) ]]", ConditionCommand),
        ("[[ a =~ ^(b|c d)+$ ]]", ConditionCommand),
        ("((1 + 2 > 3))", ConditionCommand),
    ],
)
def test_compound_commands_are_recognised(text: str, kind: type) -> None:
    assert isinstance(only(text), kind)


def test_reserved_words_are_ordinary_outside_their_place() -> None:
    assert words("echo if then { } ! time case") == ["echo", "if", "then", "{", "}", "!", "time", "case"]
    assert words("'if' a") == ["'if'", "a"]
    assert words("time<(b) a") == ["time<(b)", "a"]
    assert words("!<(b)") == ["!<(b)"]


def test_time_belongs_to_the_pipeline_behind_it() -> None:
    pipeline = parse("time -p a | b").and_or_lists[0].links[0][1]
    assert isinstance(pipeline, Pipeline)
    assert len(pipeline.stages) == 2


def test_time_takes_each_option_once() -> None:
    assert words("time -p -- a") == ["a"]
    assert words("time -p -p a") == ["-p", "a"]
    assert words("time -- -p a") == ["-p", "a"]


def test_backticks_are_unescaped_before_they_are_read() -> None:
    command = only(r"echo `a \`b\``")
    assert isinstance(command, SimpleCommand)
    piece = command.words[1].pieces[0]
    assert isinstance(piece, Substitution)
    inner = piece.script.and_or_lists[0].links[0][1].stages[0]
    assert isinstance(inner, SimpleCommand)
    assert isinstance(inner.words[1].pieces[0], Substitution)


@pytest.mark.parametrize(
    "text",
    """
a (
a )
a &&
| a
a | | b
a ;; b
a && && b
if a; then b
if a; b; fi
then a
done
}
{ a; 
( )
for 1 in a; do b; done
for x in a
while a; done
case x in a) b
'a
"a
`a
$(a
${a
${}
${a!b}
a <
a > > b
a <<EOF
f() a
f(
a b() { c; }
a=(1 2
[[ a
[[ a ]] b
((1
@(a|b)
ls !(a)
{fd}>f a
$"a"
$[1]
${ a; }
a <<$x
a <2>&1
a > {x}>b
a \\
""".strip().splitlines(),
)
def test_what_is_not_certain_is_not_guessed(text: str) -> None:
    with pytest.raises(Unparsable):
        parse(text)


@pytest.mark.parametrize("text", ["a &\\\n& b", "a >\\\n> b", "ec\\\nho a", "a\\\nb"])
def test_a_line_continuation_inside_a_token_is_left_to_a_person(text: str) -> None:
    with pytest.raises(Unparsable):
        parse(text)


def test_depth_and_length_are_bounded() -> None:
    for text in ("$(" * 200 + "a" + ")" * 200, "(" * 2000, "x" * (MAX_LENGTH + 1)):
        with pytest.raises(Unparsable):
            parse(text)


def test_an_empty_text_is_an_empty_script() -> None:
    assert parse("") == parse(" \n # nothing\n") == ShellScript(())


@pytest.mark.parametrize(
    "text",
    [
        "[[ -f ]]",
        "[[ -n ]]",
        "[[ a == ]]",
        "[[ a =~ ]]",
        "[[ a < ]]",
        "[[ a b ]]",
        "[[ a -f b ]]",
        "[[ -f a b ]]",
        "[[ -f == a ]]",
        "[[ -f && a ]]",
        "[[ && a ]]",
        "[[ ( a ]]",
        "[[ a ) ]]",
        '[[ a "==" b ]]',
    ],
)
def test_a_test_with_missing_operands_is_not_understood_as_bash_does_not(text: str) -> None:
    with pytest.raises(Unparsable):
        parse(text)
    assert subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True).stderr


@pytest.mark.parametrize(
    "text",
    [
        "[[ a ]]",
        "[[ == ]]",
        "[[ -f -f ]]",
        "[[ ! -f a && ( -z $x || a < b ) ]]",
        "[[ $x == a* ]]",
        "[[ $x =~ ^(a|b)c$ ]]",
        "[[ $x =~ (a) ]]",
        "[[ a -nt b ||\n c != d ]]",
        "[[ -n $(ls) ]]",
    ],
)
def test_a_complete_test_is_understood(text: str) -> None:
    parse(text)
    assert not subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True).stderr


@pytest.mark.parametrize("text", ["[[ ]]", "[[ a && ]]", "[[ ! ]]"])
def test_a_test_without_its_last_operand_is_not_understood(text: str) -> None:
    with pytest.raises(Unparsable):
        parse(text)
