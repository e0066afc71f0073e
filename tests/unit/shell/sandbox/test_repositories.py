"""Repositories that a sandboxed command made run nothing; those that git itself makes stay as they are."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from wieldy.shell.sandbox.repositories import RepositoryWatch, find_git_files

HOSTILE = "[core]\n\tfsmonitor = touch pwned\n"


def sh(command: str, cwd: Path) -> None:
    env = {**os.environ, "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a"}
    env |= {"GIT_COMMITTER_EMAIL": "a@b", "GIT_CONFIG_GLOBAL": "/dev/null"}
    subprocess.run(["bash", "-ec", command], cwd=cwd, check=True, capture_output=True, env=env)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    project = Path(os.path.realpath(tmp_path)) / "project"
    project.mkdir()
    sh(
        "git init -q && git commit -q --allow-empty -m one && git init -q --bare known.git && git init -q inner",
        project,
    )
    return project


def renamed(project: Path, command: str) -> set[str]:
    """Run what a sandboxed command could do, and return which files were renamed because of it."""
    watch = RepositoryWatch([str(project)], dict(os.environ), held=[str(project / ".git" / "config")])
    sh(command, project)
    watch.quarantine()
    assert watch.quarantine() == []
    return {str(path.relative_to(project)) for path in project.rglob("*.untrusted*")}


@pytest.mark.parametrize(
    "command",
    [
        "git init -q sub; git -C sub commit -q --allow-empty -m x",
        "git clone -q . copy; git -C copy config user.name me",
        "git worktree add -q tree; git -C tree commit -q --allow-empty -m x",
        "git init -q --bare other.git; git clone -q other.git copy",
        "git clone -q --no-local --filter=blob:none . copy; git -C copy config commit.gpgsign false",
        "git commit -q --allow-empty -m two; git gc -q; git stash list; git checkout -q -b side",
        "mkdir -p a/b; echo x > a/b/config; mkdir hooks; echo x > hooks/pre-commit",
        "git config core.fsmonitor 'touch x'",  # by the person: a mount keeps the command from it
    ],
)
def test_what_git_itself_makes_stays(project, command):
    assert renamed(project, command) == set()


@pytest.mark.parametrize(
    ("command", "files"),
    [
        (f"git init -q sub; printf '{HOSTILE}' >> sub/.git/config", {"sub/.git/config.untrusted"}),
        ("git init -q sub; echo x > sub/.git/hooks/pre-commit", {"sub/.git/hooks.untrusted"}),
        ("git init -q sub; git -C sub config include.path ../../evil", {"sub/.git/config.untrusted"}),
        ("git init -q sub; git -C sub config core.hooksPath ..", {"sub/.git/config.untrusted"}),
        ("git init -q sub; git -C sub config gc.recentObjectsHook x", {"sub/.git/config.untrusted"}),
        ("git init -q sub; echo '[broken' > sub/.git/config", {"sub/.git/config.untrusted"}),
        ("git init -q sub; rm sub/.git/config; mkfifo sub/.git/config", {"sub/.git/config.untrusted"}),
        ("git init -q sub; cd sub/.git; rm config; ln -s nowhere config", {"sub/.git/config.untrusted"}),
        (f"git init -q --bare x; printf '{HOSTILE}' >> x/config", {"x/config.untrusted"}),
        ("echo ../known.git > .git/commondir", {".git/commondir.untrusted"}),
        ("echo ../../known.git > inner/.git/commondir", {"inner/.git/commondir.untrusted"}),
        # A repository that was there and that nobody used becomes one that is used.
        ("mkdir sub; echo gitdir: ../known.git > sub/.git; git -C known.git config core.pager x", {
            "sub/.git.untrusted", "known.git/config.untrusted"}),
        ("mkdir sub; ln -s ../known.git sub/.git; echo x > known.git/hooks/pre-commit", {"sub/.git.untrusted"}),
        # Another one in the place of one that was there.
        (f"mv inner/.git old; git init -q inner; printf '{HOSTILE}' >> inner/.git/config", {"inner/.git/config.untrusted"}),
        # A folder that looks like a repository hides none below it.
        (f"touch HEAD; mkdir objects refs; git init -q objects/sub; printf '{HOSTILE}' >> objects/sub/.git/config", {
            "objects/sub/.git/config.untrusted"}),
        (f"mkdir -p .git/modules; git init -q --bare .git/modules/m; printf '{HOSTILE}' >> .git/modules/m/config", {
            ".git/modules/m/config.untrusted"}),
    ],
)  # fmt: skip
def test_what_would_run_programs_is_renamed(project, command, files):
    assert renamed(project, command) == files


def test_a_name_that_is_taken_is_not_overwritten(project):
    command = f"git init -q sub; printf '{HOSTILE}' >> sub/.git/config; echo mine > sub/.git/config.untrusted"
    assert renamed(project, command) == {"sub/.git/config.untrusted", "sub/.git/config.untrusted-2"}
    assert (project / "sub/.git/config.untrusted").read_text() == "mine\n"


def test_a_repository_outside_that_a_git_file_names_is_left_alone(project):
    sh("git init -q ../main && cd ../main && git commit -q --allow-empty -m x && git config core.pager less", project)
    assert renamed(project, "git -C ../main worktree add -q ../project/tree") == set()


def test_outer_folders_come_first_where_there_are_many(project):
    sh("for i in $(seq 30); do mkdir -p deep/a/b/c; touch deep/a/b/c/$i; done", project)
    assert str(project / ".git" / "config") in find_git_files([str(project)], max_entries=20)
