"""Programs that empty their environment, leave their session and lose their parent are found all the same."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from tests.background import start_in_background

from wieldy import Toolbox
from wieldy.core.workspace import Workspace
from wieldy.engine.workspace_services import open_workspace
from wieldy.shell.running.reaper import HAS_PROC
from wieldy.shell.running.shell import Shell, collect_result, stop_and_collect

pytestmark = pytest.mark.skipif(not HAS_PROC, reason="NOT TESTED: escaping processes: there is no /proc")

REAPS_ORPHANS = 37  # PR_GET_CHILD_SUBREAPER

DAEMON = """
import os, sys
if os.fork():
    os.wait()
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
for descriptor in range(3):
    os.close(descriptor)
os.execve("/bin/sh", ["sh", "-c", "echo $$ > pid.new; mv pid.new pid; exec sleep 300"], {})
"""
ESCAPES = [
    pytest.param(
        "env -i setsid sh -c '{ sh -c \"echo \\$\\$ > pid.new; mv pid.new pid; "
        "exec sleep 300\" & }' >/dev/null 2>&1 </dev/null",
        id="env -i setsid",
    ),
    pytest.param("python3 daemon.py", id="a daemon in python"),
    pytest.param(
        "perl -MPOSIX -e 'exit if fork; POSIX::setsid(); exit if fork; %ENV = (); close STDIN; close STDOUT; close STDERR; "
        'exec "/bin/sh", "-c", "echo \\$\\$ > pid.new; mv pid.new pid; exec sleep 300"\'; sleep 0.2',
        id="a daemon in perl",
    ),
]


class Escapee:
    """A process known by the number it wrote down, and by when it was born: it can be asked after, and cleared away."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "pid"
        self.pid = 0
        self._born = ""

    async def out(self) -> Escapee:
        """Wait until it is out: a session of its own, nothing in its environment, its parent dead, and what it will be."""
        for _ in range(1000):
            if self._file.exists():
                self.pid = int(self._file.read_text())
                _, parent, _, session, *_ = fields = stat_of(self.pid)
                alone = Path(f"/proc/{parent}/cmdline").read_bytes()[:4] not in (b"bash", b"perl", b"pyth", b"sh\0-")
                if alone and Path(f"/proc/{self.pid}/comm").read_text() == "sleep\n":
                    assert b"WIELDY" not in Path(f"/proc/{self.pid}/environ").read_bytes()
                    assert int(session) != os.getsid(0)
                    self._born = fields[19]
                    return self
            await asyncio.sleep(0.01)
        raise AssertionError("it never got out")

    @property
    def lives(self) -> bool:
        """Whether it is there and no corpse."""
        try:
            fields = stat_of(self.pid)
        except OSError:
            return False
        return fields[0] not in "ZX" and fields[19] == self._born

    def clear_away(self) -> None:
        if self._born and self.lives:
            os.kill(self.pid, signal.SIGKILL)


