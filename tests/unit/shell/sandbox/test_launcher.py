"""Commands that only read are started by a process that has confined itself: what they cannot do, and what stays as it was."""

from __future__ import annotations

import errno
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio
from tests.needs import skip_untested

from wieldy import Toolbox
from wieldy.core.errors import ToolFailure
from wieldy.engine.workspace_services import open_workspace
from wieldy.shell.running.exit_notes import limit_notes
from wieldy.shell.running.launch import NO_LIMITS, Limits
from wieldy.shell.running.session import ShellSession
from wieldy.shell.running.shell import CommandResult, collect_result, stop_and_collect
from wieldy.shell.sandbox import kernel
from wieldy.shell.sandbox.launcher import LAUNCHER, Reading
from wieldy.shell.sandbox.sandbox import choose_wrapper

pytestmark = pytest.mark.skipif(
    not kernel.can_filter() or not kernel.abi(), reason="NOT TESTED: the confined launcher: no Landlock here"
)


READING = Reading()


@pytest_asyncio.fixture
async def shells(tmp_path: Path) -> AsyncIterator[ShellSession]:
    workspace = open_workspace(tmp_path, session_dir=tmp_path / "session")
    assert workspace.services.shells.can_confine(), LAUNCHER.problem
    yield workspace.services.shells
    await workspace.aclose()


async def read(
    shells: ShellSession, command: str, reading: Reading = READING, limits: Limits = NO_LIMITS
) -> CommandResult:
    shell = shells.start(command, cwd=shells.workspace.cwd, reading=reading, limits=limits)
    while await shell.next_progress(shell.started + 60):
        pass
    return await collect_result(shell)


PYTHON = f"{sys.executable} -I -S -c"
CONFINED = {
    "write a new file": "echo x > new",
    "write an old file": "echo x >> old",
    "truncate it": f"{PYTHON} 'import os; os.truncate(\"old\", 0)'",
    "truncate while reading": f"{PYTHON} 'import os; os.open(\"old\", os.O_RDONLY | os.O_TRUNC)'",
    "remove it": "rm -f old",
    "rename it": "mv old other",
    "link it": "ln old other",
    "make a folder": "mkdir folder",
    "make a pipe": "mkfifo pipe",
    "change its mode": "chmod 777 old",
    "change its time": "touch -d 2001-01-01 old",
    "write in the temp folder of all": "echo x > /tmp/wieldy-must-not-be-here",
    "connect by TCP": "echo x > /dev/tcp/127.0.0.1/$PORT",
    "send a datagram": "echo x > /dev/udp/127.0.0.1/$PORT",
    "make a Unix socket": f"{PYTHON} 'import socket; socket.socket(socket.AF_UNIX)'",
    "make a pair of datagram sockets": f"{PYTHON} 'import socket as s; s.socketpair(s.AF_UNIX, s.SOCK_DGRAM)'",
    "signal others": "kill -0 $OUTSIDE",
    "look into the memory of others": "cat /proc/$OUTSIDE/environ",
    "make a namespace": "unshare -Ur true",
    "set up io_uring": f"{PYTHON} 'import ctypes as c, sys; sys.exit(c.CDLL(None).syscall(425, 1, bytes(120)) < 0)'",
    "trace": f"{PYTHON} 'import ctypes as c, sys; sys.exit(c.CDLL(None).ptrace(0, 0, 0, 0) < 0)'",
    "limit others": f"{PYTHON} 'import os, resource; resource.prlimit(int(os.environ[\"OUTSIDE\"]), 7, (1, 1))'",
}


