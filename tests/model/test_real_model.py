"""wieldy with a real model on both wires: whatever it says, calls arrive whole, results go back, and the session goes on."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.model.recorder import Passed, Recorder
from tests.model.wires import calls_answered, calls_sent, results_sent

from wieldy import Session, Toolbox

pytestmark = pytest.mark.timeout(900)
WIRES = [("anthropic/small", "", "/v1/messages"), ("llamacpp/small", "/v1", "/v1/chat/completions")]
LOOKING = {"Read", "Grep", "Glob", "LS"}
both_wires = pytest.mark.parametrize(("model", "path", "endpoint"), WIRES, ids=["messages", "chat"])


def headless(project: Path, wire: Recorder, model: str, path: str, *args: str) -> list[dict[str, Any]]:
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    home = {"HOME": str(project.parent / "person"), "WIELDY_HOME": str(project.parent / "state")}
    choices = [
        "--model",
        model,
        "--base-url",
        f"{wire.url}{path}",
        "--output-format",
        "stream-json",
        "--max-turns",
        "4",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "wieldy", "-p", *args, *choices],
        cwd=project,
        env={**kept, **home, "ANTHROPIC_API_KEY": "none"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode in {0, 3, 4}, done.stderr + done.stdout
    return [json.loads(line) for line in done.stdout.splitlines()]


def assert_every_call_was_answered(passed: Sequence[Passed]) -> int:
    """Each call of an answer is in the next request, as it was made and with its result; the number of calls."""
    count = 0
    for (path, _, _, answered), following in pairwise(passed):
        made = calls_answered(path, answered)
        sent = {call.id: call for call in calls_sent(path, following.asked)}
        brought = results_sent(path, following.asked)
        for call in made:
            assert sent[call.id] == call
            assert brought[call.id]
        count += len(made)
    return count


def assert_results_are_what_the_tools_say(project: Path, endpoint: str, asked: dict[str, Any]) -> None:
    """The same calls without any model give the same results, as far as they only look."""

    async def called(name: str, input: dict[str, Any]) -> str:
        async with Toolbox(root=project, settings={}) as box:
            return (await box.call(name, input)).text

    brought = results_sent(endpoint, asked)
    looking = [call for call in calls_sent(endpoint, asked) if call.name in LOOKING]
    assert looking, "the model called no tool that looks"
    for call in looking:
        assert json.dumps(asyncio.run(called(call.name, call.input)))[1:-1] in brought[call.id]


@both_wires
def test_a_run_calls_a_tool_of_the_project_and_can_be_gone_on_with(project, wire, model, path, endpoint):
    told = headless(project, wire, model, path, "Read notes.txt")
    first = wire.take()
    assert {(each.path, each.status) for each in first} == {(endpoint, 200)}
    assert len(first) > 1, "the model made no call"
    assert assert_every_call_was_answered(first) >= 1
    assert_results_are_what_the_tools_say(project, endpoint, first[-1].asked)
    results = [block for line in told if line["type"] == "user" for block in line["message"]["content"]]
    assert [block["tool_use_id"] for block in results] == list(results_sent(endpoint, first[-1].asked))

    headless(project, wire, model, path, "Search oil", "--resume", told[-1]["session_id"])
    second = wire.take()
    assert {each.status for each in second} == {200}
    before, after = first[-1].asked["messages"], second[0].asked["messages"]
    assert [_plain(message) for message in after[: len(before)]] == [_plain(message) for message in before]
    assert_every_call_was_answered(second)


@both_wires
@pytest.mark.asyncio
async def test_a_session_in_code_keeps_calls_and_results_together(project, wire, model, path, endpoint, monkeypatch):
    monkeypatch.setenv("WIELDY_HOME", str(project.parent / "state"))
    monkeypatch.setenv("ANTHROPIC_API_KEY", "none")
    where = {"root": project, "model": model, "base_url": f"{wire.url}{path}", "settings": {}, "max_turns": 4}
    async with Session(**where) as session:
        for prompt in ("List *.txt", "Search lantern", "Read plan.md"):
            kinds = [event.kind async for event in session.run(prompt)]
            assert kinds[-1] == "run.ended"
        name, messages = session.id, list(session.messages)
    passed = wire.take()
    assert {each.status for each in passed} == {200}
    assert sum(len(calls_answered(each.path, each.answered)) for each in passed) >= 2
    assert_paired(messages)
    async with Session(**where, resume=name) as again:
        assert list(again.messages) == messages
        kinds = [event.kind async for event in again.run("Read notes.txt")]
        assert kinds[-1] == "run.ended"
        assert_paired(again.messages)
    assert {each.status for each in wire.take()} == {200}


def assert_paired(messages: Sequence[Any]) -> None:
    """Every call is followed, in the very next message, by its result."""
    for message, following in pairwise([*messages, {"role": "user", "content": []}]):
        if message["role"] == "assistant":
            made = [block["id"] for block in message["content"] if block["type"] == "tool_use"]
            told = [block["tool_use_id"] for block in following["content"] if block["type"] == "tool_result"]
            assert told == made


def _plain(message: dict[str, Any]) -> Any:
    """A message without its marks for the provider's cache, which move on with the conversation."""
    return json.loads(
        json.dumps(message), object_hook=lambda each: {k: v for k, v in each.items() if k != "cache_control"}
    )
