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
from msgspec.structs import replace
from tests.needs import skip_untested

from wieldy.files.journal.entries import FileChange
from wieldy.files.journal.snapshot_contents import (
    FileCopies,
    SnapshotLimits,
    SnapshotScope,
    TreeChanges,
    TreeSnapshot,
    load_index,
    open_slot,
)
from wieldy.files.journal.store import ContentUnavailable
from wieldy.files.journal.tree_manifest import (
    CLOCK_TICK_NS,
    TimeLimit,
    load_manifest,
    open_watch,
    read_manifest,
    save_manifest,
)
from wieldy.files.journal.tree_snapshot import TreeSnapshots

SLOW_ENOUGH = SnapshotLimits(seconds=60)  # whatever else the machine does
GIT = ("git", "-c", "user.name=t", "-c", "user.email=t@t", "-c", "init.defaultBranch=main")


class Tree:
    """A folder, and the snapshots of it."""

    watch_folders = staticmethod(open_watch)

    def __init__(self, folder: Path, limits: SnapshotLimits = SLOW_ENOUGH) -> None:
        self.folder = folder
        self.root = folder / "tree"
        self.root.mkdir(exist_ok=True)
        self.env = {"HOME": str(folder), "PATH": os.environ["PATH"]}
        self.snapshots = TreeSnapshots(folder / "slots", self.env, limits, watch_folders=self.watch_folders)

    def close(self) -> None:
        self.snapshots.close()

    def take(self) -> TreeSnapshot:
        return self.snapshots.take(SnapshotScope((str(self.root),)))

    def run(self, command: str) -> None:
        subprocess.run(["bash", "-c", command], cwd=self.root, check=True, env={**os.environ, **self.env})

    def after(self, command: str) -> TreeChanges:
        before = self.take()
        self.run(command)
        return self.snapshots.compare(before)

    def after_known(self, command: str, *paths: str) -> TreeChanges:
        """The same for a command whose writes are known."""
        full = [str(self.root / path) for path in paths]
        folders = tuple(path for path in full if os.path.isdir(path))
        before = self.snapshots.take(SnapshotScope(folders, tuple(path for path in full if path not in folders)))
        self.run(command)
        return self.snapshots.compare(before)

    def shown(self, differences: TreeChanges) -> dict[str, tuple[bytes | None, bytes | None]]:
        return {os.path.relpath(each.path, self.root): (each.before, each.after) for each in differences.changes}

    def nodes(self, differences: TreeChanges) -> dict[str, tuple[object, object]]:
        """Symlinks by target, folders that come or go, and permissions that change."""
        shown: dict[str, tuple[object, object]] = {}
        for change in differences.nodes:
            kinds = {None if node is None else node.kind for node in (change.before, change.after)}
            before, after = (
                None if node is None else node.mode if kinds in ({"file"}, {"folder"}) else node.target or node.kind
                for node in (change.before, change.after)
            )
            shown[os.path.relpath(change.path, self.root)] = before, after
        return shown

    def named(self, differences: TreeChanges) -> dict[str, str]:
        return {os.path.relpath(each.path, self.root): each.reason for each in differences.uncovered}

    def git(self, *arguments: str) -> None:
        subprocess.run(
            [*GIT, *arguments], cwd=self.root, check=True, capture_output=True, env={**os.environ, **self.env}
        )

    def commit(self) -> None:
        self.git("init", "-q")
        self.git("config", "maintenance.auto", "false")  # git's background work would race with commands
        self.git("add", "-A")
        self.git("commit", "-qm", "all")
        self.settle()

    def settle(self) -> None:
        """Wait until time stamps tell old from new, then let git look again."""
        time.sleep(3 * CLOCK_TICK_NS / 1e9)
        if (self.root / ".git").exists():
            self.git("update-index", "-q", "--really-refresh")
            os.utime(self.root / ".git" / "index")


def no_watch(tops: object) -> None:
    """As on a system that does not tell what changes."""


@pytest.fixture(params=["watched", "walked twice"], autouse=True)
def how_changes_are_found(request, monkeypatch) -> None:
    if request.param == "walked twice":
        monkeypatch.setattr(Tree, "watch_folders", staticmethod(no_watch))


@pytest.fixture
def tree(tmp_path) -> Iterator[Tree]:
    tree = Tree(tmp_path)
    yield tree
    tree.close()


