"""Exit codes that answer a question are not errors."""

from __future__ import annotations

import pytest

from wieldy.shell.running.exit_notes import explain_exit_code


@pytest.mark.parametrize(
    "command",
    [
        "grep foo file",
        "grep -r 'a && b' . | grep c",
        "cat file | rg --no-heading needle",
        "cd src && grep -rn needle .",
        "cd 'a dir' && ls | grep x 2>/dev/null",
        "LC_ALL=C grep x f",
        "/usr/bin/grep x f",
        "command grep x f",
        "diff a b",
        "diff -u a b > out.diff",
        "cmp a b",
        "test -f missing",
        "[ -d missing ]",
        "[[ a == b ]]",
        "pgrep nothing",
        "git diff --exit-code",
        "git diff --quiet HEAD",
        "git grep needle",
        "git merge-base --is-ancestor a b",
        "which nothing",
        "command -v nothing",
        "echo start; grep x f",
        "make all; grep x f",
        "make\ngrep x f\n",
        "grep x f # where is x",
        "grep '#' f",
        "grep 'a&b' f",
    ],
)
def test_one_from_a_program_that_answers_is_no_error(command):
    meaning = explain_exit_code(command, 1)
    assert not meaning.is_error
    assert meaning.note


@pytest.mark.parametrize(
    "command",
    [
        "false",
        "make && grep x f",
        "grep x f | sort",
        "grep x f && make",
        "grep x f || make",
        "grep x f &",
        "git diff",
        "git merge-base a b",
        "set -e; make; grep x f",
        "set -o pipefail; make | grep x",
        "if grep x f; then make; fi",
        "cat <<E\ngrep\nE",
        "echo 'unbalanced",
        "grep() { make; }; grep x",
        "python test.py",
        "! grep x f",
        "cd a && ! grep x f",
    ],
)
def test_one_from_anything_else_is_an_error(command):
    assert explain_exit_code(command, 1).is_error


@pytest.mark.parametrize("code", [2, 3, 126, 127])
def test_other_codes_of_the_same_programs_are_errors(code):
    assert explain_exit_code("grep x f", code).is_error


def test_zero_is_silence():
    assert explain_exit_code("anything", 0) == explain_exit_code("grep x", 0)
    assert not explain_exit_code("anything", 0).is_error
    assert explain_exit_code("anything", 0).note == ""


@pytest.mark.parametrize(("code", "words"), [(-9, "SIGKILL"), (137, "SIGKILL"), (143, "SIGTERM"), (139, "SIGSEGV")])
def test_a_death_by_signal_is_named(code, words):
    assert words in explain_exit_code("x", code).note


def test_well_known_codes_are_explained():
    assert "not found" in explain_exit_code("nonexistent", 127).note
    assert "executed" in explain_exit_code("./readme", 126).note


def test_a_hostile_command_line_is_judged_at_once():
    for hostile in ("a" * 3_999, "'" * 3_999, "$(" * 1_999, '"\\' * 1_999, "# " * 1_999):
        assert explain_exit_code(hostile, 1).is_error
