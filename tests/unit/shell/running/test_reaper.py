"""Finding and ending processes: all of ours, however they hide, and none of anybody else's."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from wieldy.shell.running import reaper as reap
from wieldy.shell.running.reaper import Process, ProcessTree, end_tree, members, wait_for_members

pytestmark = pytest.mark.skipif(not reap.HAS_PROC, reason="needs a process table in /proc")


@pytest.fixture
def tag() -> Iterator[str]:
    tag = f"test-{secrets.token_hex(6)}."
    yield tag
    end_tree(ProcessTree(tag), grace=0.0)


def bash(command: str, tag: str = "none") -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        ["bash", "-c", command], env={**os.environ, "WIELDY_PROCESS_TAG": tag}, start_new_session=True
    )


def until(condition, seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.01)


def names(tree: ProcessTree) -> list[str]:
    return sorted(process.name for process in members(tree))


@pytest.mark.parametrize(
    "command",
    [
        "sleep 300 & exit 0",
        "setsid sleep 300 & exit 0",
        "(setsid bash -c 'setsid sleep 300 & exit 0' &) ; exit 0",
        "nohup sleep 300 >/dev/null 2>&1 & disown; exit 0",
    ],
)
def test_a_tag_finds_what_has_left_its_parent_group_and_session(tag, command):
    bash(command, tag).wait()
    until(lambda: names(ProcessTree(tag)) == ["sleep"])
    assert end_tree(ProcessTree(tag)) == []
    assert names(ProcessTree(tag)) == []


def test_offspring_with_an_emptied_environment_is_found_while_its_root_lives(tag):
    shell = bash("env -i sleep 300 & env -i setsid sleep 300 & wait", tag)
    tree = ProcessTree(tag, frozenset((shell.pid,)))
    until(lambda: names(tree).count("sleep") == 2)
    assert end_tree(tree) == []
    shell.wait()
    assert names(tree) == []


def test_offspring_that_neither_carries_the_tag_nor_heeds_the_request_is_killed_when_its_parent_is_gone(tag, tmp_path):
    stubborn = f"trap '' TERM; echo > {tmp_path}/up; sleep 300; sleep 300"
    shell = bash(f'env -i setsid bash -c "{stubborn}" & wait', tag)
    until((tmp_path / "up").exists)
    # The shell itself heeds the request: once it is gone, nothing ties the other to the tree.
    found = members(ProcessTree(tag))
    assert len(found) >= 3
    assert end_tree(ProcessTree(tag), grace=0.2) == []
    shell.wait()
    assert [process for process in found if os.path.exists(f"/proc/{process.pid}/exe")] == []


def test_what_ignores_the_request_is_killed(tag):
    shell = bash("trap '' TERM; while :; do sleep 0.05; done", tag)
    until(lambda: "sleep" in names(ProcessTree(tag)))
    assert end_tree(ProcessTree(tag, frozenset((shell.pid,))), grace=0.1) == []
    assert shell.wait() == -signal.SIGKILL


TIDY = """
import signal, sys, time
def tidy(*_):
    open(sys.argv[1] + "/said", "w").write("tidy")
    sys.exit(0)
signal.signal(signal.SIGTERM, tidy)
open(sys.argv[1] + "/up", "w").close()
while True:
    time.sleep(1)
