"""Functions, variables and folders: what is not certain from the text alone proves nothing."""

from __future__ import annotations

import pytest
from tests.unit.shell.effects.rule_matching import ROOT, analysis_of, denied, reads


@pytest.mark.parametrize(
    "command",
    [
        "touch() { :; }; /usr/bin/touch x",
        "f() { :; }; unset f; f",
        "false && touch() { :; }; touch x",
        "function cat { :; }; cat x",
        "ls() { :; }; ls",
        'for x in ""; do find v "${x:--fprint}" x; done',
        'for x in v; do command read x <<< -fprint; find v "$x" x; done',
        'for x in v; do "read" x <<< -fprint; find v "$x" x; done',
        'for x in v; do builtin printf -v x -- -fprint; find v "$x" x; done',
        'x=v; x=-fprint; find v "$x" x',
        'x=v; x+=w; find v "$x" x',
        'x=v; : ${x:=w} ${y:-${x:=z}}; find "$x" x',
        'false && x=v; find v "$x" x',
        'if false; then x=v; fi; find v "$x" x',
        'x=v < /nonexistent; find v "$x" x',
        'x=v ls; find v "$x" x',
        'x=a:~; find "$x" -name y',
        'x=v; eval "x=-fprint"; find v "$x" x',
        "x=v; bash -c 'find v \"$x\" x'",
        'select x in v; do find v "$x" y; done',
        'x=v; $c x; find v "$x" x',
        'while read l; do cat s; "cd" ..; done',
        "while read l; do cat s; command cd ..; done",
        "while true; do cat s; $c ..; done",
        "for x in a b; do cat s; cd ..; done",
        "if cd ..; then cat s; fi",
        "{ cd ..; cat s; }",
        "cd -P link && cat s",
        "cd -P link && cd .. && cat s",
        "env cd sub && cat s",
        "/usr/bin/cd sub && cat s",
    ],
)
def test_state_that_would_have_to_be_simulated_proves_nothing(command: str) -> None:
    assert analysis_of(command).verdict != "read_only"


@pytest.mark.parametrize(
    ("command", "path"),
    [
        ('F=src/a; grep x "$F"', "src/a"),
        ("F=src/a; grep x $F", "src/a"),
        ('F=src/a && grep x "$F"', "src/a"),
        ('DIR=src; FILE="$DIR/a.py"; cat "$FILE"', "src/a.py"),
        ('d=src; cat "${d}/a" | wc -l', "src/a"),
        ('x=v; echo "$(cat "$x")"', "v"),
        ('for d in a/*/; do ls "$d"; done', "a"),
        ('for f in a b; do wc -l "$f"; done', "b"),
        ("cd src || exit 1; cat a", "src/a"),
        ("! cd src || cat a", "src/a"),
        ("(cd src && cat a)", "src/a"),
        ("for d in a b; do (cd $d && cat x); done", "b/x"),
    ],
)
def test_a_literal_that_is_set_once_is_known(command: str, path: str) -> None:
    assert analysis_of(command).verdict == "read_only", analysis_of(command)
    assert f"{ROOT}/{path}" in reads(command)


def test_a_negated_cd_leaves_the_folder_as_it_was() -> None:
    assert f"{ROOT}/a" in reads("! cd src && cat a")
    assert f"{ROOT}/src/a" not in reads("! cd src && cat a")


@pytest.mark.parametrize("name", ["PATH", "LD_PRELOAD", "GIT_DIR", "IFS", "TMPDIR", "BASH_ENV", "TAR_OPTIONS"])
def test_a_variable_that_programs_read_is_no_constant(name: str) -> None:
    assert analysis_of(f'{name}=src/a; grep x "${name}"').verdict != "read_only"


@pytest.mark.parametrize("command", ["cd sub || exit 1 < /nonexistent; cat f", "cd sub || exit 1 2; cat f"])
def test_an_exit_that_may_fail_does_not_end_the_script(command: str) -> None:
    assert {f"{ROOT}/f", f"{ROOT}/sub/f"} <= reads(command)


def test_rules_see_what_is_in_a_function() -> None:
    assert denied("f() { rm x; }; f", "rm")


@pytest.mark.parametrize(
    "command",
    [
        "git diff $(git merge-base main HEAD)..HEAD",
        'git diff "$(git merge-base main HEAD)" -- src',
        "git log --oneline $(git rev-parse HEAD~3)..HEAD",
        "BASE=$(git merge-base origin/main HEAD); git diff --stat $BASE..HEAD",
        "git diff $(git merge-base main HEAD)",
    ],
)
def test_the_commit_that_git_prints_is_a_revision(command: str) -> None:
    assert analysis_of(command).verdict == "read_only", analysis_of(command)


@pytest.mark.parametrize(
    "command",
    [
        "git diff $(git merge-base main HEAD):secret",
        "git diff -$(git merge-base main HEAD)",
        "git diff $(git merge-base $x HEAD)..HEAD",
        "git diff $(git merge-base -h HEAD)..HEAD",
        "git diff $(git merge-base main HEAD || echo --output=x)",
        "git diff $(git merge-base main HEAD; echo --output=x)",
        "git diff $(git merge-base main HEAD | cat)",
        "git diff $(git rev-parse --output=x)",
        "git tag $(git merge-base main HEAD)",
        "git branch $(git merge-base main HEAD)",
        "sort -o $(git merge-base main HEAD) f",
        "$(git merge-base main HEAD)",
        "cat $(git merge-base main HEAD)",
        "x=$(git merge-base main HEAD); x=--output=x; git diff $x",
    ],
)
def test_other_output_is_not_taken_for_a_revision(command: str) -> None:
    assert analysis_of(command).verdict != "read_only"
