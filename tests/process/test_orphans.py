"""However wieldy ends, nothing it started outlives it by more than a few seconds."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from wieldy.shell.running.reaper import HAS_PROC, ProcessTree, end_tree, members

pytestmark = pytest.mark.skipif(not HAS_PROC, reason="NOT TESTED: orphan processes: there is no /proc")

SECONDS = 5.0

WORKER = """
import asyncio, os, sys
from wieldy.engine.workspace_services import open_workspace
from wieldy.shell.running.background import BackgroundShells
from wieldy.shell.running.session import ShellSession

async def main():
    workspace = open_workspace(sys.argv[1], session_dir=sys.argv[1] + "/session")
    session = workspace.services.shells
    for command in (
        "sleep 300",
        "trap '' TERM HUP INT; while :; do sleep 1; done",
        "setsid sleep 300 & setsid -f sleep 300 >/dev/null 2>&1; sleep 300",
        "nohup sleep 300 >/dev/null 2>&1 & disown; (exec 0<&- 1>&- 2>&-; exec setsid sleep 300) & exit 0",
        "yes >/dev/null",
        "env -i sleep 300 & wait",
    ):
        session.start(command, cwd=workspace.cwd)
    await asyncio.sleep(0.4)
    print(session.token, session.guardian.pid, flush=True)
    {ending}

asyncio.run(main())
"""
STAY = "await asyncio.sleep(300)"


class Worker:
    """Another interpreter that runs wieldy: its process, the mark of its shells, and its guardian."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout
        self.process = process
        self.said = process.stdout
        self.token, self.guardian = "", 0
        self.listen()

    def listen(self) -> None:
        self.token, guardian = self.said.readline().split()
        self.guardian = int(guardian)

    def end_by(self, how: signal.Signals | None) -> None:
        if how is not None:
            self.process.send_signal(how)
        self.process.wait()
        self.said.close()


def started(tmp_path: Path, ending: str, **env: str) -> Worker:
    process = subprocess.Popen(
        [sys.executable, "-c", WORKER.replace("{ending}", ending), str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, **env},
    )
    return Worker(process)


def survivors(token: str, *pids: int) -> list[str]:
    """Who still carries the mark; and of the processes known by number, who is still the same."""
    found = [f"{process.name} {process.pid}" for process in members(ProcessTree(token))]
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
        end_tree(ProcessTree(token), grace=0.0)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP], ids=lambda how: how.name)
def test_a_killed_wieldy_leaves_no_process(tmp_path, how):
    worker = started(tmp_path, STAY)
    # By number, so that those without a tag of their own are counted too.
    pids = [process.pid for process in members(ProcessTree(worker.token))]
    assert len(pids) >= 10
    worker.end_by(how)
    gone_in_time(worker.token, worker.guardian, *pids)


@pytest.mark.parametrize("ending", ["os._exit(3)", "raise RuntimeError('a bug')", "await workspace.aclose()"])
def test_a_wieldy_that_ends_by_itself_leaves_no_process(tmp_path, ending):
    worker = started(tmp_path, ending)
    worker.end_by(None)
    gone_in_time(worker.token, worker.guardian)


def test_a_fork_of_wieldy_that_lives_on_does_not_fool_the_guardian(tmp_path):
    fork = (
        "child = os.fork()\n"
        "    if child == 0:\n        import time; time.sleep(20); os._exit(0)\n"
        "    print(child, flush=True)\n    " + STAY
    )
    worker = started(tmp_path, fork)
    fork_pid = int(worker.said.readline())
    try:
        worker.end_by(signal.SIGKILL)
        gone_in_time(worker.token, worker.guardian)
    finally:
        os.kill(fork_pid, signal.SIGKILL)


def test_a_guardian_that_was_killed_is_replaced_at_the_next_command(tmp_path):
    again = (
        "os.kill(session.guardian.pid, 9); await asyncio.sleep(0.2); session.start('sleep 300', cwd=workspace.cwd)\n"
        "    print(session.token, session.guardian.pid, flush=True)\n    " + STAY
    )
    worker = started(tmp_path, again)
    worker.listen()
    worker.end_by(signal.SIGKILL)
    gone_in_time(worker.token, worker.guardian)


def test_a_wieldy_inside_a_wieldy_is_ended_with_all_it_started(tmp_path):
    outer = f"outer-{secrets.token_hex(6)}."
    worker = started(tmp_path, STAY, WIELDY_PROCESS_TAG=outer)
    assert end_tree(ProcessTree(outer)) == []
    worker.end_by(None)
    gone_in_time(worker.token, worker.guardian)
