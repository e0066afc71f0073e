"""`wieldy -p` with subagents: side by side, denied, counted, undone, and seen from outside."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.unit.models.wire import STREAMS, loopback, stream


def call(tool: str, **input: Any) -> dict[str, Any]:
    return {"call": tool, "input": input}


@pytest.fixture
def script(tmp_path: Path):
    """A recorded model with parts for its agents; gives the option that names it."""

    def make(turns: list[Any], agents: list[Any]) -> str:
        path = tmp_path / f"script{len(list(tmp_path.glob('script*')))}.json"
        path.write_text(json.dumps({"turns": turns, "agents": agents}))
        return f"--model=script:{path}"

    return make


THREE = [
    [
        call("Agent", agent_type="explore", prompt="look into a.py", description="look"),
        call("Agent", agent_type="explore", prompt="look into b.txt", description="look"),
        call("Agent", agent_type="general", prompt="write new.txt", description="write"),
    ],
    [{"text": "done"}],
]
USAGE = {"usage": {"input_tokens": 100, "output_tokens": 10}}
PARTS = [
    {"prompt": "a.py", "turns": [[USAGE, call("Read", file_path="a.py")], [{"pause": 1.0}, {"text": "TODO one"}]]},
    {"prompt": "b.txt", "turns": [[USAGE, call("Read", file_path="b.txt")], [{"pause": 1.0}, {"text": "hello"}]]},
    {
        "type": "general",
        "turns": [[USAGE, call("Write", file_path="new.txt", content="x")], [{"text": "I was not allowed to"}]],
    },
]


def test_agents_of_one_answer_each_give_their_result_and_one_is_denied_a_write(wieldy, script, project):
    done = wieldy("-p", "go", script(THREE, PARTS), "--output-format=stream-json")
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 3, done.stderr
    assert not (project / "new.txt").exists()

    result = told[-1]
    assert (result["subtype"], result["result"], result["num_turns"]) == ("success", "done", 2)
    assert result["usage"]["input_tokens"] == 300
    (denial,) = result["permission_denials"]
    assert (denial["tool_name"], denial["tool_input"]["file_path"]) == ("Write", "new.txt")
    assert {"explore", "general"} <= set(told[0]["agents"])

    (asked,) = [m for m in told if m["type"] == "assistant" and m["parent_tool_use_id"] is None and _calls(m)]
    first, second, third = (block["id"] for block in _calls(asked))
    inside = [m for m in told if m.get("parent_tool_use_id")]
    assert {m["parent_tool_use_id"] for m in inside} == {first, second, third}
    answers = Counter(m["parent_tool_use_id"] for m in inside if m["type"] == "assistant")
    assert answers == {first: 2, second: 2, third: 2}

    results = [m["message"]["content"][0] for m in told if m["type"] == "user" and m["parent_tool_use_id"] is None]
    said = {block["tool_use_id"]: block["content"][0]["text"] for block in results}
    one, two, three = said[first], said[second], said[third]
    assert one.startswith("TODO one")
    assert two.startswith("hello")
    assert "It was not permitted:\n- Permission denied for Write" in three


def _calls(line: dict[str, Any]) -> list[dict[str, Any]]:
    return [block for block in line["message"]["content"] if block["type"] == "tool_use"]


def test_what_an_agent_changed_is_undone_with_the_turn(wieldy, script, project):
    agent = {"turns": [[call("Write", file_path="new.txt", content="x\n")], [{"text": "written"}]]}
    model = script([[call("Agent", prompt="write")], [{"text": "done"}]], [agent])
    done = wieldy("-p", "go", model, "--permission-mode=acceptEdits")
    assert (done.stdout, done.returncode) == ("done\n", 0), done.stderr
    assert (project / "new.txt").read_text() == "x\n"
    undone = wieldy("undo", "--turn")
    assert undone.returncode == 0, undone.stderr
    assert not (project / "new.txt").exists()


def test_one_in_the_background_has_its_say_before_the_program_ends(wieldy, script):
    agent = {"turns": [[{"pause": 0.3}, call("Read", file_path="b.txt")], [{"text": "found hello"}]]}
    turns = [[call("Agent", prompt="look", run_in_background=True)], [{"text": "I wait"}], [{"text": "it is hello"}]]
    done = wieldy("-p", "go", script(turns, [agent]))
    assert (done.stdout, done.returncode) == ("it is hello\n", 0), done.stderr


def test_an_interrupt_ends_agents_and_their_commands(script, project, environment):
    agent = {"turns": [[call("Bash", command="touch started; sleep 61.25")]]}
    model = script([[call("Agent", prompt="wait")], [{"text": "never"}]], [agent])
    command = [sys.executable, "-m", "wieldy", "-p", "go", model, "--permission-mode=bypassPermissions"]
    program = subprocess.Popen(
        command, cwd=project, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        deadline = time.monotonic() + 30
        while not (project / "started").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        os.kill(program.pid, signal.SIGINT)
        program.communicate(timeout=20)
    finally:
        program.kill()
    assert program.returncode == 130
    assert "sleep 61.25" not in _processes()


def _processes() -> str:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace"))
            except OSError:
                continue
    return "\n".join(found)


def test_a_tool_alone_says_that_there_is_no_model(wieldy):
    shown = json.loads(wieldy("tools", "Agent", "--json").stdout)
    assert shown[0]["offered"] is False
    assert "it needs a model" in shown[0]["reason"]
    called = wieldy("call", "Agent", "prompt=do it")
    assert called.returncode != 0
    assert "it needs a model" in called.stdout + called.stderr


@pytest.mark.asyncio
@pytest.mark.parametrize(("wire", "model"), [("anthropic", "anthropic/claude-x"), ("openai", "openai/gpt-x")])
async def test_over_a_real_wire_an_agent_has_a_conversation_and_a_model_of_its_own(wire, model, project, environment):
    kinds = project / ".wieldy" / "agents"
    kinds.mkdir(parents=True)
    (kinds / "quick.md").write_text(
        "---\nname: quick\ndescription: Is quick.\ntools: Read\nmodel: small-one\n---\nYou are quick."
    )
    sends = ("call", "call_1", "Agent", '{"prompt": "what is in b.txt?", "agent_type": "quick"}')
    answers = [
        STREAMS[wire]([sends], 3),
        STREAMS[wire]([("call", "call_1", "Read", '{"file_path": "b.txt"}')], 3),
        STREAMS[wire]([("text", "it says hello")]),
        STREAMS[wire]([("text", "done")]),
    ]
    env = {**environment, "ANTHROPIC_API_KEY": "k", "OPENAI_API_KEY": "k"}
    async with loopback(*map(stream, answers)) as server:
        args = ["-p", "look", "--model", model, "--base-url", server.url]
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "wieldy", *args,
            cwd=project, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        out, err = await asyncio.wait_for(child.communicate(), 60)
    assert (child.returncode, out.decode()) == (0, "done\n"), err.decode()
    first, second, third, fourth = (one.body for one in server.received)
    assert [body["model"] for body in (first, second, third, fourth)] == [
        model.partition("/")[2], "small-one", "small-one", model.partition("/")[2],
    ]  # fmt: skip
    assert "- quick: Is quick." in json.dumps(first)
    assert "You are quick." in json.dumps(second)
    assert "look" not in json.dumps(second["messages"][-1])
    assert len(second["tools"]) == 1
    assert "hello" in json.dumps(third)
    assert "it says hello" in json.dumps(fourth)
    assert "You are quick." not in json.dumps(fourth)
