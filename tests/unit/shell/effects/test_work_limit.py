from __future__ import annotations

import pytest
from tests.unit.shell.effects.rule_matching import analysis_of, denied

MANY = [f"ls d{number}" for number in range(600)]


def test_a_long_chain_of_pipelines_is_still_proven_harmless() -> None:
    chain = " && ".join(f'grep -n "word{number}" src/f{number}.py | head -20' for number in range(200))
    assert analysis_of(chain).verdict == "read_only"
    assert len(analysis_of(chain).parts) == 400


def test_a_repeated_command_is_a_part_of_its_own() -> None:
    assert [part.text for part in analysis_of("ls a; ls b; ls a && ls a").parts] == ["ls a", "ls b", "ls a", "ls a"]


def test_the_same_words_elsewhere_are_another_command() -> None:
    first, _, second = analysis_of("cat x; cd sub; cat x").parts
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
    assert analysis_of(text).verdict == "unknown"
    assert any("more commands than the analysis follows" in problem for problem in analysis_of(text).problems)
    for last in ("rm x", "sudo rm x", "bash -c 'rm x'", "eval 'rm x'", "$(rm x)", "for f in a; do rm x; done"):
        assert denied(f"{text}; {last}", "rm"), last


def test_a_loop_that_cannot_be_unrolled_hides_nothing() -> None:
    text = "; ".join(f"for f in {{1..16}}; do cat $f.{number}; done" for number in range(200))
    assert analysis_of(text).verdict == "unknown"
    assert denied(f"{text}; for f in a b; do rm $f; done", "rm")


def test_a_catastrophe_behind_too_many_commands_is_one() -> None:
    assert [danger.behavior for danger in analysis_of("; ".join([*MANY, "rm -rf /"])).catastrophic] == ["deny"]
