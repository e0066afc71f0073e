"""What the README shows is run as it stands there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"


def test_the_library_example_runs(tmp_path: Path):
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "job.py").write_text("# TODO: rest\n")
    (tmp_path / "notes.md").write_text("hello\n")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        env={"PATH": "/usr/bin:/bin", "WIELDY_HOME": str(tmp_path / "home"), "HOME": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    for expected in ("job.py", "False", "Ulm: sunny", "notes.md"):
        assert expected in done.stdout


def test_the_example_is_short_enough_to_read():
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert len([line for line in code.splitlines() if line.strip()]) <= 16


def test_every_command_of_the_table_exists():
    text = README.read_text(encoding="utf-8")
    for command in re.findall(r"^\| `wieldy (\w+)", text, re.MULTILINE):
        done = subprocess.run(
            [sys.executable, "-m", "wieldy", command, "--help"], capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, command
        assert "example" in done.stdout, f"wieldy {command} --help shows no example"