def tree_with(tmp_path: Path, **limits: float) -> Tree:
    return Tree(tmp_path, replace(SLOW_ENOUGH, **limits))


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


def test_a_new_file_names_the_folders_that_were_made_for_it(tree):
    (tree.root / "old").mkdir()
    differences = tree.after("mkdir -p old/x/y; echo > old/x/y/made")
    assert tree.nodes(differences) == {"old/x": (None, "folder"), "old/x/y": (None, "folder")}


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


def test_large_files_are_named(tmp_path):
    tree = tree_with(tmp_path, file_bytes=10)
    (tree.root / "big").write_bytes(b"x" * 11)
    differences = tree.after("printf y >> big; head -c 20 /dev/zero > made")
    assert differences.changes == ()
    assert list(tree.named(differences)) == ["big", "made"]
    tree.close()


def test_a_file_that_could_not_be_kept_is_never_called_new(tmp_path):
    tree = tree_with(tmp_path, file_bytes=10)
    (tree.root / "big").write_bytes(b"x" * 11)
    differences = tree.after("printf small > big")
    assert differences.changes == () and list(tree.named(differences)) == ["big"]
    tree.close()


def test_a_large_file_that_shrinks_or_goes_is_named_and_one_that_grows_is_restored(tmp_path):
    tree = tree_with(tmp_path, file_bytes=10)
    (tree.root / "gone").write_bytes(b"x" * 11)
    (tree.root / "grows").write_bytes(b"small")
    differences = tree.after("rm gone; head -c 100 /dev/zero > grows")
    assert tree.shown(differences) == {"grows": (b"small", bytes(100))}
    assert list(tree.named(differences)) == ["gone"]
    tree.close()


def test_what_a_walk_has_no_time_for_is_named_and_nothing_there_is_called_new(tmp_path):
    tree = Tree(tmp_path)
    for name in "abc":
        (tree.root / name).mkdir()
        (tree.root / name / "file").write_text(name)
    ticks = iter(range(10**9))
    # The walk sees each look at the clock as a second: there is time for the top folder and one more.
    tree.snapshots = TreeSnapshots(
        tmp_path / "slots", tree.env, SnapshotLimits(seconds=4), lambda: float(next(ticks)), watch_folders=no_watch
    )
    differences = tree.after("for d in a b c; do echo x > $d/file; echo > $d/new; done; echo > top")
    named, shown = tree.named(differences), tree.shown(differences)
    assert "top" in shown
    unwatched = {path for path, reason in named.items() if "more files than there is time for" in reason}
    assert unwatched and unwatched <= {"a", "b", "c"}
    for folder in "abc":
        assert folder in unwatched or {f"{folder}/file", f"{folder}/new"} <= shown.keys() | named.keys()
        assert folder not in unwatched or not any(path.startswith(folder) for path in shown)
    tree.close()


def test_the_current_folder_is_looked_at_first(tmp_path):
    tree = Tree(tmp_path)
    for name in (*"abcdefghij", "deep/er"):
        (tree.root / name).mkdir(parents=True)
        (tree.root / name / "file").write_text("x")
    ticks = iter(range(10**9))
    tree.snapshots = TreeSnapshots(
        tmp_path / "slots", tree.env, SnapshotLimits(seconds=7), lambda: float(next(ticks)), watch_folders=no_watch
    )
    before = tree.snapshots.take(SnapshotScope((str(tree.root),), first=str(tree.root / "deep" / "er")))
    assert str(tree.root / "deep" / "er") in before.manifest.folders and before.manifest.unreached
    tree.close()


def test_a_file_the_rules_had_hidden_is_never_called_new(tree):
    (tree.root / ".gitignore").write_text("hidden\nbuild\n")
    (tree.root / "hidden").write_text("mine")
    (tree.root / "build").mkdir()
    (tree.root / "build" / "out").write_text("mine")
    differences = tree.after("echo > .gitignore; echo more >> hidden; echo more >> build/out")
    assert list(tree.shown(differences)) == [".gitignore"]


def test_ignore_rules_that_change_between_commands_are_followed(tree):
    (tree.root / ".gitignore").write_text("a\n")
    for name in "ab":
        (tree.root / name).write_text("x")
    assert tree.shown(tree.after("echo y > a; echo y > b")) == {"b": (b"x", b"y\n")}
    tree.settle()
    (tree.root / ".gitignore").write_text("b\n")
    assert tree.shown(tree.after("echo z > a; echo z > b")) == {"a": (b"y\n", b"z\n")}


