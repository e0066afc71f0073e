"""Random hostile commands: those that we call read-only are run in a sandbox, and must change, fetch and run nothing.

Programs are found only in one folder: those of our tables are the real ones, every other name leaves a mark. Another seed:
`WIELDY_FUZZ_SEED=7 pytest tests/peers/test_shell_read_only_fuzz.py`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.needs import skip_untested
from tests.peers.hostile_commands import HostileCommands

from wieldy.core.git import neutral_git_environment
from wieldy.shell.effects.analysis import analyze
from wieldy.shell.effects.programs.registry import TABLES
from wieldy.shell.sandbox.sandbox import choose_wrapper

pytestmark = pytest.mark.peer
SEED = int(os.environ.get("WIELDY_FUZZ_SEED", "0"))
# At least 2 000 together.
COUNTS = {"options": 450, "awk": 450, "sed": 300, "script": 850, "nested": 400}
MAX_TRIES = 60_000
PORT = 9418
# They wait, or their output depends on the machine; what they do is no matter of files.
SLOW = ("tail -f", "tail -F", "tail --f", "sleep")
WRAPPED = ["timeout", "env", "nice", "nohup", "bash", "sh", "command", "stdbuf", "time"]
TRAP_NAMES = """
touch rm mv cp mkdir tee ssh rsh curl wget python3 perl vi less more gpg diff3 nc scp rsync make node ruby git-upload-pack
hooks x
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with a repository whose settings name a trap, and a folder with the only programs there are."""
    home = tmp_path_factory.mktemp("fuzz")
    work, programs = home / "work", home / "programs"
    (work / "v").mkdir(parents=True)
    programs.mkdir()
    trap = programs / "trap"
    trap.write_text(f"#!/bin/sh\n: > {home}/mark-$$\ncat\n")
    trap.chmod(0o755)
    for name in {name for table in TABLES for name in table} | {*WRAPPED, "xargs", "git"}:
        if program := shutil.which(name):
            (programs / name).symlink_to(program)
    for name in TRAP_NAMES.split():
        (programs / name).unlink(missing_ok=True)
        (programs / name).symlink_to(trap)
    for name in ("a", "b", "s", "v/c", "v/d"):
        (work / name).write_text("x 1\ny 2\na b\n")
    shutil.copy(trap, work / "p")
    (home / "elsewhere").mkdir()
    (work / "link").symlink_to(home / "elsewhere")
    environment = {"HOME": str(home), "PATH": os.environ["PATH"], "GIT_CONFIG_NOSYSTEM": "1"}
    who = {f"GIT_{role}_{what}": "n@example.com" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    settings = [
        f"git config {key} {trap}" for key in ("core.fsmonitor", "diff.external", "core.pager", "filter.x.clean")
    ]
    for command in ("git init -q", "git add .", "git commit -q -m first", *settings):
        subprocess.run(command.split(), cwd=work, env={**environment, **who}, check=True, capture_output=True)
    (work / ".gitattributes").write_text("* filter=x\n")
    return home


def read_only_commands(kind: str, work: Path, home: Path) -> Iterator[str]:
    source, known = HostileCommands(SEED, PORT), set[str]()
    for _ in range(MAX_TRIES):
        command = getattr(source, kind)()
        if command in known or any(slow in command for slow in SLOW):
            continue
        known.add(command)
        if analyze(command, cwd=str(work), home=str(home)).verdict == "read_only":
            yield command


def sandboxed(home: Path, python: str) -> list[str]:
    wrapper = choose_wrapper(os.environ.get("PATH"), "bubblewrap")
    if wrapper.mechanism != "bubblewrap":
        skip_untested("bubblewrap does not work here, so hostile commands are not run")
    resolver = home.parent / "resolv.conf"
    resolver.write_text("nameserver 127.0.0.1\noptions timeout:1 attempts:1\n")
    # Where an ordinary user runs the tests, devices of its own would cost bubblewrap the capability below.
    devices = ["--dev", "/dev"] if os.getuid() == 0 else ["--dev-bind", "/dev", "/dev", "--tmpfs", "/dev/shm"]
    confined = ["--ro-bind", "/", "/", *devices, "--proc", "/proc", "--bind", str(home), str(home)]
    if os.path.exists("/etc/resolv.conf"):
        confined += ["--ro-bind", str(resolver), os.path.realpath("/etc/resolv.conf")]
    processes = ["--unshare-pid"] if wrapper.own_processes else []
    # The listener takes the ports of name servers and ssh, which are otherwise root's.
    network = ["--unshare-net", "--cap-add", "CAP_NET_BIND_SERVICE"]
    return [wrapper.program, *confined, *processes, *network, "--die-with-parent", python, "-I"]


@pytest.mark.parametrize("kind", COUNTS)
def test_commands_called_read_only_change_fetch_and_run_nothing(kind: str, place: Path) -> None:
    work, count = place / "work", COUNTS[kind]
    commands = [command for command, _ in zip(read_only_commands(kind, work, place), range(count), strict=False)]
    print(f"seed {SEED}: {len(commands)} commands of kind {kind}")
    assert len(commands) == count, f"seed {SEED}: too few commands are called read-only"
    environment = {"HOME": str(place), "PATH": str(place / "programs"), "LC_ALL": "C.UTF-8", "GIT_CONFIG_NOSYSTEM": "1"}
    job = {
        "commands": commands,
        "watched": str(place),
        "cwd": str(work),
        "bash": shutil.which("bash"),
        "env": environment | neutral_git_environment(str(work), surrounding=environment),
        "port": PORT,
        "seconds": 2,
    }
    done = subprocess.run(
        [*sandboxed(place, sys.executable), str(Path(__file__).with_name("run_watched.py"))],
        input=json.dumps(job),
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [], f"seed {SEED}"


def test_the_traps_work(place: Path) -> None:
    commands = [
        "ls",
        "touch out",
        "/usr/bin/touch out",
        f"cat < /dev/tcp/127.0.0.1/{PORT}",
        "./p",
        "tar tf nowhere.example:x",
    ]
    job = {
        "commands": commands,
        "watched": str(place),
        "cwd": str(place / "work"),
        "bash": shutil.which("bash"),
        "env": {"PATH": str(place / "programs")},
        "port": PORT,
        "seconds": 2,
    }
    done = subprocess.run(
        [*sandboxed(place, sys.executable), str(Path(__file__).with_name("run_watched.py"))],
        input=json.dumps(job),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert {command for command, _ in json.loads(done.stdout)} == {*commands} - {"ls"}, done.stdout
