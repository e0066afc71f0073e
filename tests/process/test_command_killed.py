"""kill -9 at any moment of a session that edits and runs commands: afterwards undo takes everything back."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

VICTIM = """
import asyncio, json, sys
from wieldy import Script, Session

async def main():
    model = Script(json.loads(sys.argv[2]))
    async with Session(sys.argv[1], model=model, mode="bypassPermissions", settings={}) as session:
        print("go", flush=True)
        await session.ask("go")

asyncio.run(main())
"""
WRITING = """import time
for n in range(40):
    open('a', 'a').write('more')
    open(f'new{n}', 'w').write('x')
    time.sleep(0.004)
"""
REMOVING = "import os; os.remove('b'); open('made', 'w').write('other')"
TURNS = [
    [{"call": "Write", "input": {"file_path": "made", "content": "made\n"}}],
    [{"call": "Read", "input": {"file_path": "a"}}],
    [{"call": "Edit", "input": {"file_path": "a", "old_string": "old", "new_string": "edited"}}],
    [{"call": "Bash", "input": {"command": f'python3 -c "{WRITING}"'}}],
    [{"call": "Bash", "input": {"command": f'python3 -c "{REMOVING}"'}}],
    [{"text": "end"}],
]

FILES = {"a": "old a\n", "b": "old b\n", "sub/c": "old c\n"}
KILLS = 12


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    for name, content in FILES.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return root


def contents(root: Path) -> dict[str, str]:
    return {str(path.relative_to(root)): path.read_text() for path in root.rglob("*") if path.is_file()}


def wieldy(root: Path, environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "wieldy", *arguments, "--root", str(root)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        cwd=root,
    )


def start(root: Path, environment: dict[str, str]) -> subprocess.Popen[str]:
    victim = subprocess.Popen(
        [sys.executable, "-c", VICTIM, str(root), json.dumps(TURNS)],
        env=environment,
        cwd=root,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert victim.stdout is not None and victim.stdout.readline() == "go\n"
    return victim


def wait_until(happened: Callable[[], bool], victim: subprocess.Popen[Any]) -> None:
    while not happened() and victim.poll() is None:
        time.sleep(0.002)


@pytest.mark.parametrize("seed", range(KILLS))
def test_undo_takes_back_a_session_that_was_killed_while_it_ran_commands(project, environment, seed):
    victim = start(project, environment)
    dice = random.Random(seed)
    wait_until((project / f"new{dice.randrange(40)}").exists if seed % 3 else (project / "made").exists, victim)
    time.sleep(dice.random() * 0.1)
    victim.kill()
    victim.communicate()
    done = wieldy(project, environment, "undo", "--all")
    listing = wieldy(project, environment, "history").stdout
    assert done.returncode == 0 or "nothing to undo" in done.stderr.lower(), f"{done.stdout}{done.stderr}\n{listing}"
    assert contents(project) == FILES, f"{done.stdout}{done.stderr}\n{listing}"


def test_what_changed_after_the_crash_is_not_taken_for_the_commands(project, environment):
    victim = start(project, environment)
    wait_until((project / "new20").exists, victim)
    victim.kill()
    victim.communicate()
    time.sleep(1.0)  # the guardian ends the command
    sessions = Path(environment["WIELDY_HOME"]) / "sessions"
    wait_for = time.monotonic() + 30
    while not list(sessions.glob("*/commands-ended")) and time.monotonic() < wait_for:
        time.sleep(0.05)
    time.sleep(0.1)
    (project / "sub" / "c").write_text("by hand\n")
    (project / "mine").write_text("mine\n")
    history = json.loads(wieldy(project, environment, "history", "--json").stdout)
    command = next(entry for entry in history if entry["kind"] == "command")
    names = {os.path.basename(file["path"]) for file in command["files"]}
    assert {"a", "new20"} <= names and not names & {"c", "mine"}
    assert [os.path.basename(each["path"]) for each in command["uncovered"]] == ["c"]
    wieldy(project, environment, "undo", "--all")
    assert contents(project) == {**FILES, "sub/c": "by hand\n", "mine": "mine\n"}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_ends_a_headless_run_in_order_with_its_changes_recorded(project, environment, number, tmp_path):
    script = tmp_path / "script.json"
    code = "import time; open('a','w').write('changed'); time.sleep(60)"
    turns = [[{"call": "Bash", "input": {"command": f'python3 -c "{code}"'}}], [{"text": "end"}]]
    script.write_text(json.dumps({"turns": turns}))
    run = subprocess.Popen(
        [sys.executable, "-m", "wieldy", "-p", "go", "--model", f"script:{script}", "--mode", "bypassPermissions"],
        env=environment,
        cwd=project,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until(lambda: (project / "a").read_text() == "changed", run)
    run.send_signal(number)
    _, errors = run.communicate(timeout=30)
    assert run.returncode == 128 + number, errors
    assert not list((Path(environment["WIELDY_HOME"]) / "journal").glob("*/snapshots/*/running-*")), (
        "it was recorded in order"
    )
    assert wieldy(project, environment, "undo").returncode == 0
    assert contents(project) == FILES


def test_a_run_that_was_started_by_nohup_ignores_the_hangup(project, environment, tmp_path):
    script = tmp_path / "script.json"
    code = "import time; open('a','w').write('changed'); time.sleep(1); open('a','w').write('to the end')"
    turns = [[{"call": "Bash", "input": {"command": f'python3 -c "{code}"'}}], [{"text": "end"}]]
    script.write_text(json.dumps({"turns": turns}))
    run = subprocess.Popen(
        [
            "nohup",
            sys.executable,
            "-m",
            "wieldy",
            "-p",
            "go",
            "--model",
            f"script:{script}",
            "--mode",
            "bypassPermissions",
        ],
        env=environment,
        cwd=project,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    wait_until(lambda: (project / "a").read_text() == "changed", run)
    run.send_signal(signal.SIGHUP)
    assert run.wait(30) == 0 and (project / "a").read_text() == "to the end"
