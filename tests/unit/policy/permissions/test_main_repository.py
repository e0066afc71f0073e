"""A linked work tree may read the repository it belongs to, and nothing that only claims to be it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from wieldy import Toolbox

pytestmark = pytest.mark.asyncio


def git(folder: Path, *words: str) -> None:
    identity = ("-c", "user.name=n", "-c", "user.email=e@host.example")
    env = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null"}
    subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True, env=env)


@pytest.fixture
def main(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "state"))
    repository = Path(os.path.realpath(tmp_path)) / "main"
    repository.mkdir()
    (repository / "note.txt").write_text("a note\n")
    (repository / ".env").write_text("SECRET=1\n")
    git(repository, "init", "-q")
    git(repository, "add", "note.txt")
    git(repository, "commit", "-qm", "first")
    git(repository, "worktree", "add", "-q", "../linked")
    return repository


async def test_reading_it_needs_no_question_and_writing_does(main: Path) -> None:
    async with Toolbox(main.parent / "linked", settings={}) as box:
        assert "a note" in (await box.call("Read", file_path=str(main / "note.txt"))).text
        assert "a note" in (await box.call("Bash", command=f"cat {main}/note.txt")).text
        assert (await box.call("Bash", command=f"touch {main}/made")).is_error
        assert (await box.call("Write", file_path=str(main / "made"), content="x")).is_error


async def test_rules_that_deny_something_here_deny_it_there(main: Path) -> None:
    async with Toolbox(main.parent / "linked", settings={"permissions": {"deny": ["Read(.env)"]}}) as box:
        for command in (f"cat {main}/.env", f"cat {main}/.e*", f"grep -r SECRET {main}"):
            result = await box.call("Bash", command=command)
            assert result.is_error and "SECRET=1" not in result.text
        assert (await box.call("Read", file_path=str(main / ".env"))).is_error


async def test_a_folder_that_only_claims_to_belong_to_a_repository_may_not_read_it(main: Path, tmp_path: Path) -> None:
    (claimant := tmp_path / "claimant").mkdir()
    (claimant / ".git").write_text(f"gitdir: {main}/.git/worktrees/linked\n")
    async with Toolbox(claimant, settings={}) as box:
        assert (await box.call("Read", file_path=str(main / "note.txt"))).is_error
