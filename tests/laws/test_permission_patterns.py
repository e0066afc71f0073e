"""Path patterns mean what gitignore patterns mean, beside a library that reads them."""

from __future__ import annotations

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

from wieldy.policy.permissions.paths import PathResolver, path_key
from wieldy.policy.permissions.patterns import escape_path
from wieldy.policy.permissions.rules import Origin, parse

ROOT = "/w/project"
PATHS = PathResolver((ROOT,), home="/home/me")

names = st.sampled_from(["a", "b", "ab", "a.py", ".env", "x*y", "[q]", "é"])
paths = st.lists(names, min_size=1, max_size=4).map("/".join)
segments = st.sampled_from(
    ["a", "b", "ab", "*", "**", "*.py", "?", "a*", "*b", "[ab]", "[!a]", ".env", "a?", "*a*b", "é"]
)
patterns = st.lists(segments, min_size=1, max_size=4).map("/".join)


def covers(specifier: str, path: str) -> bool:
    rule = parse(f"Edit({specifier})", "allow", Origin("project", folder=ROOT))
    pattern = rule.path_pattern(PATHS)
    return pattern is None or pattern.matches(path_key(f"{ROOT}/{path}"))


@settings(max_examples=1500, deadline=None)
@given(pattern=patterns, path=paths, rooted=st.booleans())
def test_a_pattern_matches_what_gitignore_matches(pattern: str, path: str, rooted: bool) -> None:
    written = f"/{pattern}" if rooted else pattern
    assume(not written.startswith("//"))
    assert covers(written, path) is (GitIgnoreSpecPattern(written).match_file(path) is not None)


@settings(max_examples=300, deadline=None)
@given(
    path=st.lists(st.text(alphabet="ab*?[]!\\ é.", min_size=1, max_size=5), min_size=1, max_size=3).map("/".join),
    other=paths,
)
def test_an_escaped_path_covers_itself_and_what_is_below_alone(path: str, other: str) -> None:
    assume(not {".", ".."} & set(path.split("/")))
    specifier = "/" + escape_path(path)
    assert covers(specifier, path)
    assert covers(specifier, f"{path}/below")
    assume(other != path and not other.startswith(path + "/"))
    assert not covers(specifier, other)
