"""However wieldy ends, nothing it started outlives it by more than a few seconds."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from wieldy.shell.reap import HAS_PROC, Tree, end, members

pytestmark = pytest.mark.skipif(not HAS_PROC, reason="ORPHANS ARE NOT TESTED HERE: it takes a process table in /proc")

SECONDS = 5.0

WORKER = """
import asyncio, os, sys
from wieldy.core.workspace import Workspace
from wieldy.shell.background import BackgroundShells
from wieldy.shell.session import ShellSession

async def main():
    workspace = Workspace(sys.argv[1], session_dir=sys.argv[1] + "/session")
    shells, session = workspace.resident(BackgroundShells), workspace.resident(ShellSession)
    for command in (
        "sleep 300",
        "trap '' TERM HUP INT; while :; do sleep 1; done",
        "setsid sleep 300 & setsid -f sleep 300 >/dev/null 2>&1; sleep 300",
        "nohup sleep 300 >/dev/null 2>&1 & disown; (exec 0<&- 1>&- 2>&-; exec setsid sleep 300) & exit 0",
        "yes >/dev/null",
        "env -i sleep 300 & wait",
    ):
        shells.start(command, cwd=workspace.cwd)
    await asyncio.sleep(0.7)
    print(session.token, session.guardian.pid, flush=True)
    {ending}

asyncio.run(main())
"""
STAY = "await asyncio.sleep(300)"


def started(tmp_path: Path, ending: str, **env: str) -> tuple[subprocess.Popen[str], str, int]:
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER.replace("{ending}", ending), str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, **env},
    )
    assert worker.stdout
    token, guardian = worker.stdout.readline().split()
    return worker, token, int(guardian)


def survivors(token: str, *pids: int) -> list[str]:
    """Who still carries the mark; and of the processes known by number, who is still the same."""
    found = [f"{process.name} {process.pid}" for process in members(Tree(token))]
    return found + [
        str(pid) for pid in pids if os.path.exists(f"/proc/{pid}/cmdline") and Path(f"/proc/{pid}/cmdline").read_bytes()
    ]


def gone_in_time(token: str, *pids: int) -> None:
    deadline = time.monotonic() + SECONDS
    try:
        while left := survivors(token, *pids):
            assert time.monotonic() < deadline, left
            time.sleep(0.05)
    finally:
        end(Tree(token), grace=0.0)


def shells_children(token: str) -> list[int]:
    """Every process of the tree by number, also those without a mark."""
    shells = {process.pid for process in members(Tree(token))}
    return sorted(shells)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP], ids=lambda how: how.name)
def test_a_killed_wieldy_leaves_no_process(tmp_path, how):
    worker, token, guardian = started(tmp_path, STAY)
    pids = shells_children(token)
    assert len(pids) >= 10
    worker.send_signal(how)
    worker.wait()
    worker.stdout.close()
    gone_in_time(token, guardian, *pids)


@pytest.mark.parametrize(
    "ending", ["os._exit(3)", "raise RuntimeError('a bug')", "os.abort()", "return", "await workspace.aclose()"]
)
def test_a_wieldy_that_ends_by_itself_leaves_no_process(tmp_path, ending):
    worker, token, guardian = started(tmp_path, ending)
    worker.wait()
    worker.stdout.close()
    gone_in_time(token, guardian)


def test_a_fork_of_wieldy_that_lives_on_does_not_fool_the_guardian(tmp_path):
    fork = (
        "child = os.fork()\n    if child == 0:\n        import time; time.sleep(20); os._exit(0)\n    print(child, flush=True)\n    "
        + STAY
    )
    worker, token, guardian = started(tmp_path, fork)
    fork_pid = int(worker.stdout.readline())
    try:
        worker.kill()
        worker.wait()
        worker.stdout.close()
        gone_in_time(token, guardian)
    finally:
        os.kill(fork_pid, signal.SIGKILL)


def test_a_guardian_that_was_killed_is_replaced_at_the_next_command(tmp_path):
    again = (
        "os.kill(session.guardian.pid, 9); await asyncio.sleep(0.2); shells.start('sleep 300', cwd=workspace.cwd)\n"
        "    print(session.token, session.guardian.pid, flush=True)\n    " + STAY
    )
    worker, token, _ = started(tmp_path, again)
    _, guardian = worker.stdout.readline().split()
    worker.kill()
    worker.wait()
    worker.stdout.close()
    gone_in_time(token, int(guardian))


def test_a_wieldy_inside_a_wieldy_is_ended_with_all_it_started(tmp_path):
    outer = "outer-mark-of-a-test."
    worker, token, guardian = started(tmp_path, STAY, WIELDY_MARK=outer)
    assert end(Tree(outer)) == []
    worker.wait()
    worker.stdout.close()
    gone_in_time(token, guardian)