@pytest.mark.asyncio
@pytest.mark.parametrize("command", CONFINED.values(), ids=CONFINED.keys())
async def test_a_command_that_only_reads_cannot(shells: ShellSession, tmp_path: Path, command: str) -> None:
    old = tmp_path / "old"
    old.write_text("as it was")
    before = old.stat()
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams,
    ):
        datagrams.bind(server.getsockname())
        datagrams.settimeout(0.05)
        env = f"export PORT={server.getsockname()[1]} OUTSIDE={os.getpid()}\n"
        unconfined = shells.start(env + "kill -0 $OUTSIDE", cwd=str(tmp_path))
        assert await unconfined.exit == 0
        await unconfined.close()
        result = await read(shells, env + command)
        assert result.code not in (0, None), result.text
        assert "denied" in result.text or "not permitted" in result.text or not result.text, result.text
        with pytest.raises(TimeoutError):
            datagrams.recv(10)
    after = old.stat()
    assert old.read_text() == "as it was"
    assert (before.st_mode, before.st_mtime_ns, before.st_nlink) == (after.st_mode, after.st_mtime_ns, after.st_nlink)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["old", "session"]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("echo out; echo err >&2; exit 3", "out\nerr\n"),
        ("echo x >/dev/null && echo x | tee /dev/stderr >/dev/null", "x\n"),
        ("cat <(echo a) <<< b", "a\n"),
        ("printf '%s\\n' {1..30000} | sort -n -S 64k | tail -1", "30000\n"),
        ("cat <<X | wc -c\n" + "y" * 90_000 + "\nX", "90001\n"),
        ("f=$(mktemp) && echo kept > $f && cat $f && rm $f", "kept\n"),
        ("(sleep 60 & echo $!) | { read pid; kill $pid && echo ended; }", "ended\n"),
        ("umask; ulimit -Sn >/dev/null; id -u", None),
        ("[ -e /proc/self/fd/3 ] || echo no other descriptors", "no other descriptors\n"),
        ("ps -o stat= -p $$ | grep -o s", "s\n"),
    ],
)
async def test_what_ordinary_commands_do_is_as_outside(shells: ShellSession, command: str, text: str | None) -> None:
    outside = shells.start(command, cwd=shells.workspace.cwd)
    while await outside.next_progress(outside.started + 20):
        pass
    expected = await collect_result(outside)
    result = await read(shells, command)
    assert (result.code, result.text) == (expected.code, expected.text)
    assert text is None or result.text == text


@pytest.mark.asyncio
async def test_it_is_our_child_in_a_session_of_its_own_and_a_signal_is_its_exit_code(shells: ShellSession) -> None:
    shell = shells.start("ps -o ppid=,pid=,sid= -p $$; kill -TERM $$; sleep 9", cwd="/", reading=Reading())
    while await shell.next_progress(shell.started + 20):
        pass
    result = await collect_result(shell)
    parent, pid, session = map(int, result.text.split())
    assert (parent, pid, session) == (os.getpid(), shell.pid, shell.pid)
    assert result.code == -signal.SIGTERM


@pytest.mark.asyncio
async def test_all_that_it_started_is_ended_and_it_cannot_hide_from_that(shells: ShellSession) -> None:
    shell = shells.start("setsid env -i sleep 61 & setsid env -i sleep 62 & echo on; wait", cwd="/", reading=Reading())
    await shell.next_output()
    result = await stop_and_collect(shell, "interrupted")
    assert result.leftovers == ()
    seen = subprocess.run(["pgrep", "-f", "^sleep 6[12]$"], capture_output=True, check=False).stdout
    assert seen == b""


@pytest.mark.asyncio
async def test_commands_of_one_launcher_cannot_signal_each_other(shells: ShellSession) -> None:
    if kernel.abi() < 6:
        skip_untested("signals between reading commands: this Landlock cannot scope them")
    first = shells.start("sleep 60", cwd="/", reading=Reading())
    result = await read(shells, f"kill {first.pid}")
    assert "not permitted" in result.text
    await stop_and_collect(first, "interrupted")


