"""Beside git itself: a repository whose configuration tries to run a script gets nothing run."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.unit.shell.effects.rule_matching import analysis_of

from wieldy import Toolbox
from wieldy.core.errors import ToolFailure
from wieldy.core.git import git_status, neutral_git_environment
from wieldy.shell.effects.analysis import analyze

pytestmark = pytest.mark.peer

LOOKING = [
    "git status",
    "git status --short --branch",
    "git log -p -1",
    "git log --stat",
    "git diff",
    "git diff --stat",
    "git diff HEAD",
    "git show",
    "git blame note.txt",
    "git grep text",
    "git ls-files -m",
    "git describe --always --dirty",
    "git stash list",
    "git branch -vv",
    "git cat-file -p HEAD:note.txt",
]


def git(repository: Path, command: str, extra: dict[str, str]) -> subprocess.CompletedProcess[str]:
    isolated = {"HOME": str(repository.parent), "GIT_CONFIG_NOSYSTEM": "1", "PATH": os.environ["PATH"]}
    return subprocess.run(
        shlex.split(command),
        cwd=repository,
        env={**isolated, **extra},
        capture_output=True,
        text=True,
        timeout=30,
        stdin=subprocess.DEVNULL,
    )


@pytest.fixture
def trap(tmp_path: Path) -> Path:
    """A repository in which every setting that names a program names one that leaves a mark."""
    repository = tmp_path / "repository"
    repository.mkdir()
    script = tmp_path / "evil"
    script.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path / "mark"}\ncat 2>/dev/null\nexit 0\n')
    script.chmod(0o755)
    for command in ("git init -q", "git config user.name n", "git config user.email n@example.com"):
        git(repository, command, {})
    (repository / "note.txt").write_text("text\n")
    (repository / ".gitattributes").write_text("* diff=evil filter=evil\n")
    git(repository, "git add .", {})
    git(repository, "git commit -q -m first", {})
    (repository / "note.txt").write_text("text, changed\n")
    hooks = repository / ".git" / "hooks"
    hooks.mkdir(exist_ok=True)
    for hook in ("post-index-change", "fsmonitor-watchman", "post-checkout"):
        (hooks / hook).write_text(script.read_text())
        (hooks / hook).chmod(0o755)
    keys = (
        "core.fsmonitor core.pager core.sshCommand core.editor core.alternateRefsCommand diff.external diff.evil.textconv "
        "diff.evil.command filter.evil.clean filter.evil.smudge pager.log gpg.program interactive.diffFilter "
        "merge.evil.driver gc.recentObjectsHook"
    )
    for key in keys.split():
        git(repository, f"git config {key} {script}", {})
    git(repository, "git config filter.evil.required true", {})
    git(repository, "git config log.showSignature true", {})
    return repository


def test_the_trap_works_without_the_neutral_environment(trap: Path) -> None:
    git(trap, "git status", {})
    assert (trap.parent / "mark").exists()


@pytest.mark.parametrize("command", LOOKING)
def test_looking_runs_nothing_of_the_repositorys_choosing(trap: Path, command: str) -> None:
    assert analysis_of(command).verdict == "read_only"
    neutral = neutral_git_environment(str(trap))
    (trap.parent / "mark").unlink(missing_ok=True)
    done = git(trap, command, neutral)
    assert not (trap.parent / "mark").exists()
    assert done.returncode == 0, done.stderr


def test_git_with_a_folder_is_neutral_in_that_folder(trap: Path) -> None:
    outer = trap.parent / "outer"
    outer.mkdir()
    git(outer, "git init -q", {})
    command = f"git -C {trap} status"
    folders = analyze(command, cwd=str(outer), home=str(outer)).neutral_git_folders
    assert folders == (str(trap),)
    (trap.parent / "mark").unlink(missing_ok=True)
    done = git(outer, command, neutral_git_environment(*folders))
    assert done.returncode == 0 and not (trap.parent / "mark").exists()


def test_a_submodule_does_not_run_programs_of_its_choosing(trap: Path) -> None:
    outer = trap.parent / "outer"
    outer.mkdir()
    git(outer, "git init -q", {})
    shutil.copytree(trap, outer / "sub", symlinks=True)
    (outer / ".gitmodules").write_text('[submodule "sub"]\npath = sub\nurl = ./x\nignore = none\n')
    git(outer, "git add .gitmodules sub", {})
    (trap.parent / "mark").unlink(missing_ok=True)
    git(outer, "git status", {})
    assert (trap.parent / "mark").exists(), "the trap does not work"
    for command in ("git status", "git diff", "git describe --always --dirty"):
        (trap.parent / "mark").unlink(missing_ok=True)
        git(outer, command, neutral_git_environment(str(outer)))
        assert not (trap.parent / "mark").exists(), command
    (outer / ".gitmodules").unlink()
    git(outer, "git status", neutral_git_environment(str(outer)))
    assert not (trap.parent / "mark").exists()


def test_a_bare_repository_in_the_tree_is_not_used(trap: Path) -> None:
    bare = trap.parent / "tree" / "nested"
    shutil.copytree(trap / ".git", bare)
    (bare / "config").write_text((trap / ".git" / "config").read_text().replace("bare = false", "bare = true"))
    (trap.parent / "mark").unlink(missing_ok=True)
    done = git(bare, "git log -p -1", neutral_git_environment(str(bare)))
    assert done.returncode != 0 and not (trap.parent / "mark").exists()


@pytest.mark.parametrize(
    "command",
    [
        "git log -p --remerge-diff",
        "git show --diff-merges=remerge",
        "git show --diff-merges=r",
        "git status --ignore-submodules=none",
        "git diff --submodule=diff",
        "git ls-files --recurse-submodules",
        "git -C a -C b status",
        "git whatchanged",
        "git gc",
        "git prune -n",
        "git repack",
        "git status && npm test",
        "git add . && git diff",
    ],
)
def test_git_that_cannot_be_made_neutral_is_not_read_only(command: str) -> None:
    analysis = analysis_of(command)
    assert analysis.verdict != "read_only"
    assert not any(part.program_read_only for part in analysis.parts if part.program == "git")
    assert analysis.neutral_git_folders == ()


def test_a_redirection_does_not_keep_git_from_being_neutral() -> None:
    analysis = analysis_of("git diff > changes.patch")
    assert analysis.verdict == "known" and analysis.neutral_git_folders


@pytest.mark.asyncio
async def test_the_check_for_a_clean_tree_runs_nothing_of_the_repositorys_choosing(trap: Path) -> None:
    (trap.parent / "mark").unlink(missing_ok=True)
    git_status(str(trap))
    assert not (trap.parent / "mark").exists()


@pytest.mark.parametrize("background", [False, True])
@pytest.mark.asyncio
async def test_the_tool_makes_git_neutral_in_the_foreground_and_in_the_background(trap: Path, background: bool) -> None:
    (trap.parent / "mark").unlink(missing_ok=True)
    async with Toolbox(root=trap, settings={}) as box:
        result = await box.call("Bash", {"command": "git -C . status", "run_in_background": background})
        assert not result.is_error, result.content
        if background:
            output = await box.call("BashOutput", {"bash_id": "bash_1", "wait": 20})
            assert "note.txt" in str(output.content)
    assert not (trap.parent / "mark").exists()


def test_differences_are_still_shown(trap: Path) -> None:
    done = git(trap, "git diff", neutral_git_environment(str(trap)))
    assert "-text\n+text, changed\n" in done.stdout


def test_a_repository_without_traps_is_shown_as_ever(tmp_path: Path) -> None:
    repository = tmp_path / "plain"
    repository.mkdir()
    for command in ("git init -q", "git config user.name n", "git config user.email n@example.com"):
        git(repository, command, {})
    (repository / "f").write_text("a\n")
    git(repository, "git add f", {})
    git(repository, "git commit -q -m first", {})
    (repository / "f").write_text("b\n")
    for command in ("git status", "git diff", "git log --format=%s"):
        assert (
            git(repository, command, neutral_git_environment(str(repository))).stdout
            == git(repository, command, {}).stdout
        )


def test_settings_given_from_outside_are_kept_in_front() -> None:
    environment = neutral_git_environment(surrounding={"GIT_CONFIG_COUNT": "2", "GIT_CONFIG_KEY_0": "a.b"})
    assert "GIT_CONFIG_KEY_0" not in environment and "GIT_CONFIG_KEY_2" in environment
    assert int(environment["GIT_CONFIG_COUNT"]) == 2 + len(
        [name for name in environment if name.startswith("GIT_CONFIG_KEY")]
    )


def test_without_a_folder_nothing_is_started() -> None:
    environment = neutral_git_environment(surrounding={})
    count = int(environment["GIT_CONFIG_COUNT"])
    assert {f"GIT_CONFIG_KEY_{index}" for index in range(count)} <= set(environment)
    assert environment["GIT_OPTIONAL_LOCKS"] == "0"


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    """A repository with one commit, and a secret beside it."""
    repository = tmp_path / "plain"
    repository.mkdir()
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "note.txt").write_text("a secret\n")
    (repository / "note.txt").write_text("a note\n")
    git(repository, "git init -q", {})
    git(repository, "git add .", {})
    git(repository, "git -c user.name=n -c user.email=e commit -qm first", {})
    return repository


@pytest.mark.parametrize("place", ["secret", "."])
def test_a_work_tree_elsewhere_is_not_read(plain: Path, place: str) -> None:
    git(plain, f"git config core.worktree {plain.parent / place}", {})
    assert git(plain, "git diff", {}).stdout, "the trap does not work"
    with pytest.raises(ToolFailure, match="--work-tree="):
        neutral_git_environment(str(plain), surrounding=os.environ)


def test_the_objects_of_a_foreign_repository_are_not_read(plain: Path, tmp_path: Path) -> None:
    (other := tmp_path / "other").mkdir()
    (other / ".git").write_text(f"gitdir: {plain}/.git\n")
    with pytest.raises(ToolFailure, match="--git-dir="):
        neutral_git_environment(str(other), surrounding=os.environ)
    (linked := tmp_path / "linked").mkdir()
    (linked / ".git").symlink_to(plain / ".git")
    with pytest.raises(ToolFailure, match="--git-dir="):
        neutral_git_environment(str(linked), surrounding=os.environ)


def test_settings_included_from_elsewhere_are_not_printed(plain: Path, tmp_path: Path) -> None:
    (tmp_path / "secret" / "pypirc").write_text("[pypi]\npassword = hunter2\n")
    (plain / "own").write_text("[alias]\nx = status\n")
    git(plain, "git config include.path ../own", {})
    neutral_git_environment(str(plain), surrounding=os.environ)
    (plain / "own").write_text(f"[include]\npath = {tmp_path}/secret/pypirc\n")
    assert "hunter2" in git(plain, "git config -l", {}).stdout, "the trap does not work"
    with pytest.raises(ToolFailure, match="not part of the repository"):
        neutral_git_environment(str(plain), surrounding=os.environ)


def test_linked_work_trees_submodules_and_subfolders_are_read_as_ever(plain: Path, tmp_path: Path) -> None:
    git(plain, f"git worktree add -q {tmp_path}/linked", {})
    git(plain, f"git -c protocol.file.allow=always submodule add -q {plain} part", {})
    (plain / "folder").mkdir()
    for folder in (plain, plain / "folder", tmp_path / "linked", plain / "part"):
        assert (folder / "note.txt").exists() or folder.name == "folder"
        assert neutral_git_environment(str(folder), surrounding=os.environ)["GIT_CONFIG_COUNT"]


@pytest.mark.asyncio
async def test_bash_says_how_to_go_on_where_git_would_read_elsewhere(
    plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))
    git(plain, f"git config core.worktree {tmp_path}/secret", {})
    async with Toolbox(plain, settings={}) as box:
        for command in ("git diff", "git grep --untracked secret", "git status -s; git ls-files -o"):
            result = await box.call("Bash", command=command)
            assert result.is_error and "a secret" not in result.text
            assert "write `git --work-tree=" in result.text
