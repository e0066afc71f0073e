"""What a command changed, seen from outside."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wieldy.files.journal.entries import FileChange
from wieldy.files.journal.tree_snapshot import CLOCK_TICK_NS, SnapshotLimits, TreeChanges, TreeSnapshots
from wieldy.workspace_services import open_workspace


class Tree:
    """A folder, and the snapshots of it."""

    def __init__(self, folder: Path, limits: SnapshotLimits | None = None) -> None:
        self.root = folder / "tree"
        self.root.mkdir(exist_ok=True)
        env = {"WIELDY_HOME": str(folder / "home")}
        self.workspace = open_workspace(self.root, session_dir=folder / "session", env=env)
        self.snapshots = TreeSnapshots(self.workspace.services.journal.store, limits)

    def close(self) -> None:
        self.workspace.services.journal.store.close()

    def paths(self) -> list[str]:
        return sorted(str(path) for path in self.root.rglob("*"))

    def after(self, command: str) -> TreeChanges:
        before = self.snapshots.take(self.paths())
        subprocess.run(["bash", "-c", command], cwd=self.root, check=True)
        return self.snapshots.compare(before, self.paths())

    def shown(self, differences: TreeChanges) -> dict[str, tuple[bytes | None, bytes | None]]:
        return {os.path.relpath(each.path, self.root): (each.before, each.after) for each in differences.changes}


@pytest.fixture
def tree(tmp_path) -> Iterator[Tree]:
    tree = Tree(tmp_path)
    yield tree
    tree.close()


@pytest.fixture
def narrow(tmp_path) -> Iterator[Tree]:
    """One that keeps little."""
    tree = Tree(tmp_path, SnapshotLimits(file_bytes=10, files=2))
    yield tree
    tree.close()


def test_changed_new_and_deleted_files_come_with_their_bytes(tree):
    (tree.root / "same").write_bytes(b"same")
    (tree.root / "edited").write_bytes(b"old \xff")
    (tree.root / "removed").write_bytes(b"precious")
    differences = tree.after("printf new > edited; rm removed; mkdir sub; echo hi > sub/made")
    assert tree.shown(differences) == {
        "edited": (b"old \xff", b"new"),
        "removed": (b"precious", None),
        "sub/made": (None, b"hi\n"),
    }
    assert differences.uncovered == ()


def test_a_file_that_is_gone_keeps_its_mode(tree):
    script = tree.root / "script"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o750)
    [gone] = tree.after("rm script").changes
    assert gone.mode == 0o750


def test_a_moved_file_is_gone_here_and_new_there(tree):
    (tree.root / "a").write_text("x")
    assert tree.shown(tree.after("mv a b")) == {"a": (b"x", None), "b": (None, b"x")}


def test_a_rewrite_with_the_same_bytes_is_no_change(tree):
    (tree.root / "a").write_text("x")
    assert tree.after("printf x > a; touch a").changes == ()


def test_a_change_that_hides_behind_size_and_time_is_found(tree):
    (tree.root / "a").write_text("old")
    assert tree.shown(tree.after("touch -r a ref; printf new > a; touch -r ref a; rm ref")) == {"a": (b"old", b"new")}


def test_what_changed_between_two_commands_is_not_blamed_on_the_second(tree):
    (tree.root / "a").write_text("1")
    tree.after("printf 2 > a")
    (tree.root / "a").write_text("3")
    assert tree.shown(tree.after("printf 4 > a")) == {"a": (b"3", b"4")}


def test_a_large_file_is_said_to_be_uncovered(narrow):
    tree = narrow
    (tree.root / "big").write_bytes(b"x" * 11)
    differences = tree.after("printf y >> big; head -c 20 /dev/zero > made")
    assert differences.changes == ()
    assert len(differences.uncovered) == 1
    assert "and 1 more" in differences.uncovered[0]


def test_a_file_that_could_not_be_kept_is_never_called_new(narrow):
    tree = narrow
    (tree.root / "big").write_bytes(b"x" * 11)
    differences = tree.after("printf small > big")
    assert differences.changes == ()
    assert "big" in differences.uncovered[0]


def test_beyond_the_limit_of_files_nothing_is_called_new(narrow):
    tree = narrow
    for name in "abcd":
        (tree.root / name).write_text(name)
    differences = tree.after("printf x > a; printf x > d; printf x > e")
    assert tree.shown(differences) == {"a": (b"a", b"x")}
    assert any("beyond" in line for line in differences.uncovered)


def test_a_file_the_rules_had_hidden_is_never_called_new(tree):
    (tree.root / ".gitignore").write_text("hidden\n")
    (tree.root / "hidden").write_text("mine")
    visible = [path for path in tree.paths() if not path.endswith("hidden")]
    before = tree.snapshots.take(visible)
    subprocess.run("echo > .gitignore; echo more >> hidden", shell=True, cwd=tree.root, check=True)
    differences = tree.snapshots.compare(before, tree.paths())
    assert list(tree.shown(differences)) == [".gitignore"]
    assert "hidden" in differences.uncovered[0]


def test_an_older_file_that_comes_into_view_is_never_called_new(tree):
    (tree.root / "old").write_text("mine")
    os.utime(tree.root / "old")
    before = tree.snapshots.take([])
    before.taken_at += 1_000_000_000
    assert tree.snapshots.compare(before, tree.paths()).changes == ()


def test_links_pipes_and_folders_are_left_alone(tree):
    (tree.root / "target").write_text("x")
    assert tree.shown(tree.after("ln -s target link; mkfifo pipe; mkdir folder; ln -s /etc/passwd out")) == {}


def test_an_unchanged_file_is_not_read_again(tree):
    (tree.root / "a").write_text("x")
    time.sleep(2 * CLOCK_TICK_NS / 1e9)
    for _ in range(3):
        tree.after("true")
    assert tree.snapshots.reads == 1


def test_those_who_keep_at_the_same_time_keep_their_own(tree):
    folders = [tree.root / str(number) for number in range(8)]
    for folder in folders:
        folder.mkdir()
        for number in range(40):
            (folder / str(number)).write_bytes(f"{folder.name} {number} ".encode() * 500)
    with ThreadPoolExecutor(len(folders)) as threads:
        seen = list(threads.map(lambda folder: tree.snapshots.take(map(str, folder.iterdir())), folders))
    for folder, before in zip(folders, seen, strict=True):
        old = {str(path): path.read_bytes() for path in folder.iterdir()}
        for path in folder.iterdir():
            path.write_bytes(b"new")
        found = tree.snapshots.compare(before, map(str, folder.iterdir())).changes
        assert {each.path: each.before for each in found} == old


def test_a_second_session_reads_no_file_that_is_stored_and_unchanged(tree, tmp_path):
    (tree.root / "a").write_text("x")
    (tree.root / "b").write_text("y")
    time.sleep(2 * CLOCK_TICK_NS / 1e9)
    tree.after("true")
    tree.close()
    second = Tree(tmp_path)
    assert second.shown(second.after("printf z > b")) == {"b": (b"y", b"z")}
    assert second.snapshots.reads == 1
    second.close()


def test_a_file_written_just_before_the_snapshot_is_read_again_next_time(tree):
    path = tree.root / "a"
    path.write_text("x")
    tree.snapshots.take(tree.paths())
    time.sleep(2 * CLOCK_TICK_NS / 1e9)
    tree.snapshots.take(tree.paths())
    assert tree.snapshots.reads == 2


def test_beyond_the_limit_of_stored_bytes_files_are_uncovered_unless_others_are_gone(tmp_path):
    tree = Tree(tmp_path, SnapshotLimits(stored_bytes=100))
    (tree.root / "a").write_bytes(b"a" * 60)
    time.sleep(2 * CLOCK_TICK_NS / 1e9)
    tree.after("true")
    (tree.root / "b").write_bytes(b"b" * 60)
    [line] = tree.after("printf x > b").uncovered
    assert "b: beyond the" in line
    (tree.root / "a").unlink()
    assert tree.shown(tree.after("printf y > b")) == {"b": (b"x", b"y")}
    tree.close()


def test_what_cannot_be_stored_is_uncovered(tmp_path):
    (tmp_path / "home").write_text("a file is in the way")
    tree = Tree(tmp_path)
    (tree.root / "a").write_text("x")
    changes = tree.after("printf y > a")
    assert changes.changes == () and "a: " in changes.uncovered[0]


def test_nothing_is_written_into_the_tree(tree):
    (tree.root / "a").write_text("x")
    tree.after("true")
    assert [path.name for path in tree.root.iterdir()] == ["a"]


FILES = st.dictionaries(st.sampled_from("abcde"), st.binary(max_size=4))


@given(FILES, FILES)
@settings(max_examples=60, deadline=None)
def test_applying_the_differences_backwards_restores_any_tree(first, second):
    with tempfile.TemporaryDirectory() as folder:
        _check_restored(Tree(Path(folder)), first, second)


def _check_restored(tree: Tree, first: dict[str, bytes], second: dict[str, bytes]) -> None:
    _put(tree.root, first)
    before = tree.snapshots.take(tree.paths())
    _put(tree.root, second)
    for each in tree.snapshots.compare(before, tree.paths()).changes:
        _take_back(each)
    assert {path.name: path.read_bytes() for path in tree.root.iterdir()} == first
    tree.close()


def _put(root: Path, files: dict[str, bytes]) -> None:
    for path in root.iterdir():
        if path.name not in files:
            path.unlink()
    for name, content in files.items():
        (root / name).write_bytes(content)


def _take_back(difference: FileChange) -> None:
    if difference.before is None:
        os.unlink(difference.path)
    else:
        Path(difference.path).write_bytes(difference.before)
