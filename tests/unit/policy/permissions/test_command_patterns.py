from __future__ import annotations

import sys

import pytest

from wieldy.policy.permissions.patterns import CommandPattern, escape_command


@pytest.mark.parametrize(
    ("specifier", "command", "expected"),
    [
        ("npm run test", "npm run test", True),
        ("npm run test", "npm run test x", False),
        ("npm run test:*", "npm run test", True),
        ("npm run test:*", "npm run test -- -k a", True),
        ("npm run test:*", "npm run tests", False),
        ("npm run test *", "npm run test", True),
        ("npm run test *", "npm run test x", True),
        ("npm run test *", "npm run testing", False),
        ("ls:*", "ls -la", True),
        ("ls:*", "lsof", False),
        ("ls *", "lsof", False),
        ("ls*", "lsof", True),
        ("git * main", "git checkout main", True),
        ("git * main", "git push origin main", True),
        ("git * main", "git checkout mainly", False),
        ("git *main*", "git checkout mainly", True),
        ("* --version", "node --version", True),
        ("* --version", "node --version x", False),
        ("* --help *", "cargo build --help", True),
        ("* --help *", "cargo build --help more", True),
        ("* --help *", "cargo build --helpful", False),
        ("* --help *", "a --helpful --help", True),
        ("a:*b", "a:xb", True),
        ("a:*b", "a xb", False),
        (r"echo \*", "echo *", True),
        (r"echo \*", "echo x", False),
        ("git", "gіt", False),
        ("*", "anything at all", True),
        ("a*a", "a", False),
    ],
)
def test_a_pattern_covers(specifier: str, command: str, expected: bool) -> None:
    assert CommandPattern(specifier).matches(command) is expected


@pytest.mark.parametrize(
    ("specifier", "word"),
    [("git push:*", "git"), ("git", "git"), ("ls*", None), ("* x", None), ("git *", "git"), ("g*t x", None)],
)
def test_the_program_is_known_only_where_it_is_fixed(specifier: str, word: str | None) -> None:
    assert CommandPattern(specifier).program == word


def test_many_stars_need_no_backtracking() -> None:
    # A matcher that backtracks would not come back from this within the life of the test run.
    assert not CommandPattern("*a" * 30 + "*b").matches("a" * 20_000)


def test_an_escaped_command_matches_only_itself() -> None:
    pattern = CommandPattern(escape_command("rm *.log"))
    assert pattern.matches("rm *.log")
    assert not pattern.matches("rm a.log")


@pytest.mark.parametrize("end", ["", ":*"])
def test_a_pattern_costs_a_few_steps_for_each_of_its_wildcards(end: str) -> None:
    steps = 0

    def count(*event: object) -> None:
        nonlocal steps
        steps += 1

    specifiers = [f"{'*a' * 200}{n}{end}" for n in range(50)]
    sys.setprofile(count)
    try:
        assert not any(CommandPattern(specifier).matches("a" * 3000) for specifier in specifiers)
    finally:
        sys.setprofile(None)
    assert 0 < steps < 50 * 200 * 16