@pytest.mark.asyncio
async def test_hidden_files_cannot_be_read_by_any_name_whenever_they_were_made(
    shells: ShellSession, tmp_path: Path
) -> None:
    secret, folder, later = tmp_path / "secret", tmp_path / "keys", tmp_path / "later"
    secret.write_text("hidden text")
    folder.mkdir()
    (folder / "key").write_text("hidden text")
    (tmp_path / "link").symlink_to(secret)
    (tmp_path / "open").write_text("open text")
    reading = Reading((str(secret), str(folder), str(later), "/nonexistent/place"))
    command = "cat secret link keys/key ../${PWD##*/}/secret /proc/self/cwd/secret 2>/dev/null; cat open; ls keys"
    assert (await read(shells, command, reading)).text == "open textkey\n"
    (tmp_path / "new").write_text("new text")
    later.write_text("hidden text")
    assert (await read(shells, "cat later new", reading)).text == "cat: later: Permission denied\nnew text"
    assert "hidden text" in (await read(shells, "cat later")).text


@pytest.mark.asyncio
async def test_a_folder_that_is_gone_and_a_program_that_is_not_there_are_said(shells: ShellSession) -> None:
    with pytest.raises(ToolFailure, match="the folder /nonexistent is gone"):
        shells.start("true", cwd="/nonexistent", reading=Reading())


@pytest.mark.asyncio
async def test_it_is_started_again_where_something_ended_it(shells: ShellSession) -> None:
    assert (await read(shells, "echo one")).text == "one\n"
    assert LAUNCHER._process is not None
    os.kill(LAUNCHER._process.pid, signal.SIGKILL)
    assert (await read(shells, "echo two")).text == "two\n"


@pytest.mark.asyncio
async def test_its_own_end_leaves_neither_process_nor_folder(tmp_path: Path) -> None:
    workspace = open_workspace(tmp_path, session_dir=tmp_path / "session")
    assert workspace.services.shells.can_confine()
    process, sibling, temp = LAUNCHER._process, LAUNCHER._sibling, LAUNCHER.temp
    assert process is not None and sibling is not None and os.path.isdir(temp)
    await workspace.aclose()
    if not LAUNCHER.is_ready:  # no other workspace uses it
        assert not os.path.exists(temp)
        assert process.poll() is not None
        with pytest.raises(ProcessLookupError):
            os.kill(sibling.pid, 0)