def test_a_new_folder_may_hide_its_own_files(tree):
    differences = tree.after("mkdir venv; echo '*' > venv/.gitignore; echo > venv/python; mkdir src; echo > src/a")
    assert list(tree.shown(differences)) == ["src/a"]


def test_symlinks_folders_and_permissions_are_found_and_pipes_are_named(tree):
    (tree.root / "target").write_text("x")
    (tree.root / "target").chmod(0o640)
    (tree.root / "old").symlink_to("target")
    (tree.root / "empty").mkdir()
    (tree.root / "sub").mkdir(0o755)
    differences = tree.after(
        "ln -s target link; mkfifo pipe; mkdir folder; rm old; chmod 600 target; rmdir empty; chmod 700 sub"
    )
    assert differences.changes == ()
    assert tree.nodes(differences) == {
        "link": (None, "target"),
        "old": ("target", None),
        "folder": (None, "folder"),
        "empty": ("folder", None),
        "sub": (0o755, 0o700),
        "target": (0o640, 0o600),
    }
    assert list(tree.named(differences)) == ["pipe"]


def test_a_folder_that_is_closed_to_its_own_user_is_found(tree):
    (tree.root / "sub").mkdir(0o755)
    differences = tree.after("chmod 0 sub")
    assert tree.nodes(differences) == {"sub": (0o755, 0)}


def test_a_large_file_whose_permissions_change_gets_them_back(tmp_path):
    tree = tree_with(tmp_path, file_bytes=10)
    (tree.root / "big").write_bytes(b"x" * 11)
    (tree.root / "big").chmod(0o644)
    assert tree.nodes(tree.after("chmod +x big")) == {"big": (0o644, 0o755)}
    tree.close()


def test_a_lost_file_in_whose_place_a_link_is_is_named_and_the_link_stays(tmp_path):
    tree = tree_with(tmp_path, file_bytes=10)
    (tree.root / "big").write_bytes(b"x" * 11)
    differences = tree.after("ln -sf elsewhere big")
    assert tree.nodes(differences) == {} and list(tree.named(differences)) == ["big"]
    tree.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_a_new_owner_is_named(tree):
    (tree.root / "a").write_text("x")
    (tree.root / "sub").mkdir()
    named = tree.named(tree.after("chown 12345 a sub; chmod 600 a"))
    assert set(named) == {"a", "sub"} and "owner" in named["a"]


def test_new_extended_attributes_are_named(tree):
    (tree.root / "a").write_text("x")
    (tree.root / "b").write_text("x")
    tree.settle()
    before = tree.take()
    try:
        os.setxattr(tree.root / "a", "user.color", b"green")
    except (OSError, AttributeError):
        skip_untested("no extended attributes on this file system")
    os.chmod(tree.root / "b", os.stat(tree.root / "b").st_mode)
    differences = tree.snapshots.compare(before)
    assert differences.changes == () and tree.nodes(differences) == {}
    assert tree.named(differences) == {"a": "its extended attributes may have changed"}


def test_a_folder_that_becomes_a_link_is_not_followed(tree):
    (tree.root / "src").mkdir()
    (tree.root / "src" / "a").write_text("x")
    differences = tree.after("mv src real; ln -s real src")
    assert tree.shown(differences) == {"src/a": (b"x", None), "real/a": (None, b"x")}
    assert tree.nodes(differences) == {"src": ("folder", "real"), "real": (None, "folder")}


def test_a_file_in_place_of_a_folder_and_the_reverse(tree):
    (tree.root / "folder").mkdir()
    (tree.root / "folder" / "inner").write_text("1")
    (tree.root / "file").write_text("2")
    differences = tree.after("rm -r folder file; echo > folder; mkdir file; echo > file/inner")
    assert tree.shown(differences) == {
        "folder/inner": (b"1", None),
        "file": (b"2", None),
        "folder": (None, b"\n"),
        "file/inner": (None, b"\n"),
    }


def test_an_unchanged_file_is_not_read_again(tree):
    (tree.root / "a").write_text("x")
    tree.settle()
    for _ in range(3):
        tree.after("true")
    assert tree.snapshots.contents.reads == 1


