"""Programs that would wait for a person: they end by themselves, since nobody is there."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from wieldy import Toolbox

pytestmark = pytest.mark.asyncio

MILLISECONDS = 20_000


@pytest_asyncio.fixture
async def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Toolbox]:
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))
    root = tmp_path / "work"
    root.mkdir()
    name = ["-c", "user.name=t", "-c", "user.email=t@example.com"]
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    for number in range(4):
        (root / "f").write_text(f"{number}\n" * 200)
        subprocess.run(["git", "add", "f"], cwd=root, check=True)
        subprocess.run(["git", *name, "commit", "-q", "-m", f"change {number}"], cwd=root, check=True)
    async with Toolbox(root, mode="bypassPermissions", settings={}) as made:
        yield made


@pytest.mark.parametrize(
    "command",
    [
        "cat",
        "cat /dev/stdin",
        "read -r -s -p 'password: ' x",
        "select x in a b; do echo $x; done",
        "python3",
        "git log",
        "git log -p",
        "git -p diff HEAD~2",
        "git -c user.name=t -c user.email=t@x commit --allow-empty",
        "git -c user.name=t -c user.email=t@x commit --amend",
        "git -c user.name=t -c user.email=t@x rebase -i HEAD~2",
        "git -c user.name=t -c user.email=t@x rebase --continue",
        "git add -p",
        "git clone http://127.0.0.1:9/private.git",
        "rg foo",
        "sudo -v",
        "fzf",
        "less f",
        "man bash",
        "top",
    ],
)
async def test_it_ends_by_itself(box: Toolbox, command: str) -> None:
    program = command.split(maxsplit=1)[0]
    if program in {"rg", "sudo", "fzf", "less", "man", "top"} and shutil.which(program) is None:
        pytest.skip(f"NOT TESTED: {program} without a terminal: it is not installed")
    result = await box.call("Bash", command=command, timeout=MILLISECONDS)
    assert "timed out" not in result.text


async def test_a_rebase_that_stopped_goes_on_without_an_editor(box: Toolbox) -> None:
    root = Path(box.workspace.root)
    name = "git -c user.name=t -c user.email=t@x"
    stopped = await box.call("Bash", command=f"{name} rebase HEAD~1 --onto HEAD~2", timeout=MILLISECONDS)
    assert "timed out" not in stopped.text
    (root / "f").write_text("resolved\n")
    gone_on = await box.call("Bash", command=f"git add f && {name} rebase --continue", timeout=MILLISECONDS)
    assert not gone_on.is_error, gone_on.text
    assert "change 3" in (await box.call("Bash", command="git log -1 --format=%s")).text