KILLED = """
import os, signal
from wieldy.shell.sandbox.launcher import LAUNCHER
assert LAUNCHER.works("test")
os.makedirs(f"{LAUNCHER.temp}/folder/inner")
os.symlink("/etc", f"{LAUNCHER.temp}/link")
open(f"{LAUNCHER.temp}/folder/file", "w").close()
print(LAUNCHER.temp, LAUNCHER._process.pid, LAUNCHER._sibling.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_death_of_its_owner_leaves_neither_process_nor_folder() -> None:
    done = subprocess.run([sys.executable, "-c", KILLED], capture_output=True, text=True, check=False)
    temp, *pids = done.stdout.split()
    deadline = time.monotonic() + 10
    while any(map(is_alive, map(int, pids))) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not any(map(is_alive, map(int, pids)))
    assert not os.path.exists(temp)


def is_alive(pid: int) -> bool:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] not in "ZX"


@pytest.mark.asyncio
async def test_what_looks_into_other_processes_still_sees_them_and_has_no_network(shells: ShellSession) -> None:
    sees = Reading(sees_processes=True)
    looks = f"readlink /proc/{os.getpid()}/exe"
    assert (await read(shells, looks)).code == 1
    assert (await read(shells, looks, sees)).text.strip() == os.path.realpath(sys.executable)
    assert (await read(shells, "echo x > /dev/udp/127.0.0.1/9", sees)).code == 1
    assert (await read(shells, f"kill -0 {os.getpid()}", sees)).code == 1
    assert (await read(shells, "chmod 777 old", sees)).code == 1


# What is there for nobody, so that these calls change nothing anywhere.
NOBODY = 99_999_999
CALLS = [
    *("shmctl(-1, 0, 0)", "semctl(-1, 0, 0)", "semctl(-1, 0, 16, 0)", "msgctl(-1, 0, 0)", "msgrcv(-1, 0, 0, 0, 0)"),
    *(
        "klogctl(8, 0, 99)",
        "klogctl(99, 0, 0)",
        f"setpriority(0, {NOBODY}, 19)",
        f"sched_setaffinity({NOBODY}, 8, b'')",
    ),
    *(f"sched_setscheduler({NOBODY}, 0, bytes(8))", f"sched_setparam({NOBODY}, bytes(8))"),
]
REFUSES = "import ctypes; libc = ctypes.CDLL(None, use_errno=True); print(libc.{}, ctypes.get_errno())"


@pytest.mark.asyncio
@pytest.mark.parametrize("call", CALLS)
async def test_what_others_share_and_how_they_are_scheduled_cannot_be_changed(shells: ShellSession, call: str) -> None:
    command = shlex.join([sys.executable, "-I", "-S", "-c", REFUSES.format(call)])
    outside = subprocess.run(command, shell=True, capture_output=True, text=True, check=True).stdout.split()
    assert outside[0] == "-1"
    inside = (await read(shells, command)).text.split()
    assert inside == ["-1", str(errno.EPERM)]


@pytest.mark.asyncio
async def test_what_shows_them_and_schedules_itself_works(shells: ShellSession) -> None:
    for command in (
        "ipcs -a",
        "ipcs -l",
        "nice -n 5 true",
        "nice -n 5 taskset -c 0 true",
        "dmesg > /dev/null || id -u",
    ):
        outside = subprocess.run(command, shell=True, capture_output=True, check=False).returncode
        assert (await read(shells, command)).code == outside, command


@pytest.mark.asyncio
@pytest.mark.parametrize("command", ["ss -tln", "lsof -n -P | head -1", "netstat -tn"])
async def test_a_program_of_the_project_does_not_take_the_place_of_one_that_may_look_into_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    folder = tmp_path / "project" / "bin"
    folder.mkdir(parents=True)
    for name in ("ss", "lsof", "netstat", "head"):
        (folder / name).write_text(f"#!/bin/sh\necho ran > {tmp_path}/pwned\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    async with Toolbox(tmp_path / "project", settings={}) as box:
        await box.call("Bash", command=command)
    assert not (tmp_path / "pwned").exists()


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "command",
    [
        "awk 'BEGIN{a=\"x\";while(1)a=a a}'",
        "seq 1000000000000000000 | tr -d '\\n' | sort -S 10G",
        "seq 1000000000000000000 | shuf",
    ],
)
async def test_memory_has_a_limit_and_the_result_names_its_setting(tmp_path: Path, command: str) -> None:
    async with Toolbox(tmp_path, settings={"bash": {"maxMemoryMb": 200}}) as box:
        result = await box.call("Bash", command=command)
    assert "a process of it reached the limit of 200 MB of memory: the user can raise `bash.maxMemoryMb`" in result.text


@pytest.mark.asyncio
async def test_processes_are_counted_also_those_of_root(shells: ShellSession) -> None:
    command = "for i in {1..1500}; do sleep 61 & done; wait"
    shell = shells.start(command, cwd="/", reading=Reading(), limits=Limits(processes=100))
    while await shell.next_progress(shell.started + 60):
        pass
    await collect_result(shell)
    assert shell.exceeded == "processes"
    assert subprocess.run(["pgrep", "-cf", "^sleep 61$"], capture_output=True, check=False).stdout.strip() == b"0"


@pytest.mark.asyncio
async def test_processes_side_by_side_share_the_limit_of_memory(shells: ShellSession) -> None:
    one = "(head -c 60000000 /dev/zero; sleep 62) | tail -c 60000000"
    # Below the limit for each process; the fall of free memory shows also while other programs end.
    shell = shells.start(" & ".join([one] * 16) + " & wait", cwd="/", reading=Reading(), limits=Limits(memory_mb=300))
    while await shell.next_progress(shell.started + 60):
        pass
    result = await collect_result(shell)
    assert shell.exceeded == "memory"
    assert "together took more than 300 MB of memory" in str(limit_notes(shell, result))
    assert subprocess.run(["pgrep", "-cf", "^sleep 62$"], capture_output=True, check=False).stdout.strip() == b"0"


@pytest.mark.asyncio
async def test_files_of_the_temp_folder_have_a_limit(shells: ShellSession) -> None:
    result = await read(shells, "f=$(mktemp); head -c 3000000 /dev/zero > $f", limits=Limits(file_mb=1))
    assert "File size limit exceeded" in result.text or "File too large" in result.text


def hostile(run: Callable[..., object], root: Path) -> None:
    """A repository with a nested one whose filter writes a file."""
    git = ("git", "-c", "user.name=n", "-c", "user.email=e@e", "-c", "init.defaultBranch=main")
    sub = root / "sub"
    sub.mkdir()
    for folder in (sub, root):
        run([*git, "init", "-q"], folder)
        (folder / "a").write_text("a")
        run([*git, "add", "."], folder)
        run([*git, "commit", "-qm", "first"], folder)
        run([*git, "tag", "v1", "-am", "v1"], folder)
    (sub / ".gitattributes").write_text("* filter=e\n")
    run(["git", "config", "filter.e.clean", f"echo ran > {root}/pwned; cat"], sub)
    (sub / "a").write_text("b")


@pytest.mark.asyncio
@pytest.mark.parametrize("command", ["git describe --dirty", "git diff-files", "git diff-index HEAD"])
async def test_a_filter_of_a_nested_repository_changes_nothing(tmp_path: Path, command: str) -> None:
    hostile(lambda argv, cwd: subprocess.run(argv, cwd=cwd, check=True, capture_output=True), tmp_path)
    subprocess.run(command.split(), cwd=tmp_path, check=False, capture_output=True)
    assert (tmp_path / "pwned").exists()  # git alone runs it
    (tmp_path / "pwned").unlink()
    os.utime(tmp_path / "sub" / "a", (1, 1))
    async with Toolbox(tmp_path, settings={}) as box:
        result = await box.call("Bash", command=command)
    assert not (tmp_path / "pwned").exists(), result.text


WITHOUT_LANDLOCK = """
import asyncio, os, struct, sys
from wieldy import Toolbox
from wieldy.shell.sandbox import kernel
refuse = [(0x20, 0, 0, 0), (0x15, 0, 1, 444), (0x06, 0, 0, 0x50000 | 38), (0x06, 0, 0, 0x7FFF0000)]
kernel.gain_no_privileges()
kernel.install_filter(b"".join(struct.pack("=HBBI", *each) for each in refuse))
async def main():
    async with Toolbox(sys.argv[1], settings={}) as box:
        for command in sys.argv[2:]:
            print((await box.call("Bash", command=command)).text)
