"""What the model knows of files outlives the process, and what others change is told to it once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from wieldy import Script, Toolbox
from wieldy.agent.records import FilesSeen
from wieldy.agent.transcript import records

pytestmark = pytest.mark.asyncio

READ = {"call": "Read", "input": {"file_path": "a.txt"}, "id": "r"}
EDIT = {"call": "Edit", "input": {"file_path": "a.txt", "old_string": "two", "new_string": "2"}, "id": "e"}
WRITE = {"call": "Write", "input": {"file_path": "a.txt", "content": "new\n"}, "id": "w"}
DONE = [{"text": "done"}]


@pytest.fixture
def make(make_session):
    def make(turns: list[Any], **options: Any) -> Any:
        return make_session(Script(turns), **{"builtins": True, "mode": "acceptEdits", **options})

    return make


@pytest.fixture
def file(tmp_path: Path, make: Any) -> Path:
    path = tmp_path / "project" / "a.txt"
    path.write_text("one\ntwo\nthree\n")
    return path


def results(session: Any) -> list[str]:
    blocks = [block for message in session.messages for block in message["content"]]
    return [str(block["content"]) for block in blocks if block["type"] == "tool_result"]


def prompts(session: Any) -> list[str]:
    """What was added to each message of the person."""
    messages = [message["content"] for message in session.messages if message["role"] == "user"]
    return [" ".join(b["text"] for b in blocks[1:]) for blocks in messages if blocks[0]["type"] == "text"]


async def ask(session: Any, prompt: str = "go") -> None:
    async with session:
        await session.ask(prompt)


@pytest.mark.parametrize("change", [EDIT, WRITE])
@pytest.mark.parametrize("fork", [False, True])
async def test_a_file_that_was_read_can_be_changed_after_a_restart(make, file, change, fork):
    first = make([[READ], DONE])
    await ask(first)
    second = make([[change], DONE], resume=first.id, fork=fork)
    await ask(second)
    assert file.read_text() in ("one\n2\nthree\n", "new\n"), results(second)
    third = make(
        [[{**WRITE, "id": "again", "input": {"file_path": "a.txt", "content": "last\n"}}], DONE], resume=second.id
    )
    await ask(third)
    assert file.read_text() == "last\n", "what a change left is known too"


async def test_a_file_that_has_changed_meanwhile_is_not_overwritten_after_a_restart(make, file):
    first = make([[READ], DONE])
    await ask(first)
    file.write_text("one\nTWO\nthree\n")
    second = make([[WRITE], DONE], resume=first.id)
    await ask(second)
    assert "was changed on disk since you read it" in results(second)[-1]
    assert file.read_text() == "one\nTWO\nthree\n"


async def test_only_the_lines_that_were_shown_are_known_after_a_restart(make, file):
    first = make([[{**READ, "input": {"file_path": "a.txt", "limit": 2}}], DONE])
    await ask(first)
    second = make([[WRITE], DONE], resume=first.id)
    await ask(second)
    assert "lines 3-3 are unknown to you" in results(second)[-1]


async def test_a_file_that_was_touched_and_has_the_same_bytes_is_known(make, file):
    first = make([[READ], DONE])
    await ask(first)
    os.utime(file, ns=(1, 1))
    second = make([[WRITE], DONE], resume=first.id)
    await ask(second)
    assert file.read_text() == "new\n"
    assert prompts(second) == ["", ""]


async def test_a_compaction_does_not_make_files_unknown(make, file):
    first = make([[READ], DONE, [{"text": "a.txt was read"}]])
    async with first:
        await first.ask("go")
        await first.compact()
    second = make([[WRITE], DONE], resume=first.id)
    await ask(second)
    assert file.read_text() == "new\n"


async def test_an_approved_edit_runs_after_a_restart_in_another_process(tmp_path, make, file):
    program = f"""
import asyncio, sys
from wieldy import Script, Session

async def main():
    turns = [[{READ!r}], [{EDIT!r}], [{{"text": "done"}}]]
    async with Session({str(file.parent)!r}, model=Script(turns), settings={{}}, ask="defer") as session:
        [event async for event in session.run("go")]
        print(session.id, [question.id for question in session.pending])

asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    id, _, pending = done.stdout.strip().partition(" ")
    assert pending == "['e']", done.stderr
    session = make([DONE], resume=id, ask="defer", mode="default")
    async with session:
        assert await session.answer({"e": True}) == "done"
    assert file.read_text() == "one\n2\nthree\n"


