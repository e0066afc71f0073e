"""Many processes write one settings file at once: nothing is lost and no reader ever sees half a file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from wieldy.core.schema.json_positions import JsonDocument, parse_json


def read(text: str) -> JsonDocument:
    return parse_json(text, relaxed=True)


WRITERS = 20
RULES_EACH = 5

WRITER = """
import sys
from pathlib import Path
from wieldy.policy.settings.store import add_rules, set_value
file, number = Path(sys.argv[1]), sys.argv[2]
sys.stdin.readline()
for turn in range(int(sys.argv[3])):
    add_rules(file, "allow", [f"Bash(program-{number}-{turn}:*)"])
set_value(file, f"env.W{number}", number)
"""


def test_twenty_processes_lose_nothing_and_never_leave_half_a_file(tmp_path: Path) -> None:
    file = tmp_path / "settings.local.json"
    file.write_text('{\n  // kept\n  "model": "a/b"\n}\n')
    source = str(Path(__file__).parents[2] / "src")
    env = {**os.environ, "PYTHONPATH": source}
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(file), str(number), str(RULES_EACH)], stdin=subprocess.PIPE, env=env
        )
        for number in range(WRITERS)
    ]
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write(b"go\n")
        writer.stdin.close()
    while any(writer.poll() is None for writer in writers):
        assert read(file.read_text()).value["model"] == "a/b"
    assert [writer.returncode for writer in writers] == [0] * WRITERS

    text = file.read_text()
    value = read(text).value
    expected = {f"Bash(program-{number}-{turn}:*)" for number in range(WRITERS) for turn in range(RULES_EACH)}
    assert set(value["permissions"]["allow"]) == expected
    assert len(value["permissions"]["allow"]) == len(expected)
    assert value["env"] == {f"W{number}": str(number) for number in range(WRITERS)}
    assert "// kept" in text
    assert os.listdir(tmp_path) == ["settings.local.json"]


def test_a_writer_that_is_killed_leaves_a_whole_file(tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    endless = WRITER.replace("for turn in range(int(sys.argv[3])):", "for turn in range(100_000):")
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    for _ in range(3):
        writer = subprocess.Popen([sys.executable, "-c", endless, str(file), "1", "0"], stdin=subprocess.PIPE, env=env)
        assert writer.stdin is not None
        writer.stdin.write(b"go\n")
        writer.stdin.close()
        before = file.stat().st_mtime_ns if file.exists() else 0
        while not file.exists() or file.stat().st_mtime_ns == before:
            assert writer.poll() is None
        writer.kill()
        writer.wait()
        assert json.loads(file.read_text())["permissions"]["allow"]
