"""Rule look-ups agree with the definition of a match, and real paths with the standard library."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wieldy.policy.permissions.paths import PathResolver, is_below
from wieldy.policy.permissions.patterns import CommandPattern
from wieldy.policy.permissions.rules import CommandRule, parse
from wieldy.policy.permissions.ruleset import CommandRules, PathRules

WORDS = st.sampled_from(["git", "log", "npm", "run", "--all", "a", "x*y", "*", "* b", "é", "-m 1"])
COMMANDS = st.lists(WORDS, min_size=1, max_size=5).map(" ".join)
NAMES = st.sampled_from(["a", "b", "ab", "c.d", ".e"])
FOLDERS = st.lists(NAMES, max_size=4).map(lambda names: "/" + "/".join(names))
TARGETS = ["plain", "plain/deep", "turn", "turn/deep", "loop", "away", "gone/x", "plain/file", "plain/file/x"]


@given(st.lists(COMMANDS, max_size=12), COMMANDS)
@settings(deadline=None)
def test_a_command_is_covered_by_the_rules_whose_pattern_matches_it(specifiers: list[str], command: str) -> None:
    rules = [CommandRule(f"Bash({text})", "deny", "Bash", text) for text in specifiers if text != "*"]
    expected = {rule.text for rule in rules if CommandPattern(rule.specifier or "").matches(command)}
    assert {rule.text for rule in CommandRules(rules).covering(command)} == expected


@given(st.text("ab* :\n", min_size=1, max_size=8), st.text("ab \n", max_size=10))
@settings(deadline=None, max_examples=1000)
def test_a_star_is_any_text_and_an_open_end_any_further_words(specifier: str, command: str) -> None:
    is_open = specifier.endswith((":*", " *"))
    body = (specifier[:-2] if is_open else specifier).strip(" ")
    expression = ".*".join(map(re.escape, body.split("*"))) + (r"([ \t\n].*)?" if is_open else "")
    expected = re.fullmatch(expression, command, re.DOTALL) is not None
    assert CommandPattern(specifier).matches(command) == expected


@given(st.lists(st.tuples(FOLDERS, st.sampled_from(["", "/*", "/b/*", "/**/a"])), max_size=8), FOLDERS)
def test_a_rule_reaches_into_a_folder_from_above_and_from_below(written: list[tuple[str, str]], folder: str) -> None:
    paths = PathResolver(("/w",), home="/home/me", real=lambda path: path, folds_case=lambda path: False)
    rules = [parse(f"Read(/{place.rstrip('/')}{rest})", "deny") for place, rest in written if place + rest != "/"]
    reaching = set()
    for rule in rules:
        pattern = rule.path_pattern(paths)
        assert pattern is not None
        if is_below(pattern.folder, folder) or (pattern.rest and is_below(folder, pattern.folder)):
            reaching.add(rule.text)
    match = PathRules(rules, paths).may_deny_inside("Read", paths.resolve(folder))
    assert (match.text in reaching) if match is not None else not reaching


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Folders, links to folders, a loop, a dangling link and a file."""
    root = tmp_path_factory.mktemp("tree")
    (root / "plain" / "deep").mkdir(parents=True)
    (root / "plain" / "file").write_text("")
    (root / "turn").symlink_to(root / "plain")
    (root / "loop").symlink_to(root / "loop")
    (root / "away").symlink_to(root / "nowhere")
    yield root
