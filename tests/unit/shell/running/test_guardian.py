"""The guardian, and what is left to do where there is no process table."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from wieldy.shell.running import reaper as reap
from wieldy.shell.running.guardian import SOURCE, START_CODE, Guardian, python_command
from wieldy.shell.running.guardian_process import IMPORT_DELAY_MS


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
        command = python_command(START_CODE, "a-tag-nobody-carries.", str(os.getpid()))
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
    for package in ("core", "schema", "shell"):
        shutil.copytree(Path(SOURCE, "wieldy", package), tmp_path / "wieldy" / package)
    shutil.copy(Path(SOURCE, "wieldy", "__init__.py"), tmp_path / "wieldy")
    told = sleeper()
    command = [sys.executable, "-I", "-S", "-c", START_CODE, str(tmp_path), "a-tag-nobody-carries.", str(os.getpid())]
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
