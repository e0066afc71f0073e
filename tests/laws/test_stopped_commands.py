"""Law: after the result of a stopped command, nothing of that command ever runs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.background import start_in_background

from wieldy.core.threads import in_thread
from wieldy.engine.workspace_services import open_workspace
from wieldy.shell.running import reaper
from wieldy.shell.running.reaper import ProcessTree, members
from wieldy.shell.running.shell import stop_and_collect

pytestmark = pytest.mark.skipif(not reaper.HAS_PROC, reason="needs a process table in /proc")

How = Literal["timeout", "kill", "close"]

WAITS = st.sampled_from(
    (
        "sleep 600",
        "sleep 600 | cat",
        "sleep 600 & wait",
        "(sleep 600)",
        "timeout 6000 sleep 600",
        "env -i sleep 600",
        "setsid -w sleep 600",
        "while sleep 0.005; do :; done",
        "for i in 1 2 3 4; do sleep 0.01 & done; wait; sleep 600",
        "x=$(sleep 600)",
    )
)
WRAPPERS = st.sampled_from(
    (
        "{}; touch m",
        "{} || touch m; touch m",
        "({}; touch m); touch m",
        "{{ {}; touch m; }} & wait; touch m",
        "bash -c '{}; touch m'; touch m",
        "sh -c '{}; touch m'; touch m",
        "env -i setsid -w bash -c '{}; touch m'; touch m",
        "trap 'echo stopped' TERM; {}; touch m",
        "bash -c 'trap : TERM; {}; touch m'; touch m",
        "trap : EXIT; {}; touch m",
        "trap '' TERM; {}; touch m",
        "echo 1 2 | xargs -n1 bash -c '{}; touch m'; touch m",
    )
)


@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(
    commands=st.lists(st.builds(lambda wrapper, wait: wrapper.format(wait), WRAPPERS, WAITS), min_size=4, max_size=4),
    delay=st.floats(0.0, 0.15),
    how=st.sampled_from(("timeout", "kill", "close")),
)
def test_nothing_of_a_stopped_command_runs_after_its_result(commands, delay, how, tmp_path_factory):
    folders = [tmp_path_factory.mktemp("stopped") for _ in commands]
    asyncio.run(_stop_all(commands, folders, delay, how))


def test_the_rest_of_a_command_never_runs_when_its_sleep_is_stopped(tmp_path_factory):
    folders = [tmp_path_factory.mktemp("stopped") for _ in range(40)]
    # However busy the machine is, no sleep ends by itself.
    asyncio.run(_stop_all(["sleep 600; touch m"] * 40, folders, 0.06, "timeout"))


async def _stop_all(commands: list[str], folders: list[Path], delay: float, how: How) -> None:
    await asyncio.gather(
        *(_stop(command, folder, delay, how) for command, folder in zip(commands, folders, strict=True))
    )
    await asyncio.sleep(0.1)
    assert [command for command, folder in zip(commands, folders, strict=True) if (folder / "m").exists()] == []


async def _stop(command: str, folder: Path, delay: float, how: How) -> None:
    workspace = open_workspace(folder, session_dir=folder / "session")
    session = workspace.services.shells
    try:
        if how == "timeout":
            shell = session.start(command, cwd=workspace.cwd)
            await asyncio.sleep(delay)
            assert (await stop_and_collect(shell, "timed out")).leftovers == ()
        else:
            background = start_in_background(workspace, command)
            await asyncio.sleep(delay)
            if how == "kill":
                await workspace.services.background_shells.kill(background.id)
            else:
                await workspace.aclose()
        assert await in_thread(members, ProcessTree(session.token)) == []
    finally:
        await workspace.aclose()
