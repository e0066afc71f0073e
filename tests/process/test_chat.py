"""The plain interactive session, driven through a real terminal."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[()][A-B0-2]|\x1b[=>]|\r")


class Screen:
    """A terminal with our program on it."""

    def __init__(self, argv: list[str], cwd: Path, env: dict[str, str]) -> None:
        self._screen, child = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "wieldy", *argv],
            cwd=cwd,
            env={**env, "TERM": "xterm", "NO_COLOR": "1", "PROMPT_TOOLKIT_NO_CPR": "1"},
            stdin=child,
            stdout=child,
            stderr=child,
            start_new_session=True,
        )
        os.close(child)
        self.text = ""

    def wait_for(self, words: str, seconds: float = 30, *, quietly: str | None = None) -> None:
        """Read until the words stand on the screen, after what was waited for before, and `quietly` not before them."""
        deadline = time.monotonic() + seconds
        while words not in self.text:
            left = deadline - time.monotonic()
            assert left > 0, f"`{words}` never came; there is:\n{self.text}"
            if select.select([self._screen], [], [], left)[0]:
                try:
                    data = os.read(self._screen, 65536)
                except OSError:
                    data = b""
                assert data, f"it ended before `{words}` came; there is:\n{self.text}"
                self.text += _ESCAPES.sub("", data.decode("utf-8", "replace"))
        before, _, self.text = self.text.partition(words)
        assert quietly is None or quietly not in before

    def type(self, line: str) -> None:
        os.write(self._screen, line.encode() + b"\r")

    def answer(self, line: str) -> None:
        """Answer a question as a person does who has read it."""
        time.sleep(0.7)
        self.type(line)

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def press(self, key: bytes) -> None:
        os.write(self._screen, key)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._screen)


Opener = Callable[..., Screen]


@pytest.fixture
def chat(project: Path, environment: dict[str, str], tmp_path: Path) -> Iterator[Opener]:
    opened: list[Screen] = []

    def start(*argv: str, turns: list[object] | None = None) -> Screen:
        if turns is not None:
            script = tmp_path / "script.json"
            script.write_text(json.dumps({"turns": turns}))
            argv = ("--model", f"script:{script}", *argv)
        if argv[:1] != ("call",):
            argv = ("--plain", *argv)
        opened.append(Screen(list(argv), project, environment))
        return opened[-1]

    yield start
    for screen in opened:
        screen.close()


def test_a_question_is_answered_in_place_and_the_rule_is_kept(chat, project):
    screen = chat(turns=[[{"call": "Bash", "input": {"command": "touch made"}}], [{"text": "Made it."}]])
    screen.wait_for(">")
    screen.type("make it")
    screen.wait_for("[a] yes, and don't ask again for Bash(touch:*)")
    screen.wait_for(">")
    screen.answer("a")
    screen.wait_for("Made it.")
    assert (project / "made").exists()
    assert "Bash(touch:*)" in (project / ".wieldy/settings.local.json").read_text()


def test_ctrl_c_stops_the_turn_and_one_can_go_on(chat):
    turns = [[{"text": "Waiting."}, {"call": "Bash", "input": {"command": "sleep 251"}}], [{"text": "Still here."}]]
    screen = chat(turns=turns)
    screen.wait_for(">")
    screen.type("wait")
    screen.wait_for("● Bash sleep 251")
    screen.interrupt()
    screen.wait_for("interrupted")
    screen.wait_for(">")
    screen.type("and now?")
    screen.wait_for("Still here.")
    screen.wait_for(">")
    screen.type("/exit")
    assert screen.process.wait(timeout=30) == 0


def test_settings_are_read_again_on_request_and_what_is_wrong_is_said(chat, project):
    screen = chat(turns=[])
    screen.wait_for(">")
    (project / ".wieldy").mkdir()
    (project / ".wieldy/settings.json").write_text('{"permissions": {"deny": ["Bash(rm:*)"]}, "modle": 1}')
    screen.type("/reload")
    screen.wait_for("read again: 1 rule, 0 hooks, 0 MCP servers")
    screen.wait_for("modle")
    screen.wait_for(">")
    (project / ".wieldy/settings.json").write_text("{ broken")
    screen.type("/reload")
    screen.wait_for("the settings stay as they were")


def test_ctrl_c_twice_at_the_prompt_leaves(chat):
    screen = chat(turns=[])
    screen.wait_for(">")
    screen.interrupt()
    screen.wait_for("again to exit")
    screen.wait_for(">")
    screen.interrupt()
    assert screen.process.wait(timeout=30) == 0


def test_without_a_model_it_says_how_to_set_one_up_and_runs_tools_by_hand(chat):
    screen = chat()
    screen.wait_for("There is no model to talk to")
    screen.wait_for("WIELDY_MODEL")
    screen.wait_for(">")
    screen.type("/call Grep pattern=TODO")
    screen.wait_for("a.py")
    screen.wait_for(">")
    screen.type("!ls")
    screen.wait_for("b.txt")
    screen.wait_for(">")
    screen.type("/help")
    screen.wait_for("/undo")
    screen.wait_for(">")
    screen.type("/nonsense")
    screen.wait_for("there is no command /nonsense")


def test_an_edit_is_shown_as_a_diff_and_can_be_undone(chat, project):
    turns = [
        [{"call": "Read", "input": {"file_path": "b.txt"}}],
        [{"call": "Edit", "input": {"file_path": "b.txt", "old_string": "hello", "new_string": "goodbye"}}],
        [{"text": "Changed."}],
    ]
    screen = chat("--permission-mode", "acceptEdits", turns=turns)
    screen.wait_for(">")
    screen.type("change it")
    screen.wait_for("- hello")
    screen.wait_for("+ goodbye")
    screen.wait_for("Changed.")
    screen.wait_for(">")
    screen.type("/undo")
    screen.wait_for("took back")
    assert (project / "b.txt").read_text() == "hello\nworld\n"


def test_a_typed_prompt_stands_on_the_screen_once(chat, project):
    (project / ".wieldy/commands").mkdir(parents=True)
    (project / ".wieldy/commands/review.md").write_text("Review $ARGUMENTS")
    screen = chat(turns=[[{"text": "Good."}], [{"text": "Reviewed."}]])
    screen.wait_for("> ")
    screen.type("hello  ")
    screen.wait_for("hello")
    screen.wait_for("Good.", quietly="hello")
    screen.wait_for("> ")
    screen.type("/review   it ")
    screen.wait_for("/review   it")
    screen.wait_for("Reviewed.", quietly="/review")


def test_what_was_queued_before_a_stop_is_sent_by_enter(chat):
    turns = [[{"call": "Bash", "input": {"command": "sleep 60"}}], [{"text": "Next it is."}]]
    screen = chat("--allowedTools", "Bash(sleep:*)", turns=turns)
    screen.wait_for("> ")
    screen.type("wait")
    screen.wait_for("● Bash sleep 60")
    screen.type("next one")
    screen.wait_for("queued: next one")
    screen.interrupt()
    screen.wait_for("still queued: next one (Enter sends it)")
    screen.wait_for("> ")
    screen.type("")
    screen.wait_for("Next it is.")


def test_a_command_that_runs_at_once_is_not_called_queued(chat):
    screen = chat("--allowedTools", "Bash(sleep:*)", turns=[[{"call": "Bash", "input": {"command": "sleep 20"}}]])
    screen.wait_for("> ")
    screen.type("wait")
    screen.wait_for("● Bash sleep 20")
    screen.type("/cost")
    screen.wait_for("1 answer, ", quietly="queued")


def test_without_a_terminal_it_says_to_use_p(wieldy):
    done = wieldy()
    assert done.returncode == 2
    assert "-p" in done.stderr


def test_without_persistence_no_transcript_is_written(chat, tmp_path):
    screen = chat("--no-session-persistence", turns=[[{"text": "hello there"}]])
    screen.wait_for("/help")
    screen.type("hi")
    screen.wait_for("hello there")
    assert list((tmp_path / "state").glob("sessions/*/transcript.jsonl")) == []


def test_a_single_word_is_a_prompt_and_options_of_p_work(chat, project):
    extra = json.dumps({"permissions": {"deny": ["Read(./b.txt)"]}})
    turns = [[{"call": "Read", "input": {"file_path": "b.txt"}}], [{"text": "All done."}]]
    screen = chat("hello", "--plain", "--settings", extra, "--max-turns", "5", turns=turns)
    screen.wait_for("hello")
    screen.wait_for("not permitted")
    screen.wait_for("All done.")
    screen.type("/exit")
    screen.wait_for("continue with: wieldy --resume")
    assert screen.process.wait(timeout=30) == 0


def test_the_last_line_stands_below_the_prompt_where_the_input_ends(chat):
    screen = chat("hello", "--plain", turns=[[{"text": "All done."}]])
    screen.wait_for("All done.")
    screen.wait_for("> ")
    screen.press(b"\x04")
    screen.wait_for("\ncontinue with: wieldy --resume")


def test_a_rule_that_cannot_be_read_ends_the_session_before_it_begins(chat):
    screen = chat("--plain", "--settings", '{"permissions": {"deny": ["Bash("]}}', turns=[])
    screen.wait_for("wieldy: ")
    assert screen.process.wait(timeout=30) == 1
