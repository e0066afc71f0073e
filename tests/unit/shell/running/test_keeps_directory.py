"""A command that is certain to end where it started is not asked where it ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from wieldy import Toolbox
from wieldy.core.workspace import Workspace
from wieldy.engine.workspace_services import open_workspace
from wieldy.shell.running.shell import CommandResult, collect_result


async def stayed(workspace: Workspace, command: str) -> CommandResult:
    try:
        shell = workspace.services.shells.start(command, cwd=workspace.cwd, keeps_directory=True)
        while await shell.next_progress(shell.started + 20):
            pass
        return await collect_result(shell)
    finally:
        await workspace.aclose()


@pytest.mark.asyncio
async def test_it_runs_as_in_bash_without_a_trap_and_ends_where_it_started(tmp_path: Path) -> None:
    result = await stayed(open_workspace(tmp_path, session_dir=tmp_path / "s"), "trap -p; echo a; (exit 3)")
    assert (result.text, result.code, result.directory) == ("a\n", 3, str(tmp_path))


@pytest.mark.asyncio
@pytest.mark.parametrize("name", ["WIELDY_ENV_FILE", "CLAUDE_ENV_FILE"])
async def test_an_env_file_is_read_first_all_the_same(tmp_path: Path, name: str) -> None:
    (tmp_path / "first").write_text("export GREETING=hello\n")
    env = {name: str(tmp_path / "first"), "PATH": "/usr/bin:/bin"}
    assert (
        await stayed(open_workspace(tmp_path, session_dir=tmp_path / "s", env=env), "echo $GREETING")
    ).text == "hello\n"


@pytest.mark.asyncio
async def test_a_bash_env_of_the_users_own_still_reaches_scripts_but_not_the_command(tmp_path: Path) -> None:
    (tmp_path / "rc").write_text("echo from the rc\n")
    env = {"BASH_ENV": str(tmp_path / "rc"), "PATH": "/usr/bin:/bin"}
    result = await stayed(
        open_workspace(tmp_path, session_dir=tmp_path / "s", env=env), "echo first; bash -c 'echo second'"
    )
    assert result.text == "first\nfrom the rc\nsecond\n"


@pytest.mark.asyncio
async def test_whoever_moves_is_followed_and_whoever_only_speaks_of_it_gets_no_notice(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    async with Toolbox(tmp_path, settings={}, mode="bypassPermissions") as box:
        spoken = await box.call("Bash", command="echo cd sub")
        assert (spoken.text, spoken.data["cwd"]) == ("cd sub", str(tmp_path))
        for command in ("cd sub && ls", "cd ..; f() { cd sub; }; f", "cd ..; eval 'cd sub'", "cd ..; builtin cd sub"):
            moved = await box.call("Bash", command=command)
            assert moved.data["cwd"] == str(tmp_path / "sub"), command
