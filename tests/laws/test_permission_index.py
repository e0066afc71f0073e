"""Whatever is filed is found: the quick look-ups say what the slow ones would."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wieldy.core.realpath import real_path
from wieldy.permissions.paths import is_below
from wieldy.permissions.rules import CommandPattern, PathPattern, Rule, parse
from wieldy.permissions.ruleset import FEW, LONGEST, CommandIndex, Needles, PathIndex

WORDS = st.sampled_from(["git", "log", "npm", "run", "--all", "a", "x*y", "*", "* b", "é", "-m 1"])
COMMANDS = st.lists(WORDS, min_size=1, max_size=5).map(" ".join)
NAMES = st.sampled_from(["a", "b", "ab", "c.d", ".e"])
FOLDERS = st.lists(NAMES, max_size=4).map(lambda names: "/" + "/".join(names))
TARGETS = ["plain", "plain/deep", "turn", "turn/deep", "loop", "away", "gone/x", "plain/file", "plain/file/x"]


NEEDLES = st.text("abc d.*|(", max_size=6)


@given(
    st.lists(NEEDLES, max_size=FEW) | st.lists(NEEDLES, min_size=FEW + 1, max_size=3 * FEW),
    st.text("abcd .*|(", max_size=30),
)
def test_needles_are_those_the_text_holds(needles: list[str], text: str) -> None:
    found = Needles((needle, at) for at, needle in enumerate(needles)).held_by(text)
    assert found == [at for at, needle in enumerate(needles) if needle in text]


def test_needles_are_found_in_a_long_text_too() -> None:
    found = Needles([("needle", 1), ("straw", 2), ("x", 3)]).held_by("hay " * LONGEST + "needle x")
    assert found == [1, 3]


@given(st.lists(COMMANDS, max_size=12), COMMANDS)
@settings(deadline=None)
def test_a_command_is_covered_by_the_rules_whose_pattern_matches_it(specifiers: list[str], command: str) -> None:
    rules = [Rule(f"Bash({text})", "deny", "command", "Bash", text) for text in specifiers]
    expected = {rule.text for rule in rules if CommandPattern(rule.specifier or "").matches(command)}
    assert {rule.text for rule in CommandIndex(rules).covering(command)} == expected


@given(st.lists(st.tuples(FOLDERS, st.sampled_from(["", "*", "b/*", "**/a"])), max_size=8), FOLDERS)
def test_a_rule_reaches_into_a_folder_from_above_and_from_below(filed: list[tuple[str, str]], folder: str) -> None:
    rules = [(PathPattern(place, rest), parse(f"Read(//{at})", "deny")) for at, (place, rest) in enumerate(filed)]
    reaching = {
        rule.text
        for pattern, rule in rules
        if is_below(pattern.folder, folder) or (pattern.rest and is_below(folder, pattern.folder))
    }
    found = PathIndex(rules).perhaps_inside(folder)
    assert (found.text in reaching) if found is not None else not reaching


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


@given(first=st.sampled_from(TARGETS), rest=st.sampled_from(["", "/", "/..", "/../turn", "/./a", "//a", "/a/b"]))
def test_a_real_path_is_what_the_standard_library_says(tree: Path, first: str, rest: str) -> None:
    path = f"{tree}/{first}{rest}"
    assert real_path(path) == os.path.realpath(path)
