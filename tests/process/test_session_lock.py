"""Two processes and one session: the second is told who has it and how to go on, and nothing is mixed up."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from wieldy.core.session_files import TRANSCRIPT_NAME


def test_a_session_that_is_open_elsewhere_is_not_resumed_but_can_be_copied(wieldy, project, environment, tmp_path):
    busy, short = tmp_path / "busy.json", tmp_path / "short.json"
    busy.write_text(json.dumps({"turns": [[{"text": "thinking"}, {"pause": 50}]]}))
    short.write_text(json.dumps({"turns": [[{"text": "here"}]]}))
    holder = subprocess.Popen(
        [sys.executable, "-m", "wieldy", "-p", "go", f"--model=script:{busy}"],
        cwd=project,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        folder = _session(Path(environment["WIELDY_HOME"]) / "sessions")
        before = (folder / TRANSCRIPT_NAME).read_bytes()
        second = wieldy("-p", "go on", f"--model=script:{short}", "--resume", folder.name)
        assert second.returncode != 0
        (line,) = second.stderr.splitlines()
        assert f"pid {holder.pid}" in line
        assert "--fork-session" in line
        assert (folder / TRANSCRIPT_NAME).read_bytes() == before
        copy = wieldy("-p", "go on", f"--model=script:{short}", "--resume", folder.name, "--fork-session")
        assert (copy.stdout, copy.returncode) == ("here\n", 0), copy.stderr
    finally:
        holder.kill()
        holder.wait()
    after = wieldy("-p", "go on", f"--model=script:{short}", "--resume", folder.name)
    assert (after.stdout, after.returncode) == ("here\n", 0), "a lock ends with its process"


def _session(folder: Path) -> Path:
    """The one session there is, once its model has said all that it will say."""
    for _ in range(6_000):
        for found in folder.glob(f"*/{TRANSCRIPT_NAME}"):
            if b"thinking" in found.read_bytes():
                return found.parent
        time.sleep(0.01)
    raise AssertionError("no session came to be")
