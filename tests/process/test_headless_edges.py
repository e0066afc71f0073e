"""`wieldy -p` at its edges: streams that are closed, words that mean nothing, addresses that are none."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "hello.script.json"
    path.write_text(json.dumps({"turns": [[{"text": "hello"}]]}))
    return f"script:{path}"


def run_with_streams(redirections, args, project, environment):
    command = f'exec "$0" -m wieldy "$@" {redirections}'
    return subprocess.run(
        ["sh", "-c", command, sys.executable, *args],
        cwd=project, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
    )  # fmt: skip


@pytest.mark.parametrize("closed", ["2>&-", "<&-", "<&- 2>&-"])
def test_a_closed_stdin_or_stderr_is_no_error(closed, model, project, environment):
    done = run_with_streams(closed, ["-p", "hi", "--model", model], project, environment)
    assert (done.returncode, done.stdout, done.stderr) == (0, "hello\n", "")


@pytest.mark.parametrize("closed", [">&-", "<&- >&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("output", ["text", "stream-json"])
def test_no_model_is_asked_where_stdout_is_closed(closed, output, model, project, environment, tmp_path):
    asked = ["-p", "hi", "--model", model, "--output-format", output]
    done = run_with_streams(closed, asked, project, environment)
    assert (done.returncode, done.stderr) == (1, "" if "2>&-" in closed else "wieldy: stdout is closed\n")
    assert not list((tmp_path / "state").rglob("transcript.jsonl"))


@pytest.mark.parametrize("args", [["--version"], ["--help"], ["tools"], ["call", "Read", "file_path=b.txt"]])
def test_output_for_a_closed_stdout_is_an_error_of_one_line(args, project, environment):
    done = run_with_streams(">&-", args, project, environment)
    assert (done.returncode, done.stderr) == (1, "wieldy: stdout is closed\n")


@pytest.mark.parametrize("steps", [[], [{"text": " \n"}], [{"think": "hm"}]])
def test_an_answer_without_text_is_an_error_of_one_line(wieldy, project, steps):
    (project / "s").write_text(json.dumps({"turns": [steps]}))
    asked = ("-p", "hi", "--model", "script:s")
    done = wieldy(*asked)
    assert (done.returncode, done.stdout.strip()) == (1, "")
    assert done.stderr == "wieldy: the model's answer has no text\n"
    done = wieldy(*asked, "--output-format", "json")
    result = json.loads(done.stdout)
    assert (done.returncode, result["is_error"], result["errors"]) == (1, True, ["the model's answer has no text"])


def test_work_that_ends_without_text_is_done_and_said(wieldy, project):
    read = {"call": "Read", "input": {"file_path": "b.txt"}}
    (project / "s").write_text(json.dumps({"turns": [[read], []]}))
    done = wieldy("-p", "hi", "--model", "script:s")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "wieldy: the model made 1 call and ended without a text\n"


def test_a_full_disk_below_stdout_is_an_error_of_one_line(model, project, environment):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "wieldy", "-p", "hi", "--model", model],
            cwd=project, env=environment, stdin=subprocess.DEVNULL, stdout=full, stderr=subprocess.PIPE, text=True,
            timeout=60,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (1, "wieldy: stdout: No space left on device\n")


@pytest.mark.parametrize(
    "url", ["http://[::1", "http://exa mple", "http://localhost:99999", "ftp://x", "http://h/\u00fc"]
)
def test_an_address_that_is_none_is_said_at_once(wieldy, url):
    done = wieldy("-p", "hi", "--model", "anthropic/m", "--base-url", url, env={"ANTHROPIC_API_KEY": "k"})
    assert (done.returncode, done.stdout) == (1, "")
    assert f"`{url}` is not an http address" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_key_that_cannot_be_sent_is_named(wieldy):
    args = ("-p", "hi", "--model", "anthropic/m", "--base-url", "http://127.0.0.1:1")
    done = wieldy(*args, env={"ANTHROPIC_API_KEY": "abc\nx-evil: 1"})
    assert done.returncode == 1
    assert "x-api-key" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--max-turns", "0"], "--max-turns"),
        (["--max-budget-usd", "nan"], "--max-budget-usd"),
        (["--output-format", "xml"], "--output-format"),
        (["--root", "/no/such/folder"], "/no/such/folder"),
        (["--nonsense"], "--nonsense"),
        (["--resume", ""], "--resume"),
    ],
)
def test_a_word_that_means_nothing_is_one_line_and_code_two(wieldy, model, args, says):
    done = wieldy("-p", "hi", "--model", model, *args)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_prompt_may_begin_with_a_dash(wieldy, model):
    done = wieldy("-p", "--model", model, "--", "--hello")
    assert (done.returncode, done.stdout, done.stderr) == (0, "hello\n", "")
