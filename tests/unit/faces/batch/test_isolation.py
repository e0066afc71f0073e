"""A copy for each attempt: the same files, and nothing that happens in it reaches the source."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest
from tests.needs import skip_untested
from tests.unit.faces.batch.repositories import git, make_repository

from wieldy.core.git import SourceError
from wieldy.faces.batch.isolation import SourceCache, make_copy
from wieldy.faces.batch.tasks import TaskSource
from wieldy.files.working_copies import IsolationError, remove_tree
from wieldy.shell.backends.overlay import overlay_problem


@pytest.fixture
def sources(tmp_path: Path) -> SourceCache:
    return SourceCache(tmp_path / "sources")


def folder_source(folder: Path) -> TaskSource:
    return TaskSource("root", str(folder))


def make_folder(folder: Path) -> Path:
    (folder / "sub ü").mkdir(parents=True)
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "sub ü" / "b.txt").write_text("b")
    (folder / "link").symlink_to("run.sh")
    (folder / "dangling").symlink_to("/nowhere/at/all")
    os.mkfifo(folder / "pipe")
    (folder / "sub ü").chmod(0o555)
    return folder


def test_a_plain_copy_has_the_files_links_and_modes(tmp_path, sources):
    source = make_folder(tmp_path / "project")
    copy = make_copy(folder_source(source), "copy", tmp_path / "scratch", sources)
    assert copy.way == "copy"
    assert sorted(os.listdir(copy.path)) == ["dangling", "link", "run.sh", "sub ü"]
    assert os.readlink(copy.path / "dangling") == "/nowhere/at/all"
    assert (copy.path / "run.sh").stat().st_mode & 0o777 == 0o755
    assert (copy.path / "run.sh").stat().st_mtime_ns == (source / "run.sh").stat().st_mtime_ns
    (copy.path / "run.sh").write_text("changed")
    (copy.path / "sub ü" / "new").write_text("x")
    assert (source / "run.sh").read_text() == "#!/bin/sh\n"
    assert os.listdir(source / "sub ü") == ["b.txt"]
    (source / "sub ü").chmod(0o755)


def test_a_reflink_copy_is_made_or_says_what_is_missing(tmp_path, sources):
    source = make_folder(tmp_path / "project")
    (source / "sub ü").chmod(0o755)
    try:
        copy = make_copy(folder_source(source), "reflink", tmp_path / "scratch", sources)
    except IsolationError as error:
        assert "btrfs, XFS and APFS have" in str(error)
        assert not (tmp_path / "scratch" / "copy").exists()
    else:
        assert (copy.path / "sub ü" / "b.txt").read_text() == "b"


def test_auto_takes_a_cheap_copy_of_a_small_folder_never_the_folder_itself(tmp_path, sources):
    source = make_repository(tmp_path / "project")
    (source / "untracked").write_text("x")
    copy = make_copy(folder_source(source), "auto", tmp_path / "scratch", sources)
    assert copy.way in ("reflink", "copy")
    assert (copy.path / "untracked").exists()
    assert copy.path != source


def test_a_worktree_is_a_checkout_without_branches_and_remotes(tmp_path, sources):
    source = make_repository(tmp_path / "project")
    first = git(source, "rev-parse", "HEAD")
    (source / "a.txt").write_text("two\n")
    git(source, "commit", "-qam", "the future")
    git(source, "tag", "later")
    git(source, "remote", "add", "origin", "/somewhere")
    copy = make_copy(TaskSource("git", str(source), first), "worktree", tmp_path / "scratch", sources)
    assert (copy.way, copy.note) == ("worktree", "")
    assert (copy.path / "a.txt").read_text() == "one\n"
    assert git(copy.path, "log", "--all", "--format=%s") == "one"
    assert git(copy.path, "for-each-ref") == git(copy.path, "remote") == git(copy.path, "status", "--short") == ""
    (copy.path / "a.txt").write_text("mine\n")
    git(copy.path, "commit", "-qam", "mine")
    git(copy.path, "branch", "mine")
    assert "mine" not in git(source, "log", "--all", "--format=%s")
    assert git(source, "status", "--short") == ""


def test_a_worktree_of_a_folder_says_that_uncommitted_files_are_missing(tmp_path, sources):
    source = make_repository(tmp_path / "project")
    (source / "untracked").write_text("x")
    copy = make_copy(folder_source(source), "worktree", tmp_path / "scratch", sources)
    assert "untracked files" in copy.note
    assert not (copy.path / "untracked").exists()


def test_a_folder_without_git_has_no_worktree(tmp_path, sources):
    (tmp_path / "project").mkdir()
    with pytest.raises(IsolationError, match="not a git repository"):
        make_copy(folder_source(tmp_path / "project"), "worktree", tmp_path / "scratch", sources)


def test_the_copy_of_a_linked_worktree_has_a_repository_of_its_own(tmp_path, sources):
    main = make_repository(tmp_path / "main")
    git(main, "worktree", "add", "-q", str(tmp_path / "linked"))
    copy = make_copy(folder_source(tmp_path / "linked"), "copy", tmp_path / "scratch", sources)
    assert git(copy.path, "status", "--short") == ""
    (copy.path / "a.txt").write_text("mine\n")
    git(copy.path, "commit", "-qam", "mine")
    assert git(main, "log", "--all", "--format=%s") == "one"
    assert git(tmp_path / "linked", "status", "--short") == ""


def test_a_remote_repository_is_cloned_once_and_its_commits_are_found(tmp_path, sources):
    origin = make_repository(tmp_path / "origin")
    url = f"file://{origin}"
    first = git(origin, "rev-parse", "HEAD")
    copies = [make_copy(TaskSource("git", url, first), "auto", tmp_path / str(n), sources) for n in range(2)]
    assert [copy.way for copy in copies] == ["worktree", "worktree"]
    assert len(list((tmp_path / "sources").glob("*.git"))) == 1
    with pytest.raises(SourceError):
        make_copy(TaskSource("git", url, "0" * 40), "auto", tmp_path / "other", sources)


def need_safe_tar() -> None:
    if not hasattr(tarfile, "data_filter"):
        skip_untested("tar files: this Python cannot extract them safely")


@pytest.mark.parametrize("way", ["copy", "auto"])
@pytest.mark.parametrize("kind", ["tar.gz", "zip"])
def test_an_archive_is_extracted_without_its_top_folder(tmp_path, sources, kind, way):
    content = tmp_path / "content" / "project-1.0"
    content.mkdir(parents=True)
    (content / "run.sh").write_text("x")
    (content / "run.sh").chmod(0o755)
    archive = tmp_path / f"a.{kind}"
    if kind == "zip":
        with zipfile.ZipFile(archive, "w") as zipped:
            zipped.write(content / "run.sh", "project-1.0/run.sh")
    else:
        need_safe_tar()
        with tarfile.open(archive, "w:gz") as tar:
            tar.add(content, "project-1.0")
    copy = make_copy(TaskSource("archive", str(archive)), way, tmp_path / "scratch", sources)
    assert os.listdir(copy.path) == ["run.sh"]
    assert (copy.path / "run.sh").stat().st_mode & 0o777 == 0o755


def test_an_archive_cannot_write_outside_its_folder(tmp_path, sources):
    need_safe_tar()
    archive = tmp_path / "a.tar"
    (tmp_path / "x").write_text("x")
    with tarfile.open(archive, "w") as tar:
        tar.add(tmp_path / "x", "../../escaped")
    with pytest.raises(SourceError, match="cannot be extracted"):
        make_copy(TaskSource("archive", str(archive)), "copy", tmp_path / "scratch", sources)
    assert not list(tmp_path.rglob("escaped"))


def test_none_is_the_live_tree_and_only_for_a_folder(tmp_path, sources):
    (tmp_path / "project").mkdir()
    copy = make_copy(folder_source(tmp_path / "project"), "none", tmp_path / "scratch", sources)
    assert (copy.way, copy.path) == ("none", tmp_path / "project")
    with pytest.raises(IsolationError, match="`git` has none"):
        make_copy(TaskSource("git", str(tmp_path), "HEAD"), "none", tmp_path / "scratch", sources)


def test_an_overlay_is_seen_by_a_whole_process_and_leaves_the_source_alone(tmp_path, sources):
    if (problem := overlay_problem()) is not None:
        skip_untested(f"overlay: {problem}")
    source = make_folder(tmp_path / "a, project: with ünusual name")
    (source / "sub ü").chmod(0o755)
    copy = make_copy(folder_source(source), "overlay", tmp_path / "scr, a:tch", sources)
    assert copy.overlay is not None
    script = 'cd "$1" && rm run.sh && echo new > "sub ü/c.txt" && echo more >> "sub ü/b.txt" && id -u && ls'
    command = copy.overlay.command(["/bin/sh", "-c", script, "sh", str(copy.path)])
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split("\n")[0] == str(os.getuid())
    assert "run.sh" not in done.stdout
    assert os.listdir(copy.path) == []
    assert (source / "run.sh").exists()
    frozen = sources.frozen_tree(folder_source(source))
    assert (frozen / "sub ü" / "b.txt").read_text() == "b"
    assert (tmp_path / "scr, a:tch" / "upper" / "sub ü" / "b.txt").read_text() == "bmore\n"
    remove_tree(tmp_path / "scr, a:tch")
    assert not (tmp_path / "scr, a:tch").exists()


def test_a_tree_with_folders_that_its_owner_may_not_enter_is_removed(tmp_path):
    (tmp_path / "tree/closed/deep").mkdir(parents=True)
    (tmp_path / "tree/closed/deep/file").write_text("x")
    (tmp_path / "tree/link").symlink_to(tmp_path)
    for folder in ("tree/closed/deep", "tree/closed", "tree"):
        (tmp_path / folder).chmod(0)
    remove_tree(tmp_path / "tree")
    assert list(tmp_path.iterdir()) == []


def test_a_missing_program_is_named(monkeypatch):
    overlay_problem.cache_clear()
    monkeypatch.setenv("PATH", "/nowhere")
    assert shutil.which("unshare") is None
    try:
        assert overlay_problem() == "the program `unshare` (util-linux) is missing"
    finally:
        overlay_problem.cache_clear()
