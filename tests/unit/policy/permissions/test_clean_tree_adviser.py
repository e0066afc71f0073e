from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace

from wieldy.core.git import git_status
from wieldy.policy.permissions.advisers import CleanTreeAdviser


def git(root: str, *words: str) -> None:
    name = ["-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "init.defaultBranch=main"]
    subprocess.run(["git", *name, *words], cwd=root, check=True, capture_output=True)


@pytest.fixture
def repository(root: str) -> str:
    git(root, "init")
    Path(root, "a").write_text("1")
    git(root, "add", "a")
    git(root, "commit", "-m", "first")
    return root


@pytest.mark.asyncio
@pytest.mark.parametrize("change", ["changed", "untracked", "ignored", "staged"])
async def test_a_tree_with_anything_to_lose_is_not_vouched_for(judge, called, repository: str, change: str) -> None:
    policy = judge(mode="bypassPermissions")
    adviser = CleanTreeAdviser(policy)
    reset = replace(called("Bash", "git reset --hard"), cwd=repository)
    clean = await adviser.advise(reset)
    assert policy.decide(reset, clean.opinions).behavior == "allow"
    if change == "ignored":
        Path(repository, ".git", "info", "exclude").write_text("*.log\n")
        Path(repository, "x.log").write_text("x")
    else:
        Path(repository, "b" if change == "untracked" else "a").write_text("2")
        if change == "staged":
            git(repository, "add", "a")
    dirty = await adviser.advise(reset)
    assert dirty.opinions == ()
    assert policy.decide(reset, dirty.opinions).behavior == "ask"


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "command",
    [
        "git -C ../other reset --hard",
        "cd x && git reset --hard",
        "rm -rf .git",
        "git status",
        "make",
        "git reset --hard; rm -rf ~",
    ],
)
async def test_only_a_lone_command_on_this_tree_is_looked_into(judge, called, repository: str, command: str) -> None:
    assert (await CleanTreeAdviser(judge()).advise(replace(called("Bash", command), cwd=repository))).opinions == ()


@pytest.mark.asyncio
async def test_where_git_cannot_say_nothing_is_vouched_for(judge, called, root: str) -> None:
    assert git_status(root) is None
    assert git_status(f"{root}/missing") is None
    advice = await CleanTreeAdviser(judge()).advise(replace(called("Bash", "git reset --hard"), cwd=root))
    assert advice.opinions == ()