def test_those_who_look_at_the_same_time_keep_their_own(tree):
    folders = [tree.root / str(number) for number in range(8)]
    for folder in folders:
        folder.mkdir()
        for number in range(40):
            (folder / str(number)).write_bytes(f"{folder.name} {number} ".encode() * 500)
    with ThreadPoolExecutor(len(folders)) as threads:
        seen = list(threads.map(lambda folder: tree.snapshots.take(SnapshotScope((str(folder),))), folders))
    for folder, before in zip(folders, seen, strict=True):
        old = {str(path): path.read_bytes() for path in folder.iterdir()}
        for path in folder.iterdir():
            path.write_bytes(b"new")
        assert {each.path: each.before for each in tree.snapshots.compare(before).changes} == old


def test_a_second_session_reads_no_file_that_is_copied_and_unchanged(tree, tmp_path):
    (tree.root / "a").write_text("x")
    (tree.root / "b").write_text("y")
    tree.settle()
    before = tree.take()
    assert tree.snapshots.contents.copies is not None
    save_manifest(tree.snapshots.contents.copies.folder, "manifest-1", before.manifest.folders)
    tree.close()
    second = Tree(tmp_path)
    assert second.shown(second.after("printf z > b")) == {"b": (b"y", b"z")}
    assert second.snapshots.contents.reads == 1
    second.close()


def test_a_file_written_just_before_the_snapshot_is_read_again_next_time(tree):
    (tree.root / "a").write_text("x")
    tree.take()
    tree.settle()
    tree.take()
    assert tree.snapshots.contents.reads == 2


def test_beyond_the_limit_of_copies_files_are_named_unless_others_are_gone(tmp_path):
    tree = tree_with(tmp_path, copied_bytes=100)
    (tree.root / "a").write_bytes(b"a" * 60)
    tree.settle()
    tree.after("true")
    (tree.root / "b").write_bytes(b"b" * 60)
    assert tree.named(tree.after("printf x > b")) == {"b": "beyond the 0 MB that are kept"}
    (tree.root / "a").unlink()
    (tree.root / "b").write_bytes(b"c" * 60)
    tree.settle()
    assert tree.shown(tree.after("printf y > b")) == {"b": (b"c" * 60, b"y")}
    tree.close()


def test_what_cannot_be_copied_is_named(tmp_path):
    (tmp_path / "slots").write_text("a file is in the way")
    tree = Tree(tmp_path)
    (tree.root / "a").write_text("x")
    changes = tree.after("printf y > a")
    assert changes.changes == () and list(tree.named(changes)) == ["a"]
    tree.close()


def test_more_changes_than_are_kept_are_named_and_what_is_lost_comes_first(tmp_path):
    tree = tree_with(tmp_path, changed_files=3)
    for name in "abc":
        (tree.root / name).write_text(name)
    differences = tree.after("rm a b c; echo > d; echo > e")
    assert set(tree.shown(differences)) == {"a", "b", "c"} and set(tree.named(differences)) == {"d", "e"}
    tree.close()


def test_nothing_is_written_into_the_tree(tree):
    (tree.root / "a").write_text("x")
    tree.after("true")
    assert [path.name for path in tree.root.iterdir()] == ["a"]


def test_copying_goes_on_while_the_command_runs_without_what_it_has_changed(tmp_path):
    import threading

    tree = Tree(tmp_path)
    for number in range(100):
        (tree.root / str(number)).write_text(f"old {number}")
    tree.settle()
    before = tree.take()
    for path in list(tree.root.iterdir()):
        folder = before.manifest.folders[str(tree.root)]
        folder.sources[folder.names.index(path.name)] = None  # as if there had been no time
    before.uncopied.clear()
    tree.snapshots.contents.find_sources(before, TimeLimit(60))
    tree.run("for n in $(seq 0 9); do echo new > $n; done")
    tree.snapshots.copy_more(before, threading.Event())
    tree.run("rm *")
    differences = tree.snapshots.compare(before)
    assert set(tree.named(differences)) == {str(n) for n in range(10)}
    assert all(old == f"old {name}".encode() for name, (old, _) in tree.shown(differences).items())
    tree.close()


# Commands whose writes are known


