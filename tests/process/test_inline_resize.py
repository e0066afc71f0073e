"""The inline session in tmux while the window changes its width: each finished line stays once, nothing else is left behind."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.needs import skip_untested

LINES = 60


class Tmux:
    """A tmux server of its own with one window."""

    def __init__(
        self, socket: Path, command: list[str], cwd: Path, env: dict[str, str], columns: int, lines: int
    ) -> None:
        config = socket.with_name("tmux.conf")
        config.write_text("set -s extended-keys on\n")
        self._base = ["tmux", "-S", str(socket), "-f", str(config)]
        self._env = env
        self.run(
            "new-session", "-d", "-s", "s", "-x", str(columns), "-y", str(lines), "-c", str(cwd), shlex.join(command)
        )

    def run(self, *words: str) -> str:
        return subprocess.run([*self._base, *words], capture_output=True, text=True, check=True, env=self._env).stdout

    def resize(self, columns: int, lines: int = 24) -> None:
        self.run("resize-window", "-t", "s", "-x", str(columns), "-y", str(lines))

    def text(self, *, joined: bool = True) -> list[str]:
        """The scrollback and the screen."""
        rows = self.run("capture-pane", "-p", *(["-J"] if joined else []), "-S", "-", "-t", "s").split("\n")
        return [row.rstrip() for row in rows]

    def wait_for(self, words: str, seconds: float = 40) -> None:
        deadline = time.monotonic() + seconds
        while not any(words in row for row in self.text()):
            assert time.monotonic() < deadline, f"`{words}` never came; there is:\n" + "\n".join(self.text())
            time.sleep(0.1)

    def settle(self) -> list[str]:
        """Wait until the window no longer changes; returns its rows."""
        rows, since = self.text(), time.monotonic()
        while time.monotonic() - since < 0.4:
            time.sleep(0.05)
            if (now := self.text()) != rows:
                rows, since = now, time.monotonic()
        return rows

    def type(self, words: str) -> None:
        """Type words and wait until the box shows them."""
        self.run("send-keys", "-t", "s", "-l", words)
        self.wait_for(words)

    def press(self, key: str) -> None:
        self.run("send-keys", "-t", "s", key)

    def close(self) -> None:
        subprocess.run([*self._base, "kill-server"], capture_output=True, env=self._env)


Opener = Callable[..., Tmux]


@pytest.fixture
def tmux(project: Path, environment: dict[str, str], tmp_path: Path) -> Iterator[Opener]:
    if shutil.which("tmux") is None:
        skip_untested("resizing in tmux (tmux is not installed)")
    opened: list[Tmux] = []

    def start(script: dict[str, object], columns: int = 100, lines: int = 24) -> Tmux:
        (tmp_path / "script.json").write_text(json.dumps(script))
        command = [sys.executable, "-m", "wieldy", "--model", f"script:{tmp_path / 'script.json'}"]
        env = {**environment, "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"}
        window = Tmux(tmp_path / "tmux", command, project, env, columns, lines)
        opened.append(window)
        window.wait_for("· script.json")
        window.type("go")
        window.press("Enter")
        return window

    yield start
    for window in opened:
        window.close()


def answer_lines(words: str = "") -> list[str]:
    return [f"line {number:02} of the answer{words}" for number in range(LINES)]


@pytest.mark.parametrize("words", ["", " that is long enough to be wrapped once more when the window is narrow"])
def test_every_line_is_there_once_after_resizes_while_it_streams(tmux: Opener, words: str) -> None:
    lines = answer_lines(words)
    widths = (60, 90, 50, 200, 50, 120, 100)
    # The window changes in pauses of the stream: what a program draws before it hears of a resize has the width of before.
    steps: list[dict[str, object]] = []
    for start in range(0, LINES, 8):
        steps += [{"text": "\n\n".join(lines[start : start + 8]) + "\n\n"}, {"pause": 0.5}]
    window = tmux({"turns": [[*steps, {"text": "That is all."}]], "chunk": 12, "delay": 0.01})
    for number, columns in enumerate(widths):
        window.wait_for(f"line {8 * number + 7:02} of")
        window.resize(columns)
    window.wait_for("That is all.")
    shown = [row for row in window.settle() if row]
    flat = " ".join(shown)
    assert [flat.count(f"line {number:02} of") for number in range(LINES)] == [1] * LINES
    expected = " ".join((*lines, "That is all."))
    start = next(number for number, row in enumerate(shown) if row.startswith("line 00"))
    end = next(number for number, row in enumerate(shown) if row.startswith("That is all."))
    assert " ".join(shown[start : end + 1]) == expected
    below = [row for row in shown[end + 1 :] if not row.startswith("worked for")]
    assert [row[:2] for row in below] == ["› ", "  "], "only the box and the status line are below the answer"


def test_code_is_rewrapped_by_the_terminal_and_copies_as_one_line(tmux: Opener) -> None:
    code = "value = " + " + ".join(f"number_{n}" for n in range(30))
    window = tmux({"turns": [[{"text": f"Here:\n\n```python\n{code}\n```\n\nThat is all."}]]}, columns=60)
    window.wait_for("That is all.")
    window.resize(90)
    assert window.settle().count(code) == 1


def test_a_question_survives_resizes_of_both_dimensions(tmux: Opener) -> None:
    command = "touch made && " + " && ".join(f"echo part {n}" for n in range(12))
    window = tmux({"turns": [[{"call": "Bash", "input": {"command": command}}], [{"text": "That is all."}]]})
    window.wait_for("Run this command?")
    for columns, lines in ((50, 24), (120, 40), (70, 18), (100, 24)):
        window.resize(columns, lines)
        window.settle()
    window.press("1")
    window.wait_for("That is all.")
    assert not any("Run this command?" in row for row in window.settle())


@pytest.mark.parametrize("columns", [100, 60])
def test_rows_that_a_lower_window_cuts_off_cost_no_finished_line(tmux: Opener, columns: int) -> None:
    """A terminal that gets lower cuts off the rows below the cursor first."""
    lines = answer_lines()
    text = "\n\n".join(lines) + "\n\nThat is all."
    window = tmux({"turns": [[{"text": text}]]}, lines=40)
    window.wait_for("That is all.")
    window.settle()
    for typed, height in enumerate((20, 30, 12, 40, 15, 24)):
        window.resize(columns if height % 20 else 100, height)
        window.settle()
        window.press("x")
        window.wait_for("› " + "x" * (typed + 1))
    shown = [row for row in window.settle() if row]
    start = shown.index(lines[0])
    assert shown[start : start + LINES + 1] == [*lines, "That is all."]
    below = shown[start + LINES + 1 :]
    assert below == ["› xxxxxx", "  default · script.json"]


def test_shift_enter_begins_a_new_line_where_the_terminal_reports_it(tmux: Opener) -> None:
    window = tmux({"turns": [[{"text": "first answer"}], [{"text": "second answer"}]]})
    window.wait_for("first answer")
    window.type("one")
    window.press("S-Enter")
    window.type("two")
    window.press("Enter")
    window.wait_for("second answer")
    rows = window.text()
    assert rows[rows.index("› one") + 1] == "  two"