asyncio.run(main())
"""


def without_landlock(root: Path, *commands: str, path: str) -> str:
    argv = [sys.executable, "-c", WITHOUT_LANDLOCK, str(root), *commands]
    done = subprocess.run(argv, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=True)
    return done.stdout


def test_where_nothing_confines_what_enters_nested_repositories_asks(tmp_path: Path) -> None:
    hostile(lambda argv, cwd: subprocess.run(argv, cwd=cwd, check=True, capture_output=True), tmp_path)
    programs = tmp_path.parent / f"{tmp_path.name}-bin"
    programs.mkdir()
    for name in ("git", "sleep"):
        (programs / name).symlink_to(shutil.which(name) or "")
    output = without_landlock(
        tmp_path, "git describe --tags", "git describe --dirty", "git diff-files", "sleep 0", path=str(programs)
    )
    assert output.startswith("v1\n")
    assert output.count("git may run programs that a nested repository names, and nothing confines them here") == 2
    assert not (tmp_path / "pwned").exists()


def test_where_landlock_is_missing_bubblewrap_takes_its_place(tmp_path: Path) -> None:
    if choose_wrapper(None, "bubblewrap").mechanism == "none":
        skip_untested("reading commands in bubblewrap: it does not work here")
    output = without_landlock(
        tmp_path, "readlink /proc/self/ns/net", "cat /etc/shadow | wc -l", "pwd", path=os.environ["PATH"]
    ).split()
    assert output[0].startswith("net:") and output[0] != os.readlink("/proc/self/ns/net")
    assert output[-1] == str(tmp_path)