def test_a_command_whose_writes_are_known_needs_no_walk(tree):
    (tree.root / "a").write_text("x")
    (tree.root / "big").mkdir()
    for number in range(50):
        (tree.root / "big" / str(number)).write_text("x")
    differences = tree.after_known("echo y > a; mkdir -p new/er; echo > new/er/b", "a", "new/er/b")
    assert tree.shown(differences) == {"a": (b"x", b"y\n"), "new/er/b": (None, b"\n")}
    assert tree.nodes(differences) == {"new": (None, "folder"), "new/er": (None, "folder")}
    assert tree.snapshots.walked == 0


def test_a_large_file_that_is_known_to_be_written_is_copied(tmp_path):
    tree = tree_with(tmp_path, file_bytes=10)
    (tree.root / "big").write_bytes(b"x" * 1000)
    assert tree.shown(tree.after_known("rm big", "big")) == {"big": (b"x" * 1000, None)}
    tree.close()


def test_known_paths_may_turn_into_folders_and_links(tree):
    (tree.root / "src" / "sub").mkdir(parents=True)
    (tree.root / "src" / "sub" / "a").write_text("x")
    (tree.root / "link").symlink_to("target")
    (tree.root / "target").write_text("old")
    differences = tree.after_known("cp -r src copy; echo new > link; ln -s x made", "copy", "link", "made")
    assert tree.shown(differences) == {"copy/sub/a": (None, b"x"), "target": (b"old", b"new\n")}
    assert tree.nodes(differences) == {
        "copy": (None, "folder"),
        "copy/sub": (None, "folder"),
        "made": (None, "x"),
    }
    assert differences.uncovered == ()


@pytest.mark.parametrize(
    ("command", "path", "expected"),
    [
        ("ln -sfn other link", "link", ("target", "other")),
        ("rm link", "link", ("target", None)),
        ("ln -sf other file", "file", (None, "other")),
        ("rm link; mkdir link", "link", ("target", "folder")),
        ("chmod 755 file", "file", (0o644, 0o755)),
        ("mkdir new", "new", (None, "folder")),
    ],
)
def test_symlinks_folders_and_permissions_of_known_paths_are_found(tree, command, path, expected):
    (tree.root / "link").symlink_to("target")
    (tree.root / "file").write_text("x")
    (tree.root / "file").chmod(0o644)
    differences = tree.after_known(command, path)
    assert tree.nodes(differences) == {path: expected} and differences.uncovered == ()


@pytest.mark.parametrize(("command", "node"), [("ln -s elsewhere sub", "elsewhere"), ("printf file > sub", None)])
def test_a_known_folder_may_make_way_for_a_link_or_a_file(tree, command, node):
    (tree.root / "sub").mkdir()
    (tree.root / "sub" / "a").write_text("x")
    differences = tree.after_known(f"rm -r sub; {command}", "sub")
    files = {} if node else {"sub": (None, b"file")}
    assert tree.shown(differences) == {"sub/a": (b"x", None), **files}
    assert tree.nodes(differences) == {"sub": ("folder", node)} and differences.uncovered == ()


def test_a_removed_folder_that_was_known_comes_with_its_files(tree):
    (tree.root / "sub" / "er").mkdir(parents=True)
    (tree.root / "sub" / "er" / "a").write_text("x")
    assert tree.shown(tree.after_known("rm -r sub", "sub")) == {"sub/er/a": (b"x", None)}


# Contents that git has


def many_files(tree: Tree, count: int = 250) -> None:
    for number in range(count):
        (tree.root / f"f{number}").write_text(f"content {number}\n")


def without_copies(tmp_path: Path) -> Tree:
    """A tree whose repository is too large to be copied."""
    return tree_with(tmp_path, repository_bytes=0)


def test_tracked_files_are_restored_from_git_without_being_read(tmp_path):
    tree = without_copies(tmp_path)
    many_files(tree)
    tree.commit()
    (tree.root / "untracked").write_text("mine")
    (tree.root / "f3").write_text("modified, not committed\n")
    tree.settle()
    differences = tree.after("echo new > f1; rm f2; echo > f3; rm untracked")
    assert tree.shown(differences) == {
        "f1": (b"content 1\n", b"new\n"),
        "f2": (b"content 2\n", None),
        "f3": (b"modified, not committed\n", b"\n"),
        "untracked": (b"mine", None),
    }
    assert differences.uncovered == () and tree.snapshots.contents.reads < 20
    tree.close()