"""


def test_a_program_that_handles_the_request_may_tidy_up(tag, tmp_path):
    environment = {**os.environ, "WIELDY_PROCESS_TAG": tag}
    program = subprocess.Popen([sys.executable, "-c", TIDY, str(tmp_path)], env=environment)
    until((tmp_path / "up").exists)
    assert end_tree(ProcessTree(tag), grace=5.0) == []
    assert program.wait() == 0
    assert (tmp_path / "said").read_text() == "tidy"


def test_a_shell_that_handles_the_request_runs_neither_its_handler_nor_the_next_command(tag, tmp_path):
    script = tmp_path / "script"
    script.write_text(
        f"#!/bin/bash\ntrap 'touch {tmp_path}/m' TERM\ntouch {tmp_path}/up\nsleep 5\ntouch {tmp_path}/m\n"
    )
    script.chmod(0o700)
    shell = bash(f"{script}; touch {tmp_path}/m", tag)
    until((tmp_path / "up").exists)
    assert end_tree(ProcessTree(tag), grace=0.5) == []
    assert shell.wait() == -signal.SIGKILL
    assert not (tmp_path / "m").exists()


def test_a_stopped_process_is_ended_too(tag):
    shell = bash("kill -STOP $$; sleep 300", tag)
    until(lambda: Path(f"/proc/{shell.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")
    assert end_tree(ProcessTree(tag)) == []
    assert shell.wait() < 0


def test_a_process_that_keeps_forking_is_ended(tag):
    shell = bash("for i in $(seq 300); do (sleep 0.02 && exec sleep 300) & done; wait", tag)
    until(lambda: len(members(ProcessTree(tag))) > 20)
    assert end_tree(ProcessTree(tag, frozenset((shell.pid,))), grace=0.0) == []
    shell.wait()
    assert names(ProcessTree(tag)) == []


def test_only_what_is_still_there_after_a_while_lasts(tag):
    short, long = bash("sleep 0.2", tag), bash("exec sleep 300", tag)
    until(lambda: names(ProcessTree(tag)).count("sleep") == 2)
    assert [process.pid for process in wait_for_members(ProcessTree(tag), 1.0)] == [long.pid]
    short.wait()
    end_tree(ProcessTree(tag))
    long.wait()


def test_nobody_is_waited_for_where_all_have_ended(tag):
    child = bash("exec sleep 0.2", tag)
    until(lambda: names(ProcessTree(tag)) == ["sleep"])
    started = time.monotonic()
    assert wait_for_members(ProcessTree(tag), 30.0) == []
    assert time.monotonic() - started < 20
    child.wait()


def test_strangers_are_left_alone(tag):
    stranger = bash("exec sleep 300", "another-tag.")
    try:
        ours = bash("exec sleep 300", tag)
        until(lambda: names(ProcessTree(tag)) == ["sleep"])
        assert end_tree(ProcessTree(tag)) == []
        ours.wait()
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_the_one_who_asks_is_never_a_member(tag):
    tree = f"ProcessTree({tag!r})"
    script = f"from wieldy.shell.running.reaper import *; print([p.pid for p in members({tree})], end_tree({tree}))"
    done = subprocess.run(
        [sys.executable, "-c", script], env={**os.environ, "WIELDY_PROCESS_TAG": tag}, capture_output=True, text=True
    )
    assert done.stdout == "[] []\n"


def test_a_number_that_now_belongs_to_another_process_is_not_signalled(tag):
    stranger = bash("exec sleep 300")
    try:
        impostor = Process(stranger.pid, 1, 1, 1, started=1, name="gone")
        assert reap._signal([impostor], (signal.SIGKILL,)) == []
        time.sleep(0.05)
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_a_system_without_process_handles_is_served_all_the_same(tag):
    def refused(pid: int) -> int:
        raise OSError(1, "Operation not permitted")

    child = bash("exec sleep 300", tag)
    until(lambda: names(ProcessTree(tag)) == ["sleep"])
    assert reap._signal(members(ProcessTree(tag)), (signal.SIGTERM,), refused) == [None]
    assert child.wait(5) == -signal.SIGTERM


def test_names_with_parentheses_and_spaces_are_read_right(tag, tmp_path):
    odd = tmp_path / "a) R 1 1 (b"
    odd.symlink_to(subprocess.run(["which", "sleep"], capture_output=True, text=True).stdout.strip())
    child = subprocess.Popen([str(odd), "300"], env={"WIELDY_PROCESS_TAG": tag})
    until(lambda: names(ProcessTree(tag)) == ["a) R 1 1 (b"])
    [found] = members(ProcessTree(tag))
    assert (found.pid, found.parent) == (child.pid, os.getpid())
    end_tree(ProcessTree(tag))
    child.wait()
