from __future__ import annotations

import os
from pathlib import Path

import pytest

from wieldy.files.search.patterns import load_parent_rules, parse_ignore_file, repository_of, walk_files


def kept(root: Path, in_repository: bool = True, home: Path | None = None) -> list[str]:
    env = {"HOME": str(home or root / "nobody")}
    if in_repository and not repository_of(str(root)):
        (root / ".git").mkdir()
    rules = load_parent_rules(str(root), env)
    return sorted(os.path.relpath(entry.path, root) for entry in walk_files(str(root), rules))


def put(root: Path, **files: str) -> None:
    for name, text in files.items():
        write(root / name.replace("__", "/"), text)


def write(path: Path, text: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize(
    ("rules", "path", "is_folder", "verdict"),
    [
        ("*.log", "/r/a.log", False, True),
        ("*.log", "/r/x/a.log", False, True),
        ("*.log\n!keep.log", "/r/keep.log", False, False),
        ("build/", "/r/build", True, True),
        ("build/", "/r/build", False, None),
        ("/top", "/r/top", False, True),
        ("/top", "/r/x/top", False, None),
        ("a/b", "/r/a/b", False, True),
        ("a/b", "/r/x/a/b", False, None),
        ("# no\nx", "/r/# no", False, None),
        ("\\#yes", "/r/#yes", False, True),
        ("\\!yes", "/r/!yes", False, True),
        ("trailing   ", "/r/trailing", False, True),
        ("kept\\ ", "/r/kept ", False, True),
        ("[bad\n*.o", "/r/a.o", False, True),
    ],
)
def test_the_last_rule_that_fits_wins(rules, path, is_folder, verdict):
    read = parse_ignore_file(rules, "/r")
    assert read is not None
    assert read.verdict(path, is_folder) is verdict


def test_a_file_without_rules_is_no_rules():
    assert parse_ignore_file("\n# only a comment\n   \n", "/r") is None


def test_a_nested_file_speaks_for_its_folder_and_beats_the_one_above(tmp_path):
    write(tmp_path / ".gitignore", "*.txt\n")
    write(tmp_path / "sub/.gitignore", "!keep.txt\n")
    put(tmp_path, a__txt="", **{"sub__keep.txt": "", "sub__drop.txt": "", "keep.txt": ""})
    found = kept(tmp_path)
    assert "sub/keep.txt" in found
    assert "sub/drop.txt" not in found and "keep.txt" not in found


def test_ignore_beats_gitignore_and_rgignore_beats_both(tmp_path):
    write(tmp_path / ".gitignore", "a\nb\n")
    write(tmp_path / ".ignore", "!a\n!b\n")
    write(tmp_path / ".rgignore", "b\n")
    write(tmp_path / "a")
    write(tmp_path / "b")
    assert [name for name in kept(tmp_path) if not name.startswith(".")] == ["a"]


def test_a_folder_left_out_is_not_opened_whatever_is_said_about_its_files(tmp_path):
    write(tmp_path / ".gitignore", "out/\n!out/keep\n")
    write(tmp_path / "out/keep")
    assert kept(tmp_path) == [".gitignore"]


def test_rules_above_the_start_hold_below_it(tmp_path):
    write(tmp_path / ".gitignore", "sub/*.log\n*.tmp\n")
    (tmp_path / ".git").mkdir()
    put(tmp_path, **{"sub__a.log": "", "sub__b.tmp": "", "sub__c": ""})
    assert kept(tmp_path / "sub") == ["c"]


def test_the_rules_of_a_repository_end_at_its_root(tmp_path):
    write(tmp_path / ".gitignore", "*\n")
    (tmp_path / "repo/.git").mkdir(parents=True)
    write(tmp_path / "repo/code.py")
    assert "code.py" in kept(tmp_path / "repo", in_repository=True)


def test_excludes_of_the_repository_and_of_the_user_hold(tmp_path):
    write(tmp_path / "home/.gitconfig", "[core]\n\texcludesFile = ~/mine\n")
    write(tmp_path / "home/mine", "*.swp\n")
    write(tmp_path / "repo/.git/info/exclude", "secret\n")
    put(tmp_path / "repo", **{"secret": "", "x.swp": "", "y": ""})
    found = [name for name in kept(tmp_path / "repo", home=tmp_path / "home") if not name.startswith(".git")]
    assert found == ["y"]


def test_a_worktree_shares_the_excludes_of_its_repository(tmp_path):
    write(tmp_path / "main/.git/info/exclude", "secret\n")
    write(tmp_path / "main/.git/worktrees/w/commondir", "../..\n")
    write(tmp_path / "w/.git", f"gitdir: {tmp_path}/main/.git/worktrees/w\n")
    put(tmp_path / "w", secret="", other="")
    assert kept(tmp_path / "w") == [".git", "other"]


def test_links_are_not_followed_and_loops_do_no_harm(tmp_path):
    write(tmp_path / "real/file")
    (tmp_path / "real/loop").symlink_to(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path / "real/file")
    assert kept(tmp_path) == ["real/file"]


def test_whether_a_folder_is_in_a_repository(tmp_path):
    (tmp_path / "repo/.git").mkdir(parents=True)
    (tmp_path / "repo/deep/er").mkdir(parents=True)
    assert repository_of(str(tmp_path / "repo/deep/er"))
    assert repository_of(str(tmp_path / "repo"))
    assert not repository_of(str(tmp_path))