def test_a_small_repository_is_copied_so_that_git_may_be_removed(tree):
    many_files(tree)
    tree.commit()
    differences = tree.after("rm -rf .git *")
    assert len(differences.changes) == 250 and differences.uncovered == ()


def test_a_large_repository_that_is_removed_is_named(tmp_path):
    tree = without_copies(tmp_path)
    many_files(tree)
    tree.commit()
    differences = tree.after("rm -rf .git f1 f2")
    assert differences.changes == ()
    assert tree.named(differences) == dict.fromkeys(("f1", "f2"), "git no longer has its content")
    tree.close()


@pytest.mark.parametrize(
    "setup",
    [
        "echo '* filter=upper' > .gitattributes; git config filter.upper.clean 'tr a-z A-Z'",
        "git config core.autocrlf true",
        "printf '*.x text\\n*\\teol=crlf\\n' > .gitattributes",
        "mkdir -p .git/info; echo 'f* ident' > .git/info/attributes",
        "printf '[attr]mine filter=upper\\n* mine\\n' > .gitattributes; git config filter.upper.clean 'tr a-z A-Z'",
    ],
)
def test_files_that_git_converts_are_copied_instead(tmp_path, setup):
    tree = without_copies(tmp_path)
    many_files(tree)
    tree.git("init", "-q")
    tree.git("config", "maintenance.auto", "false")
    tree.run(setup)
    tree.commit()
    differences = tree.after("echo new > f1")
    assert tree.shown(differences) == {"f1": (b"content 1\n", b"new\n")} and tree.snapshots.contents.reads >= 250
    tree.close()


def test_a_file_that_git_assumes_unchanged_is_not_taken_from_git(tmp_path):
    tree = without_copies(tmp_path)
    many_files(tree)
    tree.commit()
    tree.git("update-index", "--assume-unchanged", "f1")
    tree.git("update-index", "--skip-worktree", "f2")
    (tree.root / "f1").write_text("CONTENT 1\n")
    (tree.root / "f2").write_text("CONTENT 2\n")
    tree.settle()
    differences = tree.after("rm f1 f2 f3")
    assert {path: old for path, (old, _) in tree.shown(differences).items()} == {
        "f1": b"CONTENT 1\n",
        "f2": b"CONTENT 2\n",
        "f3": b"content 3\n",
    }
    tree.close()


def test_a_file_that_changed_right_after_git_read_it_is_copied(tmp_path):
    tree = without_copies(tmp_path)
    many_files(tree)
    tree.git("init", "-q")
    tree.git("config", "maintenance.auto", "false")
    tree.git("add", "-A")
    index = load_index(str(tree.root), tree.env)
    folder = tree.take().manifest.folders[str(tree.root)]
    assert index is not None
    recent = [index.object_id(f"{tree.root}/{name}", folder.stamp(n)) for n, name in enumerate(folder.names)]
    written = os.stat(tree.root / ".git" / "index").st_mtime_ns
    for number, object_id in enumerate(recent):
        assert object_id is None or folder.stamp(number).changed < written - CLOCK_TICK_NS
    tree.close()


def test_worktrees_and_nested_repositories_use_their_own_index(tmp_path):
    tree = without_copies(tmp_path)
    many_files(tree, 300)
    tree.commit()
    tree.git("worktree", "add", "-q", "inner", "-b", "other")
    tree.settle()
    subprocess.run([*GIT, "update-index", "-q", "--really-refresh"], cwd=tree.root / "inner", check=True)
    os.utime(tree.root / ".git" / "worktrees" / "inner" / "index")
    differences = tree.after("echo new > inner/f7; rm f8")
    assert tree.shown(differences) == {"inner/f7": (b"content 7\n", b"new\n"), "f8": (b"content 8\n", None)}
    assert tree.snapshots.contents.reads < 20
    tree.close()


