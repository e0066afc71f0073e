"""Command lines that make no sense: one line that says why, and the code for it."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import termios
import time

import pytest

MISUSES = [
    (("-p", "hi", "--max-turns", "x"), "argument --max-turns: `x` is not a whole number"),
    (("-p", "hi", "--max-budget-usd", "much"), "argument --max-budget-usd: `much` is not a number"),
    (("-p", "hi", "--max-budget-usd", "nan"), "must be more than 0"),
    (("-p", "hi", "--permission-mode", "bogus"), "there is no permission mode `bogus`"),
    (("-p", "hi", "--fork-session"), "--fork-session goes with --resume or --continue"),
    (("-p", "hi", "--add-dir", "nowhere"), "there is no folder nowhere"),
    (("-p", "hi", "--mcp-config", "nowhere"), "the MCP servers nowhere cannot be read"),
    (("call", "Read", "file_path=b.txt", "--mode", "bogus"), "there is no permission mode `bogus`"),
    (("--permission-mode", "bogus"), "there is no permission mode `bogus`"),
    (("permissions", "explain", "Bash", "ls", "--mode", "bogus"), "there is no permission mode `bogus`"),
    (("--bogus",), "unrecognized arguments: --bogus"),
    (("mcp",), "the following arguments are required"),
    (("mcp", "bogus"), "bogus"),
    (("mcp", "serve", "--bogus"), "unrecognized arguments: --bogus"),
    (("mcp", "serve", "--http"), "argument --http: expected one argument"),
    (("sessions", "show", "a", "b"), "unrecognized arguments: b"),
    (("sessions", "bogus"), "unrecognized arguments: bogus"),
    (("sessions", "export"), "required: ID"),
    (("history", "-n", "x"), "argument -n: `x` is not a whole number"),
    (("history", "-n", "-1"), "must be at least 1"),
]


@pytest.mark.parametrize(("args", "said"), MISUSES)
def test_misuse_is_one_line_and_code_two(wieldy, args, said):
    done = wieldy(*args)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert done.stderr.startswith("wieldy: ")
    assert done.stderr.count("\n") == 1
    assert "_" not in done.stderr.partition(said)[0]


@pytest.mark.parametrize(
    "command",
    ["tools", "undo", "redo", "history", "doctor", "mcp list", "permissions list", "sessions list", "call Read"],
)
def test_a_folder_that_is_not_there_is_named(wieldy, command):
    done = wieldy(*command.split(), "--root", "nowhere")
    assert done.returncode == 2
    assert "there is no folder nowhere" in done.stderr


def test_without_any_session_it_says_where_others_are(wieldy):
    for args in (("sessions", "show"), ("-p", "hi", "--continue", "--model", "script:none")):
        done = wieldy(*args)
        assert done.returncode == 1
        assert done.stderr == "wieldy: there is no session of this folder; `wieldy sessions list --all` has them all\n"


@pytest.mark.parametrize(("stream", "code"), [("<&-", 1), (">&-", 1), ("2>&-", 0)])
def test_a_closed_stdin_is_empty_and_a_closed_stdout_an_error(project, environment, stream, code):
    line = f'"{sys.executable}" -m wieldy call Read - {stream}'
    given = json.dumps({"file_path": "b.txt"})
    done = subprocess.run(
        ["bash", "-c", line], cwd=project, env=environment, input=given, capture_output=True, text=True, timeout=60
    )
    assert "NoneType" not in done.stderr
    assert done.returncode == code
    if stream == ">&-":
        assert done.stderr == "wieldy: stdout is closed\n"


def test_tools_that_need_a_model_are_offered_where_one_is_set_up(wieldy):
    without = wieldy("tools", "--all").stdout
    assert "not offered: it needs a model" in without
    done = wieldy("tools", env={"WIELDY_MODEL": "ollama/some-model", "WIELDY_FEATURE_ARCHITECT": "1"})
    lines = {line.split()[0]: line for line in done.stdout.splitlines()}
    assert lines["Agent"].endswith("(in a session)")
    assert lines["Architect"].endswith("(in a session)")
    assert wieldy("tools", "Grep").stdout.startswith("Grep (offered)\n")
    in_full = wieldy("tools", "Agent", env={"WIELDY_MODEL": "ollama/some-model"}).stdout
    assert in_full.startswith("Agent (offered: in a session)\n")
    [row] = json.loads(wieldy("tools", "Agent", "--json", env={"WIELDY_MODEL": "ollama/some-model"}).stdout)
    assert (row["offered"], row["reason"]) == (True, "in a session")


def test_waiting_for_stdin_can_be_interrupted(project, environment):
    out, into = os.pipe()
    started = subprocess.Popen(
        [sys.executable, "-m", "wieldy", "call", "Read", "-"],
        cwd=project,
        env=environment,
        stdin=out,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        os.write(into, b"{")
        while _unread(out):
            time.sleep(0.01)
        started.send_signal(signal.SIGINT)
        _, said = started.communicate(timeout=30)
        assert (started.returncode, said) == (130, "interrupted\n")
    finally:
        started.kill()
        started.wait()
        os.close(out)
        os.close(into)


def _unread(pipe: int) -> int:
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


def test_a_tool_without_its_input_is_named_once(wieldy):
    done = wieldy("call", "Read")
    assert done.returncode == 1
    assert done.stderr == "Read was not run, its input has 1 problem:\n- `file_path` is required but missing (string)\n"


@pytest.mark.parametrize(
    ("args", "nearest"),
    [
        (("-p", "hi", "--modle", "x"), "`--model`"),
        (("--contineu",), "`--continue`"),
        (("sessions", "shwo"), "`show`"),
        (("sessions", "list", "--jsno"), "`--json`"),
        (("call", "Read", "b.txt", "--jsno"), "`--json`"),
        (("-p", "hi", "--model", "anthropc/claude"), "`anthropic`"),
    ],
)
def test_a_misspelled_word_names_the_nearest(wieldy, args, nearest):
    done = wieldy(*args)
    assert (done.returncode, done.stdout) != (0, "")
    assert f"did you mean {nearest}" in done.stderr
    assert done.stderr.count("\n") == 1


def test_version_and_config_are_commands(wieldy, project):
    assert wieldy("version").stdout == wieldy("--version").stdout
    (project / ".wieldy").mkdir()
    file = project / ".wieldy/settings.local.json"
    file.write_text('{"bash": {"maxBackground": 3}, "env": {"A_KEY": "a secret"}}')
    done = wieldy("config", env={"WIELDY_TRUST": "1"})
    assert done.returncode == 0, done.stderr
    assert 'bash = {"maxBackground": 3}' in done.stdout
    assert "A_KEY" in done.stdout and "a secret" not in done.stdout
    assert str(file) in done.stderr
    shown = json.loads(wieldy("config", "--json", env={"WIELDY_TRUST": "1"}).stdout)
    assert shown["bash"]["value"] == {"maxBackground": 3}


@pytest.mark.parametrize("command", ["echo one", "A=one; echo $A", "echo one # a=b"])
def test_a_call_takes_the_main_field_alone(wieldy, command):
    done = wieldy("call", "Bash", command, "--mode", "bypassPermissions")
    assert (done.returncode, done.stdout) == (0, "one\n"), done.stderr
    wrong = wieldy("call", "Bash", "comand=echo one", "--mode", "bypassPermissions")
    assert "did you mean `command`" in wrong.stderr


def test_one_wrong_number_is_all_that_is_blamed(wieldy):
    done = wieldy("call", "Grep", "pattern=x", "head_limit=abc", "-n=true", "-C=2")
    assert "1 problem" in done.stderr and "head_limit" in done.stderr
