"""Beside git itself: a repository whose configuration tries to run a script gets nothing run."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest
from tests.unit.shell.policy.rule_matching import analysis_of

from wieldy.shell.running.neutral_git import neutral_git_environment

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
        "diff.evil.command filter.evil.clean filter.evil.smudge pager.log gpg.program interactive.diffFilter"
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
