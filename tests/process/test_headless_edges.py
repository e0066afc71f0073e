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


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_stream_that_is_closed_is_no_error(closed, model, project, environment):
    command = f'exec "$0" -m wieldy -p hi --model "$1" {closed}'
    done = subprocess.run(
        ["sh", "-c", command, sys.executable, model],
        cwd=project, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == ("" if ">&-" in closed.replace("2>&-", "") else "hello\n")


def test_a_full_disk_below_stdout_is_an_error_of_one_line(model, project, environment):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "wieldy", "-p", "hi", "--model", model],
            cwd=project, env=environment, stdin=subprocess.DEVNULL, stdout=full, stderr=subprocess.PIPE, text=True,
            timeout=60,
        )  # fmt: skip
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1


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
