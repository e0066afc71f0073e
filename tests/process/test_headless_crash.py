"""Killed without warning at any moment: the session can be resumed, and nothing that was done is done again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.unit.agent.oracle import check_history

from wieldy.agent.conversation import fold
from wieldy.agent.transcript import records

TURNS = 12


def steps(first: int) -> list[list[dict[str, object]]]:
    """Turns of two commands each; every command leaves a line of its own."""
    return [
        [
            {"text": f"turn {n}"},
            {"call": "Bash", "input": {"command": f"echo a{n} >> done.txt"}},
            {"call": "Bash", "input": {"command": f"echo b{n} >> done.txt; sleep 0.05"}},
        ]
        for n in range(first, first + TURNS)
    ]


@pytest.mark.parametrize("lines", [1, 6, 13])
def test_a_killed_session_forgets_nothing_it_has_done(lines, wieldy, project, environment, tmp_path):
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"turns": [*steps(0), [{"text": "end"}]]}))
    command = [sys.executable, "-m", "wieldy", "-p", "go", f"--model=script:{script}", "--dangerously-skip-permissions"]
    running = subprocess.Popen(
        command,
        cwd=project,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    ledger = project / "done.txt"
    for _ in range(3_000):
        if running.poll() is not None or (ledger.exists() and len(ledger.read_text().splitlines()) >= lines):
            break
        time.sleep(0.005)
    os.kill(running.pid, signal.SIGKILL)
    running.wait()
    time.sleep(0.3)
    did = ledger.read_text().split()
    assert len(did) >= lines
    (folder,) = (Path(environment["WIELDY_HOME"]) / "sessions").iterdir()
    told = [message.as_dict() for message in fold(records(folder)).messages]
    check_history(told)
    asked = str(told)
    assert all(f"echo {word} " in asked for word in did), "everything that ran is in the history"
    script.write_text(json.dumps({"turns": [[{"text": "on we go"}]]}))
    done = wieldy("-p", "go on", f"--model=script:{script}", "--resume", folder.name)
    assert done.stdout == "on we go\n", done.stderr
    assert ledger.read_text().split() == did, "resuming runs nothing"
    assert len(did) == len(set(did))
