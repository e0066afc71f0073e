"""kill -9 after any record of a session: every call that had begun is in the history, and none is ever run again."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.agent.oracle import check_history

from wieldy.agent.repair import INTERRUPTED
from wieldy.agent.transcript import fold, records

VICTIM = """
import asyncio, os, signal, sys
from wieldy import Script, Session, tool
from wieldy.agent.transcript import Transcript

root, deadly = sys.argv[1], int(sys.argv[2])
count = 0

def ledger(line):
    with open(root + "/ledger", "a") as file:
        file.write(line + "\\n")

@tool(needs_permission=False)
async def act(word: str) -> str:
    "Do something that lasts."
    ledger("began " + word)
    await asyncio.sleep(0.002)
    ledger("ended " + word)
    return "did " + word

@tool(read_only=True)
async def look(word: str) -> str:
    "Look."
    ledger("began " + word)
    return "saw " + word

turns = [[{"text": "well"}, {"call": "look", "input": {"word": f"l{n}"}}, {"call": "act", "input": {"word": f"a{n}"}},
          {"call": "act", "input": {"word": f"b{n}"}}] for n in range(3)]

class DyingTranscript(Transcript):
    def append(self, record):
        global count
        super().append(record)
        count += 1
        if count == deadly:
            os.kill(os.getpid(), signal.SIGKILL)

async def main():
    model = Script([*turns, [{"text": "end"}]])
    s = Session(root, model=model, tools=[act, look], builtins=False, settings={}, mode="bypassPermissions")
    s.transcript = DyingTranscript(s.box.workspace.session_dir)
    async with s:
        await s.ask("go")

asyncio.run(main())
"""


@pytest.mark.parametrize("deadly", [2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 19, 24])
def test_a_kill_after_any_record_leaves_a_trace_of_every_call_that_began(deadly, tmp_path, environment):
    done = subprocess.run(
        [sys.executable, "-c", VICTIM, str(tmp_path), str(deadly)], env=environment, capture_output=True, timeout=60
    )
    assert done.returncode in (0, -9), done.stderr.decode()
    (folder,) = (Path(environment["WIELDY_HOME"]) / "sessions").iterdir()
    messages = [message.as_dict() for message in fold(records(folder)).messages]
    check_history(messages)
    ledger = tmp_path / "ledger"
    did = ledger.read_text().split("\n") if ledger.exists() else []
    began = [line.removeprefix("began ") for line in did if line.startswith("began ")]
    assert len(began) == len(set(began)), "no tool ran twice"
    blocks = [block for message in messages for block in message["content"]]
    calls = {block["input"]["word"]: block["id"] for block in blocks if block["type"] == "tool_use"}
    results = {block["tool_use_id"]: json.dumps(block["content"]) for block in blocks if block["type"] == "tool_result"}
    for word in began:
        assert word in calls, "a call that began is in the history"
        answer = results.get(calls[word])
        assert answer is not None and (f" {word}" in answer or INTERRUPTED in answer)
        if f"ended {word}" not in did and not word.startswith("l"):
            assert INTERRUPTED in answer