def test_git_index_entries_are_those_that_git_lists(tmp_path):
    tree = Tree(tmp_path)
    names = ["a", "b b", "ü", "x" * 200, "deep/" * 30 + "file", "new\nline"]
    for name in names:
        path = tree.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    tree.commit()
    tree.git("update-index", "--skip-worktree", "a")  # makes it version 3
    index = load_index(str(tree.root), tree.env)
    assert index is not None
    listed = subprocess.run([*GIT, "ls-files", "-s", "-z"], cwd=tree.root, check=True, capture_output=True).stdout
    expected = {
        line.split(b"\t", 1)[1]: bytes.fromhex(line.split()[1].decode()) for line in listed.split(b"\0") if line
    }
    found = {}
    for place, folder in tree.take().manifest.folders.items():
        for number, name in enumerate(folder.names):
            relative = os.path.relpath(f"{place}/{name}", tree.root).encode()
            if object_id := index.object_id(f"{place}/{name}", folder.stamp(number)):
                found[relative] = object_id
    del expected[b"a"]
    assert found == expected
    tree.close()


@pytest.mark.parametrize("damage", [b"", b"DIRC", b"DIRC\0\0\0\2\xff\xff\xff\xff", b"nonsense" * 100])
def test_a_damaged_index_is_of_no_use_and_does_no_harm(tmp_path, damage):
    tree = without_copies(tmp_path)
    many_files(tree)
    tree.commit()
    (tree.root / ".git" / "index").write_bytes(damage)
    assert tree.shown(tree.after("rm f1")) == {"f1": (b"content 1\n", None)}
    tree.close()


# Copies on disk


def test_copies_are_verified_and_offsets_are_never_confused(tmp_path):
    copies = open_slot(tmp_path)
    offsets = [(copies.add(data), data) for data in (b"", b"one", b"x" * 3_000_000, b"two")]
    for offset, data in offsets:
        assert copies.read(offset, len(data)) == data
    with pytest.raises(ContentUnavailable):
        copies.read(offsets[1][0], 2)
    with open(tmp_path / "0" / "copies", "r+b") as file:
        file.seek(offsets[2][0] + 100)
        file.write(b"damage")
    with pytest.raises(ContentUnavailable):
        copies.read(offsets[2][0], 3_000_000)
    moved = copies.compact({offset: len(data) for offset, data in offsets})
    assert {copies.read(moved[offset], len(data)) for offset, data in offsets if offset in moved} == {
        b"",
        b"one",
        b"two",
    }
    copies.close()


def test_each_process_has_a_slot_of_its_own(tmp_path):
    first, second = open_slot(tmp_path), open_slot(tmp_path)
    assert first.folder != second.folder
    first.close()
    third = open_slot(tmp_path)
    assert third.folder == tmp_path / "0"
    second.close()
    third.close()


@pytest.mark.parametrize("damage", [None, b"", b"\xc1", b"\x92\x63\x90"])
def test_without_a_manifest_copies_are_dropped(tree, damage):
    (tree.root / "a").write_text("x")
    tree.take()
    folder = tree.snapshots.contents.copies.folder
    tree.close()
    if damage is not None:
        (folder / "manifest-1").write_bytes(damage)
    copies = open_slot(folder.parent)
    assert isinstance(copies, FileCopies) and copies.size > 0
    assert load_manifest(copies) == {} and copies.size == 0
    copies.close()


def test_a_manifest_with_any_names_is_read_as_it_was_written(tree):
    names = [b"plain", b"\xff\xfe", "ü".encode(), b"new\nline", b" ", b"-x"]
    for name in names:
        with open(os.path.join(os.fsencode(tree.root), name), "wb") as file:
            file.write(name)
    (tree.root / "sub").mkdir()
    (tree.root / "link").symlink_to("x")
    folders = tree.take().manifest.folders
    save_manifest(tree.folder, "manifest-1", folders)
    restored = read_manifest(tree.folder / "manifest-1")
    assert restored is not None and restored.keys() == folders.keys()
    for path, state in restored.items():
        for field in (
            "listing",
            "names",
            "stamps",
            "subfolders",
            "ignored",
            "fresh",
            "links",
            "mode",
            "owner",
            "others",
            "sources",
            "repository",
        ):
            assert getattr(state, field) == getattr(folders[path], field)


FILES = st.dictionaries(st.sampled_from("abcde"), st.binary(max_size=4))


@given(FILES, FILES)
@settings(max_examples=60, deadline=None)
def test_applying_the_differences_backwards_restores_any_tree(first, second):
    with tempfile.TemporaryDirectory() as folder:
        tree = Tree(Path(folder))
        _put(tree.root, first)
        before = tree.take()
        _put(tree.root, second)
        for each in tree.snapshots.compare(before).changes:
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
