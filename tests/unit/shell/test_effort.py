from __future__ import annotations

import pytest
from tests.unit.shell.rules import denied, look

from wieldy.shell.parsing.parser import parse
from wieldy.shell.parsing.read import confirmed
from wieldy.shell.parsing.tree_sitter import outline

MANY = [f"ls d{number}" for number in range(600)]


def test_a_long_chain_of_pipelines_is_still_proven_harmless() -> None:
    chain = " && ".join(f'grep -n "word{number}" src/f{number}.py | head -20' for number in range(200))
    assert look(chain).verdict == "read_only"
    assert len(look(chain).parts) == 400


def test_the_same_command_again_is_a_part_of_its_own_at_its_own_place() -> None:
    parts = look("ls a; ls b; ls a && ls a").parts
    assert [(part.text, part.span) for part in parts] == [
        ("ls a", (0, 4)),
        ("ls b", (6, 10)),
        ("ls a", (12, 16)),
        ("ls a", (20, 24)),
    ]


def test_the_same_words_elsewhere_are_another_command() -> None:
    first, _, second = look("cat x; cd sub; cat x").parts
    assert first.effects != second.effects


@pytest.mark.parametrize(
    "text",
    [
        "; ".join(MANY),
        " && ".join(MANY),
        "; ".join(f"(cd d{number}; pwd)" for number in range(500)),
        "; ".join(f"f{number}() {{ ls x{number}; }}; f{number}" for number in range(300)),
    ],
)
def test_more_than_can_be_looked_at_is_unknown_and_what_is_denied_in_it_is_found(text: str) -> None:
    assert look(text).verdict == "unknown"
    assert any("more commands than can be looked at" in problem for problem in look(text).problems)
    for last in ("rm x", "sudo rm x", "bash -c 'rm x'", "eval 'rm x'", "$(rm x)", "for f in a; do rm x; done"):
        assert denied(f"{text}; {last}", "rm"), last


def test_a_loop_that_cannot_be_unrolled_hides_nothing() -> None:
    text = "; ".join(f"for f in {{1..16}}; do cat $f.{number}; done" for number in range(200))
    assert look(text).verdict == "unknown"
    assert denied(f"{text}; for f in a b; do rm $f; done", "rm")


def test_a_catastrophe_behind_too_many_commands_is_one() -> None:
    assert [danger.behavior for danger in look("; ".join([*MANY, "rm -rf /"])).catastrophic] == ["deny"]


@pytest.mark.parametrize(
    "text",
    [
        'for f in a b; do echo "$(wc -l "$f")"; done',
        "(cd d; (ls))",
        "f() { ls; }; f",
        "cat <<'EOF'\n`ls` $(ls)\nEOF\n",
        "if [ -f x ]; then cat x; elif [[ $a == b* ]]; then ls; else pwd; fi 2>&1",
        "case $x in a*|b) echo 1;; esac",
        "while read line; do echo $line; done < f",
        "diff <(sort a) <(sort b)",
        "export a=b && unset c && d=$(ls)",
        "cat <<< word",
    ],
)
def test_everyday_nesting_needs_no_second_process(text: str) -> None:
    from wieldy.shell.parsing.tree_sitter import common_outline

    drawn = outline(parse(text), text)
    assert drawn.common
    assert common_outline(text) == drawn.entries


@pytest.mark.parametrize(
    "text", ["echo `ls`", "cat <<E\n`ls`\nE\n", "echo ${x:-$(ls)}", "time ls", "coproc ls", "cat <<E\n$(ls)\nE\n"]
)
def test_what_parsers_are_known_to_hide_is_left_to_shfmt(text: str) -> None:
    assert not outline(parse(text), text).common
    assert confirmed(text, parse(text))