async def test_a_subagent_that_goes_on_knows_what_it_read(make_session, file):
    def make(prompt: str, step: dict[str, Any], **options: Any) -> Any:
        agents = [("general", prompt, Script([[step], [{"text": "done"}]]))]
        call = {"agent_type": "general", "prompt": prompt, **({"agent_id": agent.name} if options else {})}
        turns: list[list[dict[str, Any]]] = [[{"call": "Agent", "input": call, "id": prompt}], [{"text": "done"}]]
        return make_session(Script(turns, agents=agents), builtins=True, mode="acceptEdits", **options)

    first = make("look", READ)
    await ask(first)
    (agent,) = (first.box.workspace.session_dir / "agents").iterdir()
    assert any(isinstance(record, FilesSeen) for record in records(agent))
    second = make("change", WRITE, resume=first.id)
    await ask(second)
    assert file.read_text() == "new\n", results(second)


async def test_what_others_change_is_told_once_with_the_next_message_of_the_person(make, file):
    other = file.parent / "b.txt"
    other.write_text("b\n")
    session = make([[READ, {**READ, "id": "s", "input": {"file_path": "b.txt"}}], DONE, DONE, DONE, DONE, DONE])
    async with session:
        await session.ask("go")
        file.write_text("changed\n")
        await session.ask("and now")
        await session.ask("again")
        file.write_text("changed once more\n")
        other.unlink()
        await session.ask("third")
        said = prompts(session)
    assert said[0] == said[2] == ""
    assert "`a.txt`" in said[1] and "b.txt" not in said[1] and said[1].startswith("<system-reminder>Changed on disk")
    assert "`a.txt`" in said[3] and "`b.txt` (deleted)" in said[3]
    resumed = make([DONE], resume=session.id)
    await ask(resumed)
    assert prompts(resumed)[-1] == "", "what was told is not told again after a restart"


async def test_what_happened_while_the_session_was_closed_is_told_when_it_goes_on(make, file):
    first = make([[READ], DONE])
    await ask(first)
    file.write_text("changed\n")
    second = make([DONE], resume=first.id)
    await ask(second)
    assert "`a.txt`" in prompts(second)[-1]


async def test_the_session_is_not_told_of_its_own_edits(make, file):
    session = make([[READ], [EDIT], [WRITE], DONE, DONE])
    async with session:
        await session.ask("go")
        await session.ask("and now")
        assert prompts(session) == ["", ""]


async def test_who_changed_a_file_is_named_where_that_is_known(make, file):
    other = file.parent / "b.txt"
    other.write_text("b\n")
    command = {"call": "Bash", "input": {"command": "echo more >> b.txt"}, "id": "c"}
    turns = [[READ, {**READ, "id": "s", "input": {"file_path": "b.txt"}}], [command], DONE, DONE, [EDIT], DONE, DONE]
    session = make(turns, mode="bypassPermissions")
    async with session:
        await session.ask("go")
        async with Toolbox(file.parent, mode="acceptEdits", settings={}) as box:
            await box.call("Read", file_path="a.txt")
            await box.call("Edit", file_path="a.txt", old_string="one", new_string="1")
        await session.ask("and now")
        await session.box.call("Read", file_path="a.txt")
        await session.ask("edit")
        await session.box.undo()
        await session.ask("last")
        said = prompts(session)
    assert "`b.txt` (by a command)" in said[1] and "`a.txt` (by another session)" in said[1]
    assert "`a.txt` (by an undo)" in said[3]


async def test_what_is_told_of_changed_files_is_bounded_and_stays_one_reminder(make, file):
    names = [*(f"f{n}.txt" for n in range(40)), "<b>.txt"]
    for name in names:
        (file.parent / name).write_text("x\n")
    reads = [{**READ, "id": f"r{n}", "input": {"file_path": name}} for n, name in enumerate(names)]
    session = make([reads, DONE, DONE])
    async with session:
        await session.ask("go")
        for name in names:
            (file.parent / name).write_text("changed\n")
        await session.ask("and now")
        said = prompts(session)[1]
    assert said.count("`") == 20 and "31 more" in said and len(said) < 3_000
    assert "\\x3cb>.txt" in said, "a name cannot end the reminder"
