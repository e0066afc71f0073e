"""Any amount of output, any kind of bytes, any number of children: the answer comes and memory stays bounded."""

from __future__ import annotations

import asyncio
import os
import resource
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from wieldy.core.threads import in_thread
from wieldy.core.workspace import Workspace
from wieldy.engine.workspace_services import open_workspace
from wieldy.shell.running.output import SPILL_BYTES
from wieldy.shell.running.reaper import ProcessTree, members
from wieldy.shell.running.shell import CommandResult, collect_result, stop_and_collect


@pytest_asyncio.fixture
async def workspace(tmp_path) -> AsyncIterator[Workspace]:
    workspace = open_workspace(tmp_path, session_dir=tmp_path / "session")
    yield workspace
    await workspace.aclose()


async def ran(workspace: Workspace, command: str, limit: float = 60.0) -> CommandResult:
    shell = workspace.services.shells.start(command, cwd=workspace.cwd)
    while await shell.next_progress(shell.started + limit):
        pass
    return await collect_result(shell) if shell.exit.done() else await stop_and_collect(shell, "timed out")


def alive(workspace: Workspace) -> list[str]:
    return [process.name for process in members(ProcessTree(workspace.services.shells.token))]


@pytest.mark.asyncio
async def test_two_gigabytes_are_cut_kept_within_the_cap_and_take_no_memory(workspace):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = await ran(workspace, "head -c 2000000000 /dev/zero | tr '\\0' x; echo; echo the end")
    assert result.total_bytes == 2_000_000_009
    assert result.text.endswith("the end\n")
    assert len(result.text) < 31_000
    assert result.path and os.path.getsize(result.path) < SPILL_BYTES + 100
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64_000
    assert alive(workspace) == []


@pytest.mark.asyncio
async def test_endless_output_ends_with_its_time(workspace):
    result = await ran(workspace, "yes", limit=0.5)
    assert result.reason == "timed out"
    assert result.text.startswith("y\ny\n")
    assert result.total_bytes > 1_000_000
    assert alive(workspace) == []


@pytest.mark.asyncio
async def test_binary_output_becomes_text(workspace):
    result = await ran(workspace, "head -c 5000 /dev/urandom; printf '\\n\\0\\x1b[31mend\\n'")
    assert result.text.endswith("end\n")
    assert "\0" not in result.text
    assert "\x1b" not in result.text


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "command",
    [
        "sleep 30 & printf hi",
        "setsid sleep 300 & printf hi",
        "(sleep 50 &); printf hi",
        "nohup sleep 300 & printf hi",
        "setsid -f sleep 300 >/dev/null 2>&1; printf hi",
        "(trap '' TERM HUP; exec setsid sleep 300) & disown; printf hi",
    ],
)
async def test_a_child_that_holds_the_pipe_does_not_hold_the_call(workspace, command):
    start = time.monotonic()
    result = await ran(workspace, command)
    assert time.monotonic() - start < 3
    assert result.reason == "exited"
    assert result.text.endswith("hi")
    # A program that has not begun yet still has the name of the one that started it.
    assert {process.name for process in result.leftovers} <= {"sleep", "setsid", "bash", "nohup"}
    assert result.leftovers
    token = workspace.services.shells.token
    await workspace.aclose()
    assert members(ProcessTree(token)) == []


@pytest.mark.asyncio
async def test_output_of_a_process_substitution_that_comes_late_is_not_lost(workspace):
    result = await ran(workspace, "echo through > >(sleep 0.01; cat)")
    assert result.text == "through\n"


@pytest.mark.asyncio
async def test_two_hundred_children_in_the_background_all_end_with_the_session(workspace):
    result = await ran(workspace, "for i in $(seq 200); do sleep 300 & done; echo started")
    assert result.text == "started\n"
    assert len(result.leftovers) == 200
    token = workspace.services.shells.token
    await workspace.aclose()
    assert members(ProcessTree(token)) == []


@pytest.mark.asyncio
async def test_a_bounded_fork_storm_is_ended_by_its_time(workspace):
    storm = "n=0; spawn() { (sleep 0.01; exec sleep 300) & }; while [ $n -lt 150 ]; do spawn; n=$((n+1)); done; wait"
    result = await ran(workspace, storm, limit=0.3)
    assert result.reason == "timed out"
    assert result.leftovers == ()
    assert alive(workspace) == []


@pytest.mark.asyncio
async def test_a_tree_that_ignores_term_is_killed(workspace):
    start = time.monotonic()
    result = await ran(workspace, "trap '' TERM; (trap '' TERM; sleep 300 & sleep 300) & echo up; sleep 300", limit=0.5)
    assert time.monotonic() - start < 3.5
    assert result.text == "up\n"
    assert alive(workspace) == []


@pytest.mark.asyncio
async def test_a_fifo_nobody_writes_to_ends_with_its_time(workspace):
    result = await ran(workspace, "mkfifo pipe; cat pipe", limit=0.3)
    assert result.reason == "timed out"
    assert alive(workspace) == []


@pytest.mark.asyncio
async def test_no_descriptor_is_lost_over_many_commands(workspace):
    await ran(workspace, "true")
    await in_thread(os.getpid)  # a loop has one for all that comes back from threads
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        await ran(workspace, "echo x")
    assert len(os.listdir("/proc/self/fd")) == before
    await workspace.aclose()
    assert len(os.listdir("/proc/self/fd")) <= before  # the guardian stays where another workspace is open


@pytest.mark.asyncio
async def test_signs_of_life_come_while_a_command_runs_and_not_too_often(workspace):
    shell = workspace.services.shells.start("for i in $(seq 60); do echo $i; sleep 0.01; done", cwd=workspace.cwd)
    pulses = []
    while progress := await shell.next_progress(shell.started + 20):
        pulses.append(progress)
    await collect_result(shell)
    assert pulses
    assert len(pulses) <= shell.seconds / 0.25 + 1
    assert pulses[-1].bytes > 0
    assert pulses[-1].last_lines.split("\n")[-1].isdigit()


@pytest.mark.asyncio
async def test_many_commands_side_by_side_do_not_mix_their_output(workspace):
    results = await asyncio.gather(*(ran(workspace, f"for i in 1 2 3; do echo {n}; done") for n in range(20)))
    assert [result.text for result in results] == [f"{n}\n" * 3 for n in range(20)]
