"""Repositories that a sandboxed command made run nothing; those that git itself makes stay as they are."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from wieldy.engine.workspace_services import open_workspace
from wieldy.policy.permissions.paths import ResolvedPath
from wieldy.policy.permissions.protected import ProtectedPaths

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


def put_aside(project: Path, command: str) -> set[str]:
    """Run what a sandboxed command could do, and return which files were put aside because of it."""

    async def run() -> list[str]:
        workspace = open_workspace(project, session_dir=project.parent / "session")
        protected = ProtectedPaths(workspace.roots)
        try:
            watch = await workspace.services.protected_files.watch(
                lambda path: protected.find(ResolvedPath((path,), True)),
                folders=[str(project)],
                sandboxed=True,
                is_held=True,
            )
            watch.hold([str(project / ".git" / "config")])
            sh(command, project)
            await watch.check()
            found = [str(Path(each.path).relative_to(project)) for each in watch.files]
            assert not any(each.problem for each in watch.files)
            assert all(os.path.lexists(each.copy) for each in watch.files if each.change != "removed")
            await watch.check()
            assert len(watch.files) == len(found)
            return found
        finally:
            await workspace.aclose()

    return set(asyncio.run(run()))


@pytest.mark.parametrize(
    "command",
    [
        "git init -q sub; git -C sub commit -q --allow-empty -m x",
        "git clone -q . copy; git -C copy config user.name me",
        "git worktree add -q tree; git -C tree commit -q --allow-empty -m x",
        "git init -q --separate-git-dir ../project/own sub; git -C sub commit -q --allow-empty -m x",
        "git init -q other; git -C other commit -q --allow-empty -m x; "
        "git -c protocol.file.allow=always submodule add -q ./other module; git restore --staged .gitmodules; rm .gitmodules",
        "git init -q --bare other.git; git clone -q other.git copy",
        "git clone -q --no-local --filter=blob:none . copy; git -C copy config commit.gpgsign false",
        "git commit -q --allow-empty -m two; git gc -q; git stash list; git checkout -q -b side",
        "mkdir -p a/b; echo x > a/b/config; mkdir hooks; echo x > hooks/pre-commit",
        "git config core.fsmonitor 'touch x'",  # by the person: a mount keeps the command from it
    ],
)
def test_what_git_itself_makes_stays(project, command):
    assert put_aside(project, command) == set()


@pytest.mark.parametrize(
    ("command", "files"),
    [
        (f"git init -q sub; printf '{HOSTILE}' >> sub/.git/config", {"sub/.git/config"}),
        ("git init -q sub; echo x > sub/.git/hooks/pre-commit", {"sub/.git/hooks/pre-commit"}),
        ("git init -q sub; git -C sub config include.path ../../evil", {"sub/.git/config"}),
        ("git init -q sub; git -C sub config core.hooksPath ..", {"sub/.git/config"}),
        ("git init -q sub; git -C sub config gc.recentObjectsHook x", {"sub/.git/config"}),
        ("git init -q sub; echo '[broken' > sub/.git/config", {"sub/.git/config"}),
        ("git init -q sub; rm sub/.git/config; mkfifo sub/.git/config", {"sub/.git/config"}),
        ("git init -q sub; cd sub/.git; rm config; ln -s nowhere config", {"sub/.git/config"}),
        (f"git init -q --bare x; printf '{HOSTILE}' >> x/config", {"x/config"}),
        ("echo ../known.git > .git/commondir", {".git/commondir"}),
        ("echo ../../known.git > inner/.git/commondir", {"inner/.git/commondir"}),
        # A repository that was there and that nobody used becomes one that is used.
        ("mkdir sub; echo gitdir: ../known.git > sub/.git; git -C known.git config core.pager x", {
            "sub/.git", "known.git/config"}),
        ("mkdir sub; ln -s ../known.git sub/.git; echo x > known.git/hooks/pre-commit", {
            "sub/.git", "known.git/hooks/pre-commit"}),
        # One that was there, changed without a change of its name or inode.
        ("echo 'x=1' >> known.git/config; printf '[core]\\npager=x\\n' >> known.git/config", {"known.git/config"}),
        (f"printf '{HOSTILE}' >> inner/.git/config", {"inner/.git/config"}),
        ("ln inner/.git/config alias; printf '[core]\\npager=x\\n' >> alias", {"inner/.git/config"}),
        ("rm inner/.git/config", {"inner/.git/config"}),
        # Another one in the place of one that was there.
        (f"mv inner/.git old; git init -q inner; printf '{HOSTILE}' >> inner/.git/config", {"inner/.git/config"}),
        # A folder that looks like a repository hides none below it.
        (f"touch HEAD; mkdir objects refs; git init -q objects/sub; printf '{HOSTILE}' >> objects/sub/.git/config", {
            "objects/sub/.git/config"}),
        (f"git init -q sub; git -C sub config core.worktree {os.path.expanduser('~')}", {"sub/.git/config"}),
        (f"mkdir -p .git/modules; git init -q --bare .git/modules/m; printf '{HOSTILE}' >> .git/modules/m/config", {
            ".git/modules/m/config"}),
    ],
)  # fmt: skip
def test_what_would_run_programs_is_put_aside(project, command, files):
    assert put_aside(project, command) == files


def test_a_repository_outside_that_a_git_file_names_is_left_alone(project):
    sh("git init -q ../main && cd ../main && git commit -q --allow-empty -m x && git config core.pager less", project)
    assert put_aside(project, "git -C ../main worktree add -q ../project/tree") == set()
