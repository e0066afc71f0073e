"""What a sandbox must keep from programs is found on disk, or it is said that it cannot be."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from wieldy.policy.permissions.guarded_files import GuardedFiles, find_guarded_files
from wieldy.policy.permissions.paths import PathResolver
from wieldy.policy.permissions.protected import ProtectedFolders, ProtectedPaths
from wieldy.policy.permissions.rules import Origin, parse
from wieldy.policy.permissions.ruleset import PathRules


def guarded(root: Path, *deny: str, home: Path | None = None, max_entries: int = 1000) -> GuardedFiles:
    paths = PathResolver([str(root)], home=str(home or root.parent / "home"))
    rules = PathRules([parse(text, "deny", Origin("user", folder=str(root))) for text in deny], paths)
    return find_guarded_files(rules, ProtectedPaths([str(root)]), paths, max_entries=max_entries)


@pytest.fixture
def root(tmp_path) -> Path:
    real = Path(os.path.realpath(tmp_path)) / "root"
    for name in ("a/b/.env", "a/key.pem", "plain", "node_modules/x/.env", "nested/.git/hooks/h", "nested/.git/HEAD"):
        (real / name).parent.mkdir(parents=True, exist_ok=True)
        (real / name).write_text("x")
    return real


def test_denied_reads_are_hidden_and_denied_writes_are_read_only(root):
    found = guarded(root, "Read(*.pem)", "Edit(/plain)")
    assert found.hidden == (f"{root}/a/key.pem",)
    assert found.read_only == (f"{root}/plain",)
    assert not found.problem


def test_programs_on_path_are_read_only_with_their_environment(root):
    for name in (".venv/bin/tool", "tools/tool"):
        (root / name).parent.mkdir(parents=True)
        (root / name).write_text("x")
    (root / ".venv/pyvenv.cfg").write_text("")
    paths = PathResolver([str(root)], home=str(root.parent / "home"))

    def found(*folders: str) -> GuardedFiles:
        programs = ProtectedFolders(programs=tuple(f"{root}/{folder}" for folder in folders))
        return find_guarded_files(PathRules([], paths), ProtectedPaths([str(root)], programs), paths)

    assert {f"{root}/.venv", f"{root}/tools"} <= {*found(".venv/bin", "tools").read_only}
    assert "does not exist" in found("no-such-folder").problem


def test_packages_are_searched_only_where_a_rule_may_deny_something_in_them(root):
    assert f"{root}/node_modules/x/.env" not in guarded(root).read_only
    assert f"{root}/node_modules/x/.env" in guarded(root, "Read(.env)").hidden


def test_a_whole_folder_is_one_path_and_a_link_means_its_target(root, tmp_path):
    target = root.parent / "elsewhere"
    target.write_text("x")
    (root / "link.pem").symlink_to(target)
    found = guarded(root, "Read(/a/**)", "Read(*.pem)")
    assert f"{root}/a" in found.hidden or {f"{root}/a/b", f"{root}/a/key.pem"} <= {*found.hidden}
    assert str(target) in found.hidden


def test_folders_outside_are_hidden_whole(root):
    secret = root.parent / "secret"
    secret.mkdir()
    assert guarded(root, f"Read(/{secret}/*.txt)").hidden == (str(secret),)
    assert not guarded(root, f"Read(/{secret}/no-such-file)").hidden


@pytest.mark.parametrize("rule", ["Edit(*.lock)", "Edit(/no-such-file)", "Edit(/a/*.txt)", "Edit(//**)", "Edit(**)"])
def test_a_new_file_that_a_rule_forbids_to_write_cannot_be_prevented(root, rule):
    assert "new file" in guarded(root, rule).problem
    assert not guarded(root, "Edit(/a/**)", "Edit(/plain)").problem


@pytest.mark.parametrize("rule", ["Read(//**/*.key)", "Read(~/**)", "Read(//)"])
def test_rules_about_too_much_are_a_problem(root, rule):
    assert guarded(root, rule, home=root.parent).problem


def test_what_is_denied_in_other_writable_folders_is_found_too(root):
    other = root.parent / "other"
    (other / "sub").mkdir(parents=True)
    (other / "fixed").write_text("x")
    paths = PathResolver([str(root)], home=str(root.parent / "home"))
    rules = PathRules([parse(f"Edit(/{other}/fixed)", "deny", Origin("user", folder=str(root)))], paths)
    found = find_guarded_files(rules, ProtectedPaths([str(root)]), paths, also_writable=[str(other)])
    assert found.read_only == (f"{other}/fixed",)


def test_too_many_entries_are_a_problem(root):
    assert "too many files" in guarded(root, "Read(.env)", max_entries=3).problem
    assert not guarded(root, max_entries=3).problem