def stat_of(pid: int) -> list[str]:
    """What /proc says of a process, from its state on."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


@pytest.fixture
def escapee(tmp_path: Path) -> Iterator[Escapee]:
    (tmp_path / "daemon.py").write_text(DAEMON)
    escapee = Escapee(tmp_path)
    yield escapee
    escapee.clear_away()


@pytest_asyncio.fixture
async def workspace(tmp_path: Path) -> AsyncIterator[Workspace]:
    workspace = open_workspace(tmp_path, session_dir=tmp_path / "session")
    yield workspace
    await workspace.aclose()


def start(workspace: Workspace, command: str) -> Shell:
    return workspace.services.shells.start(command, cwd=workspace.cwd)


async def exited(shell: Shell) -> None:
    while await shell.next_progress(shell.started + 20):
        pass


@pytest.mark.asyncio
@pytest.mark.parametrize("command", ESCAPES)
async def test_it_is_ended_with_its_command(workspace: Workspace, escapee: Escapee, command: str) -> None:
    shell = start(workspace, f"{command}; sleep 300")
    await escapee.out()
    assert (await stop_and_collect(shell, "timed out")).leftovers == ()
    assert not escapee.lives


@pytest.mark.asyncio
@pytest.mark.parametrize("command", ESCAPES)
async def test_it_is_named_after_its_command_and_ended_with_the_session(
    workspace: Workspace, escapee: Escapee, command: str
) -> None:
    shell = start(workspace, command)
    await exited(shell)
    await escapee.out()
    assert [(process.pid, process.name) for process in (await collect_result(shell)).leftovers] == [
        (escapee.pid, "sleep")
    ]
    assert escapee.lives
    await workspace.aclose()
    assert not escapee.lives


@pytest.mark.asyncio
async def test_it_is_ended_by_a_time_out_of_the_tool(tmp_path: Path, escapee: Escapee) -> None:
    async with Toolbox(tmp_path, settings={}, mode="bypassPermissions") as box:
        call = asyncio.ensure_future(box.call("Bash", command="python3 daemon.py; sleep 300", timeout=1500))
        await escapee.out()
        assert (await call).is_error
        assert not escapee.lives


@pytest.mark.asyncio
async def test_it_is_ended_by_an_abort_of_the_call(tmp_path: Path, escapee: Escapee) -> None:
    async with Toolbox(tmp_path, settings={}, mode="bypassPermissions") as box:
        call = asyncio.ensure_future(box.call("Bash", command="python3 daemon.py; sleep 300"))
        await escapee.out()
        call.cancel()
        await asyncio.wait((call,))
        assert not escapee.lives


@pytest.mark.asyncio
async def test_it_is_ended_with_its_background_shell_and_another_shells_is_not(
    workspace: Workspace, escapee: Escapee, tmp_path: Path
) -> None:
    shells = workspace.services.background_shells
    (tmp_path / "other").mkdir()
    other = Escapee(tmp_path / "other")
    first = start_in_background(workspace, "python3 daemon.py; sleep 300")
    second = start_in_background(workspace, "cd other; python3 ../daemon.py; sleep 300")
    try:
        await escapee.out()
        await other.out()
        await shells.kill(first.id)
        assert (escapee.lives, other.lives) == (False, True)
        await shells.kill(second.id)
        assert not other.lives
    finally:
        other.clear_away()


@pytest.mark.asyncio
async def test_it_is_ended_with_a_background_shell_that_was_over_long_before(
    workspace: Workspace, escapee: Escapee
) -> None:
    shells = workspace.services.background_shells
    background = start_in_background(workspace, "python3 daemon.py")
    await escapee.out()
    await asyncio.wait((background.finished,), timeout=10)
    assert (background.status, escapee.lives) == ("exited", True)
    await shells.kill(background.id)
    assert (background.status, escapee.lives) == ("exited", False)


@pytest.mark.asyncio
async def test_it_is_found_where_its_command_was_taken_for_one_that_only_reads(
    workspace: Workspace, escapee: Escapee
) -> None:
    command = f"{ESCAPES[0].values[0]}; sleep 300"
    shell = workspace.services.shells.start(command, cwd=workspace.cwd, keeps_directory=True)
    await escapee.out()
    await stop_and_collect(shell, "interrupted")
    assert not escapee.lives


@pytest.mark.asyncio
async def test_what_the_host_started_itself_lives_on_however_alike_it_is(
    workspace: Workspace, escapee: Escapee, tmp_path: Path
) -> None:
    (tmp_path / "server").mkdir()
    served = Escapee(tmp_path / "server")
    child = subprocess.Popen(["sleep", "300"], env={}, start_new_session=True)
    shell = start(workspace, "python3 daemon.py; sleep 300")
    # Like a server that becomes a daemon: born while the command runs, no tag, no parent but the reaper of orphans.
    subprocess.run([sys.executable, str(tmp_path / "daemon.py")], cwd=tmp_path / "server", env={}, check=True)
    try:
        await escapee.out()
        await served.out()
        await stop_and_collect(shell, "interrupted")
        await workspace.aclose()
        assert (escapee.lives, served.lives, child.poll()) == (False, True, None)
    finally:
        served.clear_away()
        child.kill()
        child.wait()


@pytest.mark.asyncio
async def test_the_host_is_left_as_it_was(workspace: Workspace, escapee: Escapee) -> None:
    def about_us() -> tuple[str, int, list[str]]:
        reaps = ctypes.c_int(-1)
        ctypes.CDLL(None).prctl(REAPS_ORPHANS, ctypes.byref(reaps), 0, 0, 0)
        children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
        return Path("/proc/self/limits").read_text(), reaps.value, children

    before = about_us()
    shell = start(workspace, "python3 daemon.py; sleep 300")
    await escapee.out()
    assert stat_of(escapee.pid)[1] != str(os.getpid()), "orphans are not for us to wait for"
    await stop_and_collect(shell, "interrupted")
    await workspace.aclose()
    assert about_us() == before


WORKER = """
import asyncio, sys
from wieldy.core.workspace import Workspace
from wieldy.engine.workspace_services import open_workspace
from wieldy.shell.running.session import ShellSession

async def main():
    workspace = open_workspace(sys.argv[1], session_dir=sys.argv[1] + "/session")
    workspace.services.shells.start("python3 daemon.py; sleep 300", cwd=workspace.cwd)
    await asyncio.sleep(300)

asyncio.run(main())
"""


async def ended_soon(escapee: Escapee) -> None:
    deadline = time.monotonic() + 10
    while escapee.lives:
        assert time.monotonic() < deadline, "it lives on"
        await asyncio.sleep(0.02)


@pytest.mark.asyncio
async def test_it_does_not_outlive_a_killed_wieldy(tmp_path: Path, escapee: Escapee) -> None:
    worker = subprocess.Popen([sys.executable, "-c", WORKER, str(tmp_path)])
    try:
        await escapee.out()
    finally:
        worker.kill()
        worker.wait()
    await ended_soon(escapee)


@pytest.mark.asyncio
async def test_it_does_not_outlive_a_wieldy_that_is_ended_by_the_wieldy_around_it(
    workspace: Workspace, escapee: Escapee, tmp_path: Path
) -> None:
    (tmp_path / "worker.py").write_text(WORKER)
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "daemon.py").write_text(DAEMON)
    inner = Escapee(tmp_path / "inner")
    shell = start(workspace, f"{sys.executable} worker.py {tmp_path}/inner")
    try:
        await inner.out()
        await stop_and_collect(shell, "interrupted")
        await ended_soon(inner)
    finally:
        inner.clear_away()
