"""Hostile text through every command on a real terminal: what a model, a file or a server says is shown, never obeyed."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

ESCAPES: dict[str, str] = json.loads((Path(__file__).parents[1] / "corpora/terminal/escapes.json").read_text())
HOSTILE = "BEGIN " + "\n".join(ESCAPES.values()).encode("utf-8", "replace").decode() + " END"
IN_ARGUMENTS = HOSTILE.replace("\x00", "")
FILE_NAME = "odd\x1b]0;owned\x07\x9b2J\u202ename.txt"
CONTROL = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff]|\r(?![\r\n])"
)
SERVER = Path(__file__).parents[1] / "unit" / "mcp" / "scripted_server.py"

Show = Callable[..., str]


@pytest.fixture
def show(project: Path, environment: dict[str, str]) -> Show:
    """Run a command on a terminal to its end and return every character that reached it; type `answer` once it said `after`."""

    def run(*argv: str, answer: str = "", after: str = "") -> str:
        screen, child = pty.openpty()
        process = subprocess.Popen(
            [sys.executable, "-m", "wieldy", *argv],
            cwd=project,
            env={**environment, "TERM": "xterm", "NO_COLOR": "1", "PROMPT_TOOLKIT_NO_CPR": "1"},
            stdin=child,
            stdout=child,
            stderr=child,
            start_new_session=True,
        )
        os.close(child)
        data, deadline = b"", time.monotonic() + 60
        try:
            while select.select([screen], [], [], max(deadline - time.monotonic(), 0))[0]:
                try:
                    chunk = os.read(screen, 65536)
                except OSError:  # the other side is closed
                    break
                if not chunk:
                    break
                data += chunk
                if answer and after.encode() in data:
                    os.write(screen, answer.encode())
                    answer = ""
            process.wait(timeout=30)
        finally:
            process.kill()
            process.wait()
            os.close(screen)
        return data.decode("utf-8", "surrogateescape")

    return run


@pytest.fixture
def script(tmp_path: Path) -> Callable[[list[object]], str]:
    def write(turns: list[object]) -> str:
        file = tmp_path / "script.json"
        file.write_text(json.dumps({"turns": turns}))
        return f"script:{file}"

    return write


def assert_harmless(text: str, *shown: str) -> None:
    match = CONTROL.search(text)
    assert match is None, f"{match[0]!r} reached the terminal: {text[max(match.start() - 60, 0) : match.end() + 40]!r}"
    for words in shown:
        assert words in text


@pytest.mark.parametrize("output_format", ["text", "json", "stream-json"])
def test_what_a_model_says_without_interaction(show, script, output_format):
    turns = [
        [
            {"text": HOSTILE},
            {"call": "Bash", "input": {"command": "touch x # " + IN_ARGUMENTS, "description": HOSTILE}},
        ],
        [{"text": HOSTILE}],
    ]
    text = show("-p", "hi", "--model", script(turns), "--output-format", output_format)
    assert_harmless(text, "BEGIN", "END", "]0;owned")


def test_files_and_their_names(show, project):
    (project / FILE_NAME).write_text(IN_ARGUMENTS)
    assert_harmless(show("call", "Read", f"file_path={FILE_NAME}"), "BEGIN", "END")
    assert_harmless(show("call", "Glob", "pattern=*.txt"), "owned")
    assert_harmless(show("call", "Grep", "pattern=owned", "output_mode=content"), "owned")
    assert_harmless(show("call", "Read", f"file_path={FILE_NAME}", "--json"), "owned")
    edit = ("call", "Edit", f"file_path={FILE_NAME}", "old_string=BEGIN", "new_string=START\x1b[2J")
    assert_harmless(show(*edit, "--mode", "acceptEdits"), "owned")
    assert_harmless(show("history"), "owned")
    assert_harmless(show("history", "--json"), "owned")
    assert_harmless(show("undo"), "owned")
    assert_harmless(show("redo"), "owned")


def test_a_permission_question(show):
    text = show(
        "call",
        "Bash",
        f"command=touch made # {IN_ARGUMENTS}",
        f"description={IN_ARGUMENTS}",
        answer="n\n",
        after="\n  > ",
    )
    assert_harmless(text, "[y] yes", "BEGIN")


def test_what_commands_print_and_how_they_fail(show):
    assert_harmless(show("call", "Bash", "command=cat a.py; printf '\\033]0;x\\007\\302\\2332J'"), "TODO")
    assert_harmless(show("call", "Bash", "command=ls nowhere/$'\\033[2J'", answer="n\n", after="\n  > "))
    assert_harmless(show("call", IN_ARGUMENTS), "owned")
    assert_harmless(show("call", "Read", IN_ARGUMENTS, "limit=1"), "owned")


def test_usage_errors_repeat_words_safely(show):
    odd = "\x1b]0;owned\x07\x9b2J"
    for argv in (
        [f"--{odd}"],
        ["call", "Read", f"--{odd}"],
        ["tools", odd],
        ["undo", odd],
        ["history", "-n", odd],
        ["sessions", "show", odd],
        ["permissions", "allow", f"Bash({odd}"],
        ["permissions", "explain", odd, odd],
        ["permissions", "explain", "Bash", f"git log {odd}"],
        ["mcp", "add", odd, "http://x.org"],
        ["mcp", "remove", odd],
        ["-p", "hi", "--model", odd],
        ["-p", "hi", "--settings", odd],
        ["-p", "hi", "--model", odd, "--debug"],
        ["call", "Read", "file_path=a.py", "--root", odd],
    ):
        assert_harmless(show(*argv), "owned")


def test_settings_rules_and_what_is_wrong_with_them(show, project):
    odd = "\x1b]0;owned\x07\x9b2J\u202e"
    (project / ".wieldy").mkdir()
    settings = {"permissions": {"deny": [f"Bash(rm {odd}:*)"], "allow": [f"Read({odd})"]}, f"unknown{odd}": 1}
    (project / ".wieldy/settings.json").write_text(json.dumps(settings, ensure_ascii=False))
    assert_harmless(show("permissions", "list"), "owned")
    assert_harmless(show("permissions", "list", "--json"), "owned")
    assert_harmless(show("permissions", "trust", answer="n\n", after="[y/N]"), "owned")
    assert_harmless(show("doctor"), "owned")
    assert_harmless(show("call", "Read", "file_path=a.py"), "owned")


def test_sessions_are_listed_shown_exported_and_replayed(show, script):
    turns = [
        [{"text": HOSTILE}, {"call": "Bash", "input": {"command": f"cat a.py # {IN_ARGUMENTS}"}}],
        [{"text": HOSTILE}],
    ]
    show("-p", IN_ARGUMENTS, "--model", script(turns))
    listed = show("sessions")
    assert_harmless(listed, "BEGIN")
    session = listed.split()[0]
    assert_harmless(show("sessions", "--json"), "BEGIN")
    assert_harmless(show("sessions", "show", session), "END")
    assert_harmless(show("sessions", "show", session, "--json"), "END")
    assert_harmless(show("sessions", "export", session), "END")
    assert_harmless(show("permissions", "replay", session), "past call")


def test_mcp_servers_and_their_tools(show, tmp_path):
    tool = {"name": "odd", "description": HOSTILE, "inputSchema": {"type": "object", "description": HOSTILE}}
    habits = json.dumps({"log": str(tmp_path / "log"), "tools": [tool], "stderr": 2})
    show("mcp", "add", "tiny", "--", sys.executable, "-I", "-S", str(SERVER), habits)
    assert_harmless(show("mcp", "list"), "tiny")
    assert_harmless(show("mcp", "get", "tiny"), "BEGIN")
    assert_harmless(show("mcp", "get", "tiny", "--json"), "BEGIN")
    assert_harmless(show("tools"), "BEGIN")
    assert_harmless(show("tools", "mcp__tiny__odd"), "BEGIN", "END")
    assert_harmless(show("tools", "--json"), "END")


def test_an_interactive_session(show, script):
    turns = [
        [{"text": HOSTILE}, {"call": "Bash", "input": {"command": "cat a.py", "description": HOSTILE}}],
        [{"text": HOSTILE + " Good bye."}],
    ]
    text = show(IN_ARGUMENTS.replace("\r", " ") + " go", "--model", script(turns), answer="/exit\r", after="Good bye.")
    # The prompt itself moves the cursor and asks for bracketed paste; nothing else may.
    own = {
        "CSI ?25l hide cursor",
        "CSI ?2004h bracketed paste",
        "CSI SGR hidden",
        "incomplete CSI",
        "lone ESC",
        "CR CR",
    }
    assert "BEGIN" in text
    for name, sequence in ESCAPES.items():
        if name not in own and not sequence.isascii():
            assert sequence not in text, name
    assert not re.search("\x1b[\\]P_^X\\\\c]|\x1b\\[[23]J|\x1b\\[\\?1049|\x07|\x08\x08|\x9b|\x9d", text)
