"""Git commands that would throw uncommitted work away, for real and with nobody there to ask: the work stays."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from wieldy import Toolbox

pytestmark = pytest.mark.asyncio


def git(root: Path, *words: str) -> None:
    name = ["-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "init.defaultBranch=main"]
    subprocess.run(["git", *name, *words], cwd=root, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))
    root = tmp_path / "work"
    (root / "dir").mkdir(parents=True)
    git(root, "init")
    for name in ("a", "dir/b"):
        (root / name).write_text("committed\n")
    git(root, "add", ".")
    git(root, "commit", "-m", "first")
    return root


@pytest_asyncio.fixture(params=["default", "bypassPermissions"])
async def box(request: pytest.FixtureRequest, repository: Path) -> AsyncIterator[Toolbox]:
    rules = {"allow": ["Bash", "Bash(git:*)", "Bash(git reset:*)"]}
    async with Toolbox(repository, mode=request.param, settings={"permissions": rules}) as made:
        yield made


def at_work(root: Path) -> dict[str, str]:
    for name, text in (("a", "changed\n"), ("dir/b", "changed\n"), ("new", "mine\n")):
        (root / name).write_text(text)
    return state(root)


def state(root: Path) -> dict[str, str]:
    return {name: (root / name).read_text() for name in ("a", "dir/b", "new") if (root / name).exists()}


@pytest.mark.parametrize(
    "command",
    [
        "git reset --hard",
        "git reset --hard HEAD",
        "git clean -fd",
        "git clean -fdx .",
        "git checkout -- dir",
        "git checkout -- .",
        "git restore .",
        "git rm -rf .",
        "git stash list; git reset --hard",
        "git fetch 2>/dev/null; git clean -fd",
        "bash -c 'git reset --hard'",
        "(cd dir && git checkout -- .)",
    ],
)
async def test_work_that_is_not_committed_is_not_thrown_away_unasked(
    box: Toolbox, repository: Path, command: str
) -> None:
    before = at_work(repository)
    result = await box.call("Bash", command=command)
    assert result.is_error and "there is no one to ask" in result.text
    assert state(repository) == before


@pytest.mark.parametrize("command", ["git reset --hard", "git clean -fd", "git checkout -- dir"])
async def test_where_nothing_would_be_lost_it_runs(box: Toolbox, repository: Path, command: str) -> None:
    assert not (await box.call("Bash", command=command)).is_error


async def test_a_rule_that_names_the_very_command_is_consent(repository: Path) -> None:
    at_work(repository)
    settings = {"permissions": {"allow": ["Bash(git reset --hard)"]}}
    async with Toolbox(repository, settings=settings) as box:
        assert not (await box.call("Bash", command="git reset --hard")).is_error
    assert state(repository)["a"] == "committed\n"
