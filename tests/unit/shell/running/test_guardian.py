"""The guardian, and what is left to do where there is no process table."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import wieldy
from wieldy.core.programs import own_python
from wieldy.shell.running import guardian as guardian_module
from wieldy.shell.running import reaper as reap
from wieldy.shell.running.guardian import START_CODE, Guardian, SharedGuardian
from wieldy.shell.running.guardian_process import IMPORT_DELAY_MS
from wieldy.shell.running.process_tag import TAG_VARIABLE


@pytest.fixture(autouse=True)
def guardian_of_this_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shared guardian of our own: shells of other tests in this process may still have theirs."""
    monkeypatch.setattr(guardian_module, "_shared", SharedGuardian())


def sleeper(*, stubborn: bool = False) -> subprocess.Popen[bytes]:
    command = "trap '' TERM; echo up; sleep 300; sleep 300" if stubborn else "echo up; exec sleep 300"
    process = subprocess.Popen(["bash", "-c", command], start_new_session=True, stdout=subprocess.PIPE)
    assert process.stdout
    process.stdout.readline()
    process.stdout.close()
    return process


def test_a_group_it_was_told_of_is_ended_when_we_are_gone():
    told, untold = sleeper(), sleeper()
    try:
        command = own_python(START_CODE, "a-tag-nobody-carries.", str(os.getpid()), installed=False)
        assert command
        guardian = subprocess.Popen(command, stdin=subprocess.PIPE)
        assert guardian.stdin
        guardian.stdin.write(b"+%d\n+%d\n-%d\n" % (told.pid, untold.pid, untold.pid))
        guardian.stdin.close()
        assert guardian.wait(20) == 0
        assert told.wait(5) < 0
        assert untold.poll() is None
    finally:
        untold.kill()
        untold.wait()


def test_it_does_its_work_though_our_own_files_are_gone_by_then(tmp_path):
    source = Path(next(iter(wieldy.__path__)))
    for package in ("core", "shell"):
        shutil.copytree(source / package, tmp_path / "wieldy" / package)
    shutil.copy(source / "__init__.py", tmp_path / "wieldy")
    told = sleeper()
    command = own_python(START_CODE, "a-tag-nobody-carries.", str(os.getpid()), installed=False)
    assert command
    command = [str(tmp_path) if word == str(source.parent) else word for word in command]
    assert str(tmp_path) in command
    guardian = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    assert guardian.stdin and guardian.stderr
    guardian.stdin.write(b"+%d\n" % told.pid)
    guardian.stdin.flush()
    time.sleep(IMPORT_DELAY_MS / 1000 + 1)
    shutil.rmtree(tmp_path / "wieldy")
    guardian.stdin.close()
    assert guardian.wait(20) == 0, guardian.stderr.read()
    guardian.stderr.close()
    assert told.wait(5) < 0


def test_it_is_started_once_and_gone_when_dismissed():
    guardian = Guardian("a-tag-nobody-carries.")
    guardian.ensure_running()
    first = guardian.pid
    guardian.ensure_running()
    assert first is not None
    assert guardian.pid == first
    guardian.stop()
    assert guardian.pid is None
    assert not os.path.exists(f"/proc/{first}/exe")
    guardian.stop()


def test_it_does_not_hear_a_request_to_end_from_its_first_moment_on_and_we_still_do():
    ours = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    guardian = Guardian("a-tag-nobody-carries.")
    guardian.ensure_running()
    assert guardian.pid is not None
    os.kill(guardian.pid, signal.SIGTERM)
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == ours
    time.sleep(0.3)
    assert guardian.pid is not None
    guardian.stop()


def test_it_does_not_hold_our_descriptors_or_our_folder():
    read_end, write_end = os.pipe()
    guardian = Guardian("a-tag-nobody-carries.")
    guardian.ensure_running()
    os.close(write_end)
    os.set_blocking(read_end, True)
    assert os.read(read_end, 1) == b""
    os.close(read_end)
    assert os.readlink(f"/proc/{guardian.pid}/cwd") == "/"
    guardian.stop()


def test_without_a_process_table_groups_are_ended_gently_then_by_force():
    gentle, stubborn = sleeper(), sleeper(stubborn=True)
    start = time.monotonic()
    reap._end_groups({gentle.pid, stubborn.pid}, 0.2)
    assert gentle.wait(5) == -signal.SIGTERM
    assert stubborn.wait(5) == -signal.SIGKILL
    assert time.monotonic() - start < 5


def test_one_process_guards_every_tag_and_ends_with_the_last():
    guardians = [Guardian(f"a-tag-nobody-carries-{number}.") for number in range(3)]
    for guardian in guardians:
        guardian.ensure_running()
    assert len({guardian.pid for guardian in guardians}) == 1
    process = guardians[0].pid
    guardians[0].stop()
    assert guardians[0].pid is None
    assert guardians[1].pid == process
    for guardian in guardians[1:]:
        guardian.stop()
    assert not os.path.exists(f"/proc/{process}/exe")


def test_a_guardian_that_was_killed_is_started_again_for_all_tags():
    first, second = Guardian("a-tag-nobody-carries-1."), Guardian("a-tag-nobody-carries-2.")
    first.ensure_running()
    assert first.pid is not None
    os.kill(first.pid, signal.SIGKILL)
    os.waitid(os.P_PID, first.pid, os.WEXITED | os.WNOWAIT)
    second.ensure_running()
    assert first.pid == second.pid is not None
    first.stop()
    second.stop()


def test_everything_with_any_of_the_tags_is_ended_when_we_are_gone_and_each_file_is_written(tmp_path):
    tags = ["0123456789abcdef.1.", "fedcba9876543210.1.", "1111111111111111.1."]
    sleepers = [
        subprocess.Popen(["sleep", "300"], start_new_session=True, env={TAG_VARIABLE: tag, "PATH": os.environ["PATH"]})
        for tag in tags
    ]
    files = [str(tmp_path / f"ended 100%\n{number}") for number in range(3)]
    code = """
import os, sys
from wieldy.shell.running.guardian import Guardian
guardians = [Guardian(tag, file) for tag, file in zip(sys.argv[1:4], sys.argv[4:7])]
for guardian in guardians:
    guardian.ensure_running()
guardians[2].stop()
os.kill(os.getpid(), 9)
"""
    subprocess.run([sys.executable, "-c", code, *(tag[:17] for tag in tags), *files])
    try:
        assert [sleepers[number].wait(20) for number in (0, 1)] == [-signal.SIGKILL] * 2
        assert sleepers[2].poll() is None
        deadline = time.monotonic() + 20
        while not all(os.path.exists(file) for file in files[:2]) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert [os.path.exists(file) for file in files] == [True, True, False]
    finally:
        sleepers[2].kill()
        sleepers[2].wait()


def test_a_fork_guards_for_itself():
    guardian = Guardian("a-tag-nobody-carries.")
    guardian.ensure_running()
    parents = guardian.pid
    child = os.fork()
    if child == 0:
        own = Guardian("a-tag-of-the-child.")
        own.ensure_running()
        differs = own.pid is not None and own.pid != parents
        own.stop()
        os._exit(0 if differs else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert guardian.pid == parents is not None
    guardian.stop()
