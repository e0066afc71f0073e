from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from tests.unit.shell.effects.rule_matching import analysis_of

from wieldy.shell.effects.programs.registry import TABLES

CORPORA = Path(__file__).parents[3] / "corpora" / "shell"


def lines(name: str) -> list[str]:
    text = (CORPORA / name).read_text(encoding="utf-8")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


READ_ONLY = lines("read_only.txt")
NOT_READ_ONLY = lines("not_read_only.txt")


def test_the_corpora_are_large_enough_to_mean_something() -> None:
    assert len(set(READ_ONLY)) >= 300
    assert len(set(NOT_READ_ONLY)) >= 500
    assert not set(READ_ONLY) & set(NOT_READ_ONLY)


def test_no_program_is_in_two_tables() -> None:
    counted = Counter(name for table in TABLES for name in table)
    assert [name for name, times in counted.items() if times > 1] == []


@pytest.mark.parametrize("command", READ_ONLY)
def test_an_everyday_command_is_proven_read_only(command: str) -> None:
    analysis = analysis_of(command)
    assert analysis.verdict == "read_only", (analysis.problems, [part.why for part in analysis.parts if part.why])
    assert all(part.read_only and part.known for part in analysis.parts)


@pytest.mark.parametrize("command", NOT_READ_ONLY)
def test_a_command_that_could_change_something_is_not_called_read_only(command: str) -> None:
    analysis = analysis_of(command)
    assert analysis.verdict != "read_only"
    assert analysis.problems or any(part.why for part in analysis.parts), "a person must be told why"
