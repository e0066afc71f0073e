"""Homes that cannot be used and disks that are full: one plain line, and whatever needs neither still works."""

from __future__ import annotations

import json
import os
import pwd
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from tests.process.inline_terminal import InlineTerminal

from wieldy.core.state_dirs import config_home, skill_homes, state_home

TOO_LONG = "/" + "x" * 300


@pytest.fixture
def no_home() -> dict[str, str]:
    return {"HOME": "/dev/null", "WIELDY_HOME": "/dev/null/state"}


@pytest.mark.parametrize("args", [("sessions",), ("history",), ("-p", "hi", "--model", "script:s"), ("tools",)])
def test_a_home_that_cannot_be_looked_into_is_told_in_plain_words(wieldy, project, args):
    (project / "s").write_text('{"turns": [[{"text": "hello"}]]}')
    done = wieldy(*args, env={"HOME": TOO_LONG, "WIELDY_HOME": f"{TOO_LONG}/state"})
    assert "Errno" not in done.stderr
    assert done.returncode in (0, 1)
    assert done.returncode == 0 or f"{TOO_LONG}/state" in done.stderr


@pytest.mark.parametrize("home", ["person", ".", "", "~"])
def test_a_home_that_is_no_absolute_path_is_replaced_and_named(wieldy, home):
    done = wieldy("call", "Bash", "command=cd && pwd", "--mode", "bypassPermissions", env={"HOME": home})
    mine = pwd.getpwuid(os.getuid()).pw_dir
    assert done.stderr == f"wieldy: HOME is `{home}`, which is no absolute path; {mine} is used instead\n"
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, mine)


@pytest.mark.parametrize("home", ["person", ".", "", "~"])
def test_relative_folders_of_the_environment_are_ignored(home):
    env = {"HOME": home, "XDG_STATE_HOME": "state", "XDG_CONFIG_HOME": "./config"}
    mine = Path(pwd.getpwuid(os.getuid()).pw_dir)
    assert state_home(env) == mine / ".local/state/wieldy"
    assert config_home(env) == mine / ".config/wieldy"
    assert skill_homes(env)[1] == mine / ".claude/skills"


def test_reading_needs_no_home(wieldy, no_home):
    done = wieldy("call", "Read", "file_path=b.txt", env=no_home)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("args", [("sessions",), ("permissions", "allow", "Bash"), ("-p", "hi", "--model", "script:s")])
def test_what_needs_one_names_the_place_in_plain_words(wieldy, no_home, project, args):
    (project / "s").write_text('{"turns": [[{"text": "hello"}]]}')
    done = wieldy(*args, env=no_home)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert no_home["WIELDY_HOME"] in done.stderr
    assert "Errno" not in done.stderr


def test_without_a_transcript_a_run_needs_no_home(wieldy, no_home, project):
    (project / "s").write_text('{"turns": [[{"text": "hello"}]]}')
    asked = ("-p", "hi", "--model", "script:s")
    assert "--no-session-persistence" in wieldy(*asked, env=no_home).stderr
    done = wieldy(*asked, "--no-session-persistence", env=no_home)
    assert (done.returncode, done.stdout) == (0, "hello\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("args", [("tools",), ("call", "Read", "file_path=b.txt"), ("--help",), ("--version",)])
def test_output_that_cannot_be_written_is_told_in_plain_words(project, environment, args):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "wieldy", *args],
            cwd=project,
            env=environment,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
    assert (done.returncode, done.stderr) == (1, "wieldy: stdout: No space left on device\n")


def test_names_beyond_ascii_work_where_python_would_take_them_for_ascii(project, wieldy):
    ascii_only = {"LC_ALL": "POSIX", "PYTHONUTF8": "0"}
    done = wieldy("call", "Write", "file_path=grün.txt", "content=ä", "--mode", "acceptEdits", env=ascii_only)
    assert done.returncode == 0, done.stderr
    assert (project / "grün.txt").read_text(encoding="utf-8") == "ä"


def test_modules_of_the_project_are_not_taken_for_those_of_python(project, wieldy):
    for name in ("queue", "json", "asyncio", "shlex", "msgspec"):
        (project / f"{name}.py").write_text("raise SystemExit('a file of the project was run')")
    (project / "s").write_text(
        '{"turns": [[{"call": "Bash", "input": {"command": "cd . && echo here"}}], [{"text": "hello"}]]}'
    )
    done = wieldy("-p", "hi", "--model", "script:s")
    assert (done.returncode, done.stdout, done.stderr) == (0, "hello\n", "")


@pytest.mark.parametrize(("args", "code"), [(("--version",), 0), (("tools",), 1)])
def test_a_folder_that_is_gone_is_told_in_one_line(tmp_path, environment, args, code):
    gone = tmp_path / "gone"
    gone.mkdir()
    command = 'cd "$1" && rmdir "$1" && shift && exec "$0" -m wieldy "$@"'
    done = subprocess.run(
        ["sh", "-c", command, sys.executable, str(gone), *args],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == code
    assert len(done.stderr.splitlines()) == (1 if code else 0), done.stderr
    assert "Traceback" not in done.stderr


def test_a_question_is_asked_in_a_folder_that_is_gone(tmp_path, project, environment):
    gone = tmp_path / "gone"
    gone.mkdir()
    command = 'cd "$1" && rmdir "$1" && shift && exec "$0" -m wieldy "$@"'
    argv = ["call", "Write", f"file_path={project}/made", "content=x", "--root", str(project)]
    terminal = InlineTerminal([str(gone), *argv], tmp_path, environment, program=["sh", "-c", command, sys.executable])
    try:
        terminal.wait_for("[n] no")
        assert "Write made?" in terminal.rows()
        terminal.answer("y\r")
        assert terminal.wait_for_exit() == 0
    finally:
        terminal.close()
    assert (project / "made").read_text() == "x"


def test_a_transcript_thread_that_cannot_start_is_told_in_one_line_and_nothing_hangs(project, environment):
    (project / "s").write_text('{"turns": [[{"text": "hello"}]]}')
    program = (
        "import resource, sys, threading, wieldy.cli, wieldy.agent.session\n"
        "used = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "threading.stack_size(1 << 30)\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 29), resource.RLIM_INFINITY))\n"
        "sys.exit(wieldy.cli.run(sys.argv[1:]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "-p", "hi", "--model", "script:s"],
        cwd=project,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert "thread" in done.stderr
    assert "cannot be resumed" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_state_folder_that_fills_up_while_a_session_runs_is_told_in_one_line(wieldy, project):
    turns = [[{"text": "x" * 500}, {"call": "Glob", "input": {"pattern": f"{n}*"}}] for n in range(40)]
    (project / "s").write_text(json.dumps({"turns": [*turns, [{"text": "done"}]]}))
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, resource.RLIM_INFINITY))  # noqa: E731
    # Under this limit Python would leave truncated .pyc files of ours behind, for every later process.
    done = wieldy("-p", "hi", "--model", "script:s", preexec_fn=limit, env={"PYTHONDONTWRITEBYTECODE": "1"})
    assert done.returncode == 1
    assert "cannot be resumed" in done.stderr
    assert done.stderr.count("\n") == 1
