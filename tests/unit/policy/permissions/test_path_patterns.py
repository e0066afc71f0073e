from __future__ import annotations

import pytest

from wieldy.core.decision import Behavior
from wieldy.policy.permissions.paths import PathResolver, path_key
from wieldy.policy.permissions.patterns import escape_path
from wieldy.policy.permissions.rules import Origin, parse

PATHS = PathResolver(("/w/project",), home="/home/me")
SETTINGS = Origin("user", "/home/me/.config/wieldy/settings.json", 1, "/home/me/.config/wieldy")


def covers(specifier: str, path: str, behavior: Behavior = "allow", *, folds_case: bool = False) -> bool:
    rule = parse(f"Read({specifier})", behavior, SETTINGS)
    pattern = rule.path_pattern(PATHS)
    return pattern is None or pattern.matches(path_key(path, folds_case), folds_case)


@pytest.mark.parametrize(
    ("specifier", "path", "expected"),
    [
        ("//etc/**", "/etc/passwd", True),
        ("//etc/**", "/w/project/etc/passwd", False),
        ("~/.ssh/**", "/home/me/.ssh/id_rsa", True),
        ("~/.ssh/**", "/home/other/.ssh/id_rsa", False),
        ("~/*.txt", "/home/me/a.txt", True),
        ("~/*.txt", "/home/me/sub/a.txt", False),
        ("/docs/**", "/home/me/.config/wieldy/docs/a", True),
        ("/docs/**", "/w/project/docs/a", False),
        ("src/**", "/w/project/src/a.py", True),
        ("./src/**", "/w/project/src/deep/a.py", True),
        ("src/**", "/w/project/srcs/a.py", False),
        ("*.py", "/w/project/deep/er/a.py", True),
        ("*.py", "/w/other/a.py", False),
        (".env", "/w/project/.env", True),
        (".env", "/w/project/sub/.env", True),
        (".env", "/w/project/.env.local", False),
        (".env", "/w/project/.env/inside", True),
        ("./.env", "/w/project/sub/.env", False),
        ("src/*.py", "/w/project/src/a.py", True),
        ("src/*.py", "/w/project/src/sub/a.py", False),
        ("src/**/test_*.py", "/w/project/src/test_a.py", True),
        ("src/**/test_*.py", "/w/project/src/a/b/test_a.py", True),
        ("**/fixtures/*", "/w/project/fixtures/a", True),
        ("**/fixtures/*", "/w/project/a/b/fixtures/a", True),
        ("build/", "/w/project/build/out.o", True),
        ("../shared/**", "/w/shared/a", True),
        ("a[0-9].txt", "/w/project/a7.txt", True),
        ("a[!0-9].txt", "/w/project/a7.txt", False),
        ("a[!x]b", "/w/project/a/b", False),
        ("a?c", "/w/project/abc", True),
        ("a?c", "/w/project/a/c", False),
        (r"a\*b", "/w/project/a*b", True),
        (r"a\*b", "/w/project/axb", False),
        ("[", "/w/project/[", True),
        ("**", "/w/project/any/thing", True),
        ("**", "/w/elsewhere", False),
        (".", "/w/project/any", True),
        ("caf\u00e9/**", "/w/project/cafe\u0301/menu", True),
    ],
)
def test_an_allow_pattern_covers(specifier: str, path: str, expected: bool) -> None:
    assert covers(specifier, path) is expected


@pytest.mark.parametrize("behavior", ["deny", "ask"])
def test_one_segment_and_stars_forbid_at_any_depth_but_allow_only_where_they_stand(behavior: Behavior) -> None:
    assert covers("secrets/**", "/w/project/a/b/secrets/key", behavior)
    assert not covers("secrets/**", "/w/project/a/b/secrets/key", "allow")
    assert covers("secrets/**", "/w/project/secrets/key", "allow")
    assert not covers("a/secrets/**", "/w/project/b/a/secrets/key", behavior)
    assert covers("./.env", "/w/project/sub/.env", behavior)


def test_case_counts_unless_the_volume_folds_it() -> None:
    for specifier in (".git/**", "*.KEY", "~/.ssh/**"):
        path = {".git/**": "/w/project/.GIT/config", "*.KEY": "/w/project/a.key", "~/.ssh/**": "/home/me/.SSH/id"}[
            specifier
        ]
        assert not covers(specifier, path, "deny")
        assert covers(specifier, path.casefold(), "deny", folds_case=True)
        assert covers(specifier, path, "deny", folds_case=True)


def test_many_stars_need_no_backtracking() -> None:
    deep = "/w/project" + "/a" * 1500
    assert not covers("/".join(["**", "a"] * 25) + "/b", deep)
    assert not covers("*a" * 40 + "b", "/w/project/" + "a" * 250)


@pytest.mark.parametrize("name", ["a*b", "[x]", "!n", "#h", "a\\b", "q?", "plain"])
def test_an_escaped_path_covers_only_itself(name: str) -> None:
    assert covers("//w/" + escape_path(name), f"/w/{name}")
    assert not covers("//w/" + escape_path(name), "/w/other")
