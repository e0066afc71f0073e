"""`wieldy -p` as a program: what stdout carries, what the exit code says, what signals do."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from wieldy import Script, Session
from wieldy.agent.records import AssistantBlock, ToolResultRecord, convert_record
from wieldy.faces.headless import converse

READ = {"call": "Read", "input": {"file_path": "b.txt"}}
WRITE = {"call": "Write", "input": {"file_path": "new.txt", "content": "new"}}
SLEEP = {"call": "Bash", "input": {"command": "sleep 30"}}


@pytest.fixture
def script(tmp_path: Path):
    """A recorded model in a file; gives the option that names it."""

    def make(*turns: list[dict[str, Any]]) -> str:
        path = tmp_path / f"script{len(list(tmp_path.glob('script*')))}.json"
        path.write_text(json.dumps({"turns": turns}))
        return f"--model=script:{path}"

    return make


def lines(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_text_is_the_models_last_words_and_nothing_else(wieldy, script):
    done = wieldy("-p", "what is in b.txt?", script([{"text": "let me see"}, READ], [{"text": "hello, world"}]))
    assert (done.stdout, done.stderr, done.returncode) == ("hello, world\n", "", 0)


def test_options_may_stand_anywhere(wieldy, script):
    model = script([{"text": "hi"}])
    for args in (
        ["-p", model, "say", "hi"],
        [model, "-p", "say hi"],
        ["say hi", "-p", model],
        [model, "--print", "say hi"],
    ):
        done = wieldy(*args)
        assert (done.stdout, done.returncode) == ("hi\n", 0), done.stderr


def test_stdin_is_appended_to_the_prompt(wieldy, script, tmp_path):
    done = wieldy("-p", "review this", script([{"text": "fine"}]), "--output-format=json", input="the diff\n")
    session = json.loads(done.stdout)["session_id"]
    told = (tmp_path / "state" / "sessions" / session / "transcript.jsonl").read_text()
    assert "review this\\n\\nthe diff" in told
    done = wieldy("-p", script([{"text": "fine"}]), input="only stdin")
    assert done.stdout == "fine\n"


def test_json_is_one_object_with_everything_a_caller_wants(wieldy, script):
    usage = {"usage": {"input_tokens": 100, "output_tokens": 10, "cache_read_tokens": 5}}
    done = wieldy("-p", "go", script([usage, READ], [usage, {"text": "done"}]), "--output-format", "json")
    (told,) = lines(done)
    assert (told["type"], told["subtype"], told["is_error"], told["result"]) == ("result", "success", False, "done")
    assert told["num_turns"] == 2
    assert told["usage"]["input_tokens"] == 200
    assert told["usage"]["cache_read_input_tokens"] == 10
    assert told["permission_denials"] == []
    assert {"session_id", "uuid", "duration_ms", "duration_api_ms", "total_cost_usd", "modelUsage"} <= set(told)


def test_stream_json_tells_every_step_in_order(wieldy, script):
    done = wieldy("-p", "go", script([{"text": "ok"}, READ, WRITE], [{"text": "done"}]), "--output-format=stream-json")
    told = lines(done)
    kinds = [(line["type"], line.get("subtype")) for line in told]
    assert kinds == [
        ("system", "init"),
        ("assistant", None),
        ("user", None),
        ("user", None),
        ("system", "permission_denied"),
        ("assistant", None),
        ("result", "success"),
    ]
    assert all(line["session_id"] == told[0]["session_id"] and line["uuid"] for line in told)
    assert len({line["uuid"] for line in told}) == len(told)
    init, first, result = told[0], told[1], told[2]
    assert {"cwd", "tools", "model", "permissionMode", "mcp_servers"} <= set(init)
    assert "Read" in init["tools"]
    assert init["apiKeySource"] == "none"
    assert [block["type"] for block in first["message"]["content"]] == ["text", "tool_use", "tool_use"]
    assert result["message"]["content"][0]["tool_use_id"] == first["message"]["content"][1]["id"]
    assert result["parent_tool_use_id"] is None


def test_partial_messages_on_request(wieldy, script):
    turns = script(
        [
            {"think": "hm", "signature": "s"},
            {"text": "hello", "chunk": 2},
            {"call": "Read", "input": {"file_path": "b.txt"}},
        ],
        [{"text": "done"}],
    )
    told = lines(wieldy("-p", "go", turns, "--output-format=stream-json", "--include-partial-messages"))
    events = [line["event"] for line in told if line["type"] == "stream_event"]
    first = events[: [event["type"] for event in events].index("message_stop") + 1]
    assert [event["type"].removeprefix("content_block_") for event in first] == [
        "message_start",
        *("start", "delta", "delta", "stop"),
        *("start", "delta", "delta", "delta", "stop"),
        *("start", "delta", "stop"),
        "message_delta",
        "message_stop",
    ]
    assert [event["index"] for event in first[1:-2]] == [0] * 4 + [1] * 5 + [2] * 3
    deltas = [event["delta"] for event in first if event["type"] == "content_block_delta"]
    assert [delta.get("text") for delta in deltas if delta["type"] == "text_delta"] == ["he", "ll", "o"]
    assert {"type": "signature_delta", "signature": "s"} in deltas
    assert json.loads("".join(d["partial_json"] for d in deltas if d["type"] == "input_json_delta")) == {
        "file_path": "b.txt"
    }
    assert first[0]["message"]["id"] == next(line for line in told if line["type"] == "assistant")["message"]["id"]
    assert first[-2]["delta"]["stop_reason"] == "tool_use"
    assert [event["type"] for event in events].count("message_stop") == 2


def test_prompts_can_come_as_a_stream_of_messages(wieldy, script):
    def message(content: Any) -> str:
        return json.dumps({"type": "user", "message": {"role": "user", "content": content}}) + "\n"

    done = wieldy(
        "-p",
        script([{"text": "one"}], [{"text": "two"}]),
        "--input-format=stream-json",
        "--output-format=stream-json",
        input=message("first")
        + "\n"
        + json.dumps({"type": "control"})
        + "\n"
        + message([{"type": "text", "text": "second"}]),
    )
    assert [line["result"] for line in lines(done) if line["type"] == "result"] == ["one", "two"]
    assert done.returncode == 0
    bad = wieldy("-p", script([{"text": "x"}]), "--input-format=stream-json", input="nonsense\n")
    assert (bad.returncode, bad.stdout) == (2, "")
    assert "not a user message" in bad.stderr


def test_what_was_denied_is_listed_and_shows_in_the_exit_code(wieldy, script, project):
    model = script([WRITE], [{"text": "could not"}])
    done = wieldy("-p", "write", model, "--output-format=json")
    assert done.returncode == 3
    (denial,) = json.loads(done.stdout)["permission_denials"]
    assert (denial["tool_name"], denial["tool_input"]["file_path"]) == ("Write", "new.txt")
    assert not (project / "new.txt").exists()
    text = wieldy("-p", "write", model)
    assert (text.stdout, text.returncode) == ("could not\n", 3)
    assert "Write(new.txt) was not permitted: writes " in text.stderr and "allow 'Edit(/new.txt)'" in text.stderr


@pytest.mark.parametrize(
    "options",
    [
        ["--permission-mode", "acceptEdits"],
        ["--dangerously-skip-permissions"],
        ["--allowed-tools", "Read,Edit(new.txt)"],
        ["--allowedTools", "Edit"],
        ["--settings", '{"permissions": {"allow": ["Edit"]}}'],
    ],
)
def test_ways_to_allow(wieldy, script, project, options):
    done = wieldy("-p", "write", script([WRITE], [{"text": "did"}]), *options)
    assert (done.stdout, done.returncode) == ("did\n", 0), done.stderr
    assert (project / "new.txt").read_text() == "new"


def test_a_tool_can_be_taken_away(wieldy, script):
    done = wieldy("-p", "x", script([READ], [{"text": "no"}]), "--disallowed-tools=Read", "--output-format=stream-json")
    told = lines(done)
    assert "Read" not in told[0]["tools"]
    assert told[2]["message"]["content"][0]["is_error"]


def test_another_folder_can_be_added(wieldy, script, tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "f.txt").write_text("far")
    read = {"call": "Read", "input": {"file_path": str(tmp_path / "other" / "f.txt")}}
    model = script([read], [{"text": "x"}])
    assert wieldy("-p", "x", model).returncode == 3
    assert wieldy("-p", "x", model, "--add-dir", str(tmp_path / "other")).returncode == 0


def test_limits_end_it_with_code_four(wieldy, script):
    turns = [[{"usage": {"input_tokens": 10}}, {"call": "LS", "input": {"path": "."}}]] * 5
    done = wieldy("-p", "x", script(*turns), "--max-turns=2", "--output-format=json")
    told = json.loads(done.stdout)
    assert (done.returncode, told["subtype"], told["num_turns"], told["is_error"]) == (4, "error_max_turns", 2, True)
    assert "result" not in told
    assert told["errors"] == ["stopped after 2 turns"]


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (["-p"], 2, "no prompt"),
        (["-p", "x", "--output-format", "yaml"], 2, "invalid choice"),
        (["-p", "x", "--max-turns", "0"], 2, "at least 1"),
        (["-p", "x", "--settings", "{"], 2, "not JSON"),
        (["-p", "x", "--settings", "nowhere.json"], 2, "cannot be read"),
        (["-p", "x"], 1, "--model"),
        (["-p", "x", "--model", "script:nowhere.json"], 1, "cannot be read"),
        (["-p", "x", "--model", "anthropic/claude-sonnet-4-5"], 1, "ANTHROPIC_API_KEY"),
        (["-p", "x", "--resume", "nothing"], 1, "no session"),
        (["-p", "x", "--continue"], 1, "no session"),
    ],
)
def test_errors_are_one_line_on_stderr(wieldy, args, code, says):
    done = wieldy(*args)
    assert (done.returncode, done.stdout) == (code, "")
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_an_error_is_an_object_where_objects_are_expected(wieldy):
    done = wieldy("-p", "x", "--output-format=json")
    told = json.loads(done.stdout)
    assert (done.returncode, told["subtype"], told["is_error"]) == (1, "error_during_execution", True)
    done = wieldy("-p", "x", "--resume=nothing", "--output-format=stream-json")
    assert "no session" in lines(done)[-1]["errors"][0]


def test_a_session_is_continued_resumed_and_forked(wieldy, script):
    first = json.loads(wieldy("-p", "one", script([READ], [{"text": "a"}]), "--output-format=json").stdout)
    on = json.loads(wieldy("-p", "two", script([{"text": "b"}]), "--continue", "--output-format=json").stdout)
    assert on["session_id"] == first["session_id"]
    again = json.loads(
        wieldy("-p", "3", script([{"text": "c"}]), "-r", on["session_id"], "--output-format=json").stdout
    )
    assert again["session_id"] == first["session_id"]
    fork = json.loads(wieldy("-p", "4", script([{"text": "d"}]), "-c", "--fork-session", "--output-format=json").stdout)
    assert fork["session_id"] != first["session_id"]
    shown = wieldy("sessions", "show", first["session_id"])
    assert [line for line in shown.stdout.splitlines() if line[0] in "›●"] == [
        "› one",
        "● a",
        "› two",
        "● b",
        "› 3",
        "● c",
    ]


def test_closed_streams_and_no_terminal_are_no_obstacle(wieldy, script, project, environment):
    command = [sys.executable, "-m", "wieldy", "-p", "x", script([{"text": "fine"}])]
    closed = subprocess.run(
        ["sh", "-c", 'exec "$@" <&-', "sh", *command],
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (closed.stdout, closed.returncode) == ("fine\n", 0), closed.stderr
    alone = subprocess.run(
        command,
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        start_new_session=True,
        stdin=subprocess.DEVNULL,
    )
    assert (alone.stdout, alone.returncode) == ("fine\n", 0)


@pytest.mark.parametrize("output", ["text", "json", "stream-json"])
def test_a_reader_that_leaves_is_an_error_that_names_the_session(wieldy, script, project, environment, output):
    model = script([{"text": "y" * 300_000}])
    command = [sys.executable, "-m", "wieldy", "-p", "x", model, f"--output-format={output}"]
    done = subprocess.run(
        ["bash", "-c", '"$@" | head -c 10; exit ${PIPESTATUS[0]}', "bash", *command],
        cwd=project, env=environment, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 1
    incomplete, resume = done.stderr.splitlines()
    assert incomplete == "wieldy: the output is incomplete: its reader has closed the pipe"
    again = wieldy("-p", "and now?", script([{"text": "on we go"}]), "--resume", resume.rpartition(" ")[2])
    assert again.stdout == "on we go\n"


def test_a_reader_that_leaves_early_interrupts_the_run(script, project, environment):
    command = [sys.executable, "-m", "wieldy", "-p", "x", script([READ], [WRITE], [{"text": "never"}])]
    reader, output = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [*command, "--output-format=stream-json"], stdout=output, stderr=subprocess.PIPE,
        cwd=project, env=environment, text=True, timeout=60, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    os.close(output)
    assert done.returncode == 1
    session = done.stderr.split()[-1]
    transcript = Path(environment["WIELDY_HOME"]) / "sessions" / session / "transcript.jsonl"
    assert "never" not in transcript.read_text()


def test_a_time_limit_ends_a_run_like_other_limits_and_names_the_session(wieldy, script):
    done = wieldy("-p", "x", script([SLEEP], [{"text": "never"}]), "--dangerously-skip-permissions", "--timeout=1.5")
    assert (done.returncode, done.stdout) == (4, "")
    stopped, resume = done.stderr.splitlines()
    assert stopped == "wieldy: stopped after 1.5 s (--timeout)"
    again = wieldy("-p", "and now?", script([{"text": "on we go"}]), "--resume", resume.rpartition(" ")[2])
    assert again.stdout == "on we go\n"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_it_in_order_and_leaves_a_session_one_can_go_on_with(
    wieldy, script, project, environment, number, code
):
    command = [
        sys.executable,
        "-m",
        "wieldy",
        "-p",
        "x",
        "--dangerously-skip-permissions",
        "--output-format=stream-json",
    ]
    running = subprocess.Popen(
        [*command, script([SLEEP], [{"text": "never"}])],
        cwd=project, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert running.stdout is not None
    session = json.loads(running.stdout.readline())["session_id"]
    transcript = Path(environment["WIELDY_HOME"]) / "sessions" / session / "transcript.jsonl"
    for _ in range(500):
        if "tool_use" in transcript.read_text():
            break
        time.sleep(0.02)
    time.sleep(0.3)
    os.kill(running.pid, number)
    out, err = running.communicate(timeout=20)
    assert running.returncode == code, err
    last = json.loads(out.splitlines()[-1])
    assert (last["type"], last["terminal_reason"]) == ("result", "interrupted")
    assert last["errors"] == ["interrupted by the user" if number == signal.SIGINT else "ended by SIGTERM"]
    assert err == f"wieldy: continue with: wieldy -p --resume {session}\n"
    done = wieldy("-p", "and now?", script([{"text": "on we go"}]), "--resume", session)
    assert done.stdout == "on we go\n"


def test_nothing_is_kept_when_nothing_is_to_be_kept(wieldy, script, tmp_path):
    done = wieldy("-p", "x", script([{"text": "y"}]), "--no-session-persistence")
    assert done.returncode == 0
    assert not list((tmp_path / "state").rglob("transcript.jsonl"))


def test_help_has_an_example(wieldy):
    done = wieldy("-p", "--help")
    assert done.returncode == 0
    assert "examples:" in done.stdout


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_while_it_waits_for_the_next_prompt_ends_it(script, project, environment, number, code):
    command = [sys.executable, "-m", "wieldy", "-p", "--input-format=stream-json", "--output-format=stream-json"]
    running = subprocess.Popen(
        [*command, script([{"text": "one"}])],
        cwd=project, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert running.stdout is not None
    assert running.stdin is not None
    running.stdin.write(json.dumps({"type": "user", "message": {"role": "user", "content": "go"}}) + "\n")
    running.stdin.flush()
    while json.loads(running.stdout.readline())["type"] != "result":
        pass
    time.sleep(0.1)
    os.kill(running.pid, number)
    assert running.wait(20) == code
    assert running.stderr is not None
    assert running.stderr.read().startswith("wieldy: continue with: wieldy -p --resume ")
    for stream in (running.stdin, running.stdout, running.stderr):
        stream.close()


def test_stream_json_has_the_result_of_a_call_that_the_loop_breaker_refused(wieldy, script):
    missing = [{"call": "Read", "input": {"file_path": "missing.txt"}}]
    done = wieldy("-p", "go", script(missing, missing, missing, [{"text": "given up"}]), "--output-format=stream-json")
    results = [line["message"]["content"][0] for line in lines(done) if line["type"] == "user"]
    assert [result["type"] for result in results] == ["tool_result"] * 3
    assert "has failed 2 times" in json.dumps(results[-1])


def test_text_mode_says_on_stderr_what_it_waits_for(wieldy, script):
    done = wieldy(
        "-p", "go", script([{"fail": "overloaded", "message": "too busy", "retry_after": 0.5}], [{"text": "ok"}])
    )
    assert (done.returncode, done.stdout) == (0, "ok\n")
    assert done.stderr == "wieldy: too busy; trying again in 1 s (attempt 2 of 8)\n"


@pytest.mark.asyncio
async def test_a_long_wait_for_an_answer_is_said_on_stderr(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "state"))

    async def prompts():
        yield "go"

    async with Session(tmp_path, model=Script([[{"pause": 0.5}, {"text": "late"}]]), settings={}) as session:
        assert await converse(session, prompts(), "text", lambda text: None, waiting_seconds=0.2) == 0
    reminders = capsys.readouterr().err.splitlines()
    assert len(reminders) == 2
    assert all("waiting for the model's answer" in line for line in reminders)


def test_stream_json_has_the_same_blocks_as_the_transcript(wieldy, script):
    read = {"call": "Read", "input": {"file_path": "b.txt"}}
    done = wieldy("-p", "go", script([{"text": "look"}, read], [{"text": "done"}]), "--output-format=stream-json")
    written = lines(done)
    exported = wieldy("sessions", "export", written[0]["session_id"])
    kept = [convert_record(json.loads(line)) for line in exported.stdout.splitlines()]
    answers = [block for line in written if line["type"] == "assistant" for block in line["message"]["content"]]
    results = [block for line in written if line["type"] == "user" for block in line["message"]["content"]]
    assert answers == [record.block for record in kept if isinstance(record, AssistantBlock)]
    assert results == [record.block for record in kept if isinstance(record, ToolResultRecord)]


def test_an_answer_can_be_required_to_fit_a_schema(project, wieldy, script) -> None:
    schema = {"type": "object", "properties": {"goal": {"type": "string"}}, "required": ["goal"]}
    (project / "schema.json").write_text(json.dumps(schema))
    model = script([{"text": "I think tea."}], [{"text": '```json\n{"goal": "tea"}\n```'}])
    done = wieldy("-p", "what?", model, "--json-schema", "schema.json")
    assert (done.returncode, done.stdout) == (0, '{"goal": "tea"}\n'), done.stderr
    done = wieldy("-p", "what?", model, "--json-schema", json.dumps(schema), "--output-format", "json")
    assert json.loads(done.stdout)["structured_output"] == {"goal": "tea"}
    done = wieldy("-p", "what?", script(*[[{"text": "no"}]] * 6), "--json-schema", "schema.json")
    assert done.returncode == 1
    assert "does not fit after 3 corrections" in done.stderr
    for broken in ("nowhere.json", "{", '{"type": "float"}'):
        done = wieldy("-p", "what?", model, "--json-schema", broken)
        assert done.returncode == 2, done.stderr


def test_a_misspelled_tool_is_a_usage_error(wieldy, script) -> None:
    done = wieldy("-p", "what?", script([{"text": "hello"}]), "--tools", "Raed,Grep")
    assert done.returncode == 2
    assert "did you mean `Read`?" in done.stderr
