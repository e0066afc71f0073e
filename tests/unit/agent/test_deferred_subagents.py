"""Questions of subagents that wait: they are open in the session, and an answer goes on inside the subagent, in any process."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.agent.oracle import check_history

from wieldy import AgentType, Script, Session, SessionError, tool
from wieldy.core.events import RunEnded, Steered

pytestmark = pytest.mark.asyncio

WORKER = AgentType("worker", "You work.", tools=["Bash", "Agent"])
LOOKER = AgentType("looker", "You look.", tools=["Read"])


class MemoryStore:
    def __init__(self) -> None:
        self.records: dict[str, list[bytes]] = {}
        self.broken = "nothing"

    async def append(self, session_id: str, records: list[bytes]) -> None:
        self.records.setdefault(session_id, []).extend(records)

    async def read(self, session_id: str) -> AsyncIterator[bytes]:
        if self.broken in session_id:
            raise ConnectionError("the store is away")
        for record in self.records.get(session_id, []):
            yield record

    async def list(self) -> list[str]:
        return list(self.records)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))
    root = tmp_path / "project"
    root.mkdir()
    for name in "ab":
        (tmp_path / f"{name}.txt").write_text(f"outside {name}\n")
    return root


def opened(project: Path, model: Script, **options: Any) -> Session:
    return Session(project, model=model, **{"settings": {}, "agents": [WORKER, LOOKER], "ask": "defer", **options})


def agent(prompt: str, id: str, type: str = "worker", **input: Any) -> dict[str, Any]:
    return {"call": "Agent", "input": {"agent_type": type, "prompt": prompt, **input}, "id": id}


def touch(name: str, id: str) -> dict[str, Any]:
    return {"call": "Bash", "input": {"command": f"touch {name}"}, "id": id}


def say(text: str) -> list[dict[str, Any]]:
    return [{"text": text}]


def ids(session: Session) -> list[str]:
    return [question.id for question in session.pending]


STORES: list[Any] = [None, MemoryStore]


@pytest.mark.parametrize("store", STORES)
async def test_an_answer_goes_on_inside_the_subagent_and_then_in_its_parent(project, store):
    kept = {"store": store()} if store else {}
    first = Script(
        [[{"text": "I send one."}, agent("make it", "A")]], agents=[("worker", "", Script([[touch("made", "t")]]))]
    )
    async with opened(project, first, **kept) as session:
        events = [event async for event in session.run("go")]
        assert isinstance(events[-1], RunEnded)
        assert (events[-1].why, events[-1].text) == ("waiting", "I send one.")
        (question,) = session.pending
        data = question.as_dict()
        assert (data["id"], data["name"], data["input"]) == ("t", "Bash", {"command": "touch made"})
        assert data["agent"].startswith("worker agent agent_")
    assert not (project / "made").exists()
    worker = Script([say("It is made.")])
    model = Script([say("done")], agents=[("worker", "make it", worker)])
    async with opened(project, model, resume=session.id, **kept) as resumed:
        assert ids(resumed) == ["t"]
        assert await resumed.answer({"t": True}) == "done"
        assert (project / "made").exists()
        assert resumed.pending == []
        check_history(resumed.messages)
    assert "make it" in str(worker.requests[0].messages[0].content)
    assert worker.requests[0].messages[-1].content[0]["tool_use_id"] == "t"
    assert "It is made." in str(model.requests[0].messages[-1].content)
    if store:
        (name,) = [each for each in kept["store"].records if each != session.id]
        assert name.startswith(f"{session.id}.agent_")
        assert b"It is made." in b"".join(kept["store"].records[name])


async def test_it_goes_on_in_the_same_session_object_that_keeps_nothing(project):
    model = Script([[agent("x", "A")], say("done")], agents=[("worker", "", Script([[touch("made", "t")]]))])
    async with opened(project, model, persist=False) as session:
        await session.ask("go")
        model.agents = [("worker", "", Script([say("ok")]))]
        assert await session.answer({"t": True}) == "done"
    assert (project / "made").exists()


async def test_words_reach_the_subagent(project):
    first = Script([[agent("x", "A")]], agents=[("worker", "", Script([[touch("made", "t")]]))])
    async with opened(project, first) as session:
        await session.ask("go")
    worker = Script([say("I left it.")])
    async with opened(project, Script([say("done")], agents=[("worker", "", worker)]), resume=session.id) as resumed:
        assert await resumed.answer({"t": "not on Friday"}) == "done"
    assert "not on Friday" in str(worker.requests[0].messages[-1].content)
    assert not (project / "made").exists()


async def test_several_subagents_ask_several_questions_at_once(project, tmp_path):
    def look(name: str) -> dict[str, Any]:
        return {"call": "Read", "input": {"file_path": str(tmp_path / f"{name[0]}.txt")}, "id": name}

    first = Script(
        [[agent("one", "A", "looker"), agent("two", "B", "looker")]],
        agents=[
            ("looker", "one", Script([[look("a1"), look("b1")]])),
            ("looker", "two", Script([[look("a2"), look("b2")]])),
        ],
    )
    async with opened(project, first) as session:
        await session.ask("go")
        assert sorted(ids(session)) == ["a1", "a2", "b1", "b2"]
    one, two = Script([say("one is done")]), Script([say("two is done")])
    model = Script([say("done")], agents=[("looker", "one", one), ("looker", "two", two)])
    async with opened(project, model, resume=session.id) as resumed:
        async for event in resumed.answer({"a1": True, "b1": False, "a2": True}):
            last = event
        assert isinstance(last, RunEnded) and last.why == "waiting"
        assert ids(resumed) == ["b2"]
        assert [block["is_error"] for block in one.requests[0].messages[-1].content] == [False, True]
    async with opened(project, model, resume=session.id) as again:
        assert ids(again) == ["b2"]
        assert await again.answer({"b2": True}) == "done"
        check_history(again.messages)
    assert "outside b" in str(two.requests[0].messages[-1].content)
    results = str(model.requests[0].messages[-1].content)
    assert "one is done" in results and "two is done" in results


@pytest.mark.parametrize("store", STORES)
async def test_a_subagent_of_a_subagent_waits_through_both(project, store):
    kept = {"store": store()} if store else {}
    inner = ("worker", "inner", Script([[touch("made", "t")]]))
    outer = ("worker", "outer", Script([[agent("inner", "B")]]))
    settings = {"agents": {"maxDepth": 2}}
    first = Script([[agent("outer", "A")]], agents=[inner, outer])
    async with opened(project, first, settings=settings, **kept) as session:
        await session.ask("go")
        assert ids(session) == ["t"]
    second = Script(
        [say("done")],
        agents=[("worker", "inner", Script([[touch("more", "u")]])), ("worker", "outer", Script([say("never said")]))],
    )
    async with opened(project, second, resume=session.id, settings=settings, **kept) as resumed:
        await resumed.answer({"t": True})
        assert (project / "made").exists()
        assert ids(resumed) == ["u"]
    outer_script = Script([say("outer is done")])
    third = Script(
        [say("done")], agents=[("worker", "inner", Script([say("inner is done")])), ("worker", "outer", outer_script)]
    )
    async with opened(project, third, resume=session.id, settings=settings, **kept) as again:
        assert await again.answer({"u": True}) == "done"
    assert "inner is done" in str(outer_script.requests[0].messages[-1].content)
    assert "outer is done" in str(third.requests[0].messages[-1].content)


async def test_a_subagent_in_the_background_waits_and_reports_when_it_is_over(project):
    first = Script(
        [[agent("x", "A", run_in_background=True)], say("I go on meanwhile.")],
        agents=[("worker", "", Script([[touch("made", "t")]]))],
    )
    async with opened(project, first) as session:
        events = [event async for event in session.run("go")]
        assert isinstance(events[-1], RunEnded)
        assert (events[-1].why, events[-1].text) == ("waiting", "I go on meanwhile.")
        assert ids(session) == ["t"]
    model = Script([say("I see.")], agents=[("worker", "", Script([say("It is made.")]))])
    async with opened(project, model, resume=session.id) as resumed:
        assert await resumed.answer({"t": True}) == "I see."
        assert resumed.pending == []
        check_history(resumed.messages)
    assert (project / "made").exists()
    assert "It is made." in str(model.requests[0].messages[-1].content)


async def test_a_new_prompt_leaves_the_questions_of_calls_but_not_those_of_the_background(project):
    first = Script(
        [[agent("x", "A", run_in_background=True)], say("sent"), say("hello")],
        agents=[("worker", "", Script([[touch("made", "t")]]))],
    )
    async with opened(project, first) as session:
        await session.ask("go")
        events = [event async for event in session.run("hi")]
        assert isinstance(events[-1], RunEnded)
        assert (events[-1].why, events[-1].text) == ("waiting", "hello")
        assert ids(session) == ["t"]
    second = Script([[agent("x", "B")], say("never mind")], agents=[("worker", "", Script([[touch("more", "u")]]))])
    async with opened(project, second) as other:
        await other.ask("go")
        assert await other.ask("forget it") == "never mind"
        assert other.pending == []
        check_history(other.messages)
        with pytest.raises(SessionError, match="no question is waiting"):
            await other.answer({"u": True})


async def test_a_delegated_task_waits_and_its_report_is_the_answer(project):
    worker = Script([[{"text": "I must ask."}, touch("made", "t")]])
    async with opened(project, Script([], agents=[("worker", "", worker)])) as session:
        assert await session.delegate("worker", "make it") == "I must ask."
        assert ids(session) == ["t"]
    model = Script([say("hello")], agents=[("worker", "make it", Script([say("It is made.")]))])
    async with opened(project, model, resume=session.id) as resumed:
        assert await resumed.ask("hi") == "hello"  # the conversation goes on beside it
        assert ids(resumed) == ["t"]
        assert await resumed.answer({"t": True}) == "It is made."
        assert resumed.pending == []
        assert len(resumed.messages) == 2
    assert (project / "made").exists()


async def test_a_delegated_task_that_fails_after_the_answer_raises(project):
    async with opened(project, Script([], agents=[("worker", "", Script([[touch("made", "t")]]))])) as session:
        await session.delegate("worker", "make it")
    broken = Script([[{"fail": "bad_request", "message": "no such model"}]])
    async with opened(project, Script([], agents=[("worker", "", broken)]), resume=session.id) as resumed:
        with pytest.raises(SessionError, match="no such model"):
            await resumed.answer({"t": True})


async def test_a_delegated_task_that_cannot_go_on_after_the_answer_raises(project):
    async with opened(project, Script([], agents=[("worker", "", Script([[touch("made", "t")]]))])) as session:
        await session.delegate("worker", "make it")
    shutil.rmtree(session.box.workspace.session_dir / "agents")
    async with opened(project, Script([]), resume=session.id) as resumed:
        with pytest.raises(SessionError, match=r"agent_\w+ cannot continue: There is no agent"):
            await resumed.answer({"t": True})
        assert resumed.pending == []


async def test_a_subagent_that_cannot_go_on_now_keeps_its_question(project):
    """At most one may be at work, and two are answered at once; then the store cannot be read for a moment."""
    store = MemoryStore()
    tasks = [agent(name, name.upper(), run_in_background=True) for name in "ab"]
    workers = [("worker", name, Script([[touch(name, f"t{name}")]])) for name in "ab"]
    model = Script([tasks[:1], say("one"), tasks[1:], say("two")], agents=workers)
    options: dict[str, Any] = {"store": store, "settings": {"agents": {"maxRunning": 1}}}
    async with opened(project, model, **options) as session:
        await session.ask("go")
        await session.ask("more")
        assert ids(session) == ["ta", "tb"]
    model = Script([say("I see.") for _ in range(2)], agents=[("worker", "", Script([say("It is made.")]))])
    async with opened(project, model, resume=session.id, **options) as resumed:
        assert await resumed.answer({"ta": True, "tb": True}) == "I see."
        assert (project / "a").exists()
        assert not (project / "b").exists()
        assert ids(resumed) == ["tb"]
    async with opened(project, model, resume=session.id, **options) as resumed:
        store.broken = "agent_"
        assert await resumed.answer({"tb": True}) == ""
        assert ids(resumed) == ["tb"]
        store.broken = "nothing"
        assert await resumed.answer({"tb": True}) == "I see."
        assert (project / "b").exists()


@pytest.mark.parametrize("store", STORES)
async def test_the_question_can_be_answered_in_a_fork_and_in_the_original(project, store):
    kept = {"store": store()} if store else {}
    first = Script([[agent("x", "A")]], agents=[("worker", "", Script([[touch("made", "t")]]))])
    async with opened(project, first, **kept) as session:
        await session.ask("go")
    for fork, text in ((True, "forked"), (False, "original")):
        model = Script([say(text)], agents=[("worker", "", Script([say("ok")]))])
        async with opened(project, model, resume=session.id, fork=fork, **kept) as resumed:
            assert await resumed.answer({"t": True}) == text
            check_history(resumed.messages)


async def test_a_message_to_the_model_while_the_subagent_still_works_leaves_its_question_open(project):
    heard = asyncio.Event()

    @tool(read_only=True)
    async def linger() -> str:
        """Work on beside the call that has to be asked about."""
        while not session.conversation.pending:
            await asyncio.sleep(0.01)
        session.steer("are you there?")
        await heard.wait()
        return "over"

    worker = AgentType("worker", "You work.", tools=["Read", "linger"])
    read = {"call": "Read", "input": {"file_path": str(project.parent / "a.txt")}, "id": "r"}
    model = Script(
        [[agent("x", "A", run_in_background=True)], say("sent"), say("I am")],
        agents=[("worker", "", Script([[read, {"call": "linger", "id": "l"}]]))],
    )
    async with opened(project, model, agents=[worker], tools=[linger]) as session:
        async for event in session.run("go"):
            if isinstance(event, Steered):
                heard.set()
        assert isinstance(event, RunEnded)
        assert (event.why, event.text) == ("waiting", "I am")
        assert ids(session) == ["r"]


async def test_a_fork_can_be_made_where_the_transcript_of_a_subagent_is_gone(project):
    first = Script([[agent("x", "A")]], agents=[("worker", "", Script([[touch("made", "t")]]))])
    async with opened(project, first) as session:
        await session.ask("go")
    shutil.rmtree(session.box.workspace.session_dir / "agents")
    async with opened(project, Script([say("hello")]), resume=session.id, fork=True) as fork:
        assert await fork.ask("hi") == "hello"
        check_history(fork.messages)


async def test_a_store_that_refuses_the_copy_of_a_subagent_is_reported_as_such(project):
    class Full(MemoryStore):
        async def append(self, session_id: str, records: list[bytes]) -> None:
            if is_full:
                raise OSError("no space left")
            await super().append(session_id, records)

    store, is_full = Full(), False
    first = Script([[agent("x", "A")]], agents=[("worker", "", Script([[touch("made", "t")]]))])
    async with opened(project, first, store=store) as session:
        await session.ask("go")
    is_full = True
    fork = opened(project, Script([say("hello")]), resume=session.id, fork=True, store=store)
    with pytest.raises(SessionError, match=r"cannot be written: no space left"):
        await fork.ask("hi")
    await fork.aclose()


PROGRAM = """
import asyncio, os, signal, sys
from wieldy import AgentType, Script, Session, tool

@tool(needs_permission=True)
async def step(name: str) -> str:
    '''Do a step.'''
    with open("steps", "a") as file:
        file.write(name + "\\n")
    if name == os.environ.get("DIE_AT"):
        os.kill(os.getpid(), signal.SIGKILL)
    return "did " + name

@tool(read_only=True)
async def die() -> str:
    '''End the process.'''
    os.kill(os.getpid(), signal.SIGKILL)

def call(name):
    return {"call": "step", "input": {"name": name}, "id": name}

async def main():
    background = os.environ.get("BACKGROUND") == "yes"
    agent = {"call": "Agent", "input": {"agent_type": "worker", "prompt": "x", "run_in_background": background}, "id": "A"}
    scripts = {
        "start": ([[agent], [{"text": "sent"}]], [[call("one")]]),
        "go on": ([[{"text": "parent is done"}]], [[call("two")]]),
        "die": ([], [[{"call": "die", "id": "d"}]]),
        "finish": ([[{"text": "parent is done"}]], [[{"text": "worker is done"}]]),
    }
    turns, worker = scripts[sys.argv[1]]
    model = Script(turns, agents=[("worker", "", Script(worker))])
    resume = sys.argv[2] if len(sys.argv) > 2 else None
    options = {"settings": {}, "tools": [step, die], "agents": [AgentType("worker", "You work.", tools=["step", "die"])]}
    async with Session(".", model=model, ask="defer", resume=resume, **options) as session:
        if resume is None:
            await session.ask("go")
            print(session.id)
        else:
            print([question.id for question in session.pending], flush=True)
            print(await session.answer({question.id: True for question in session.pending}))
        print([question.id for question in session.pending])

asyncio.run(main())
"""


def run(project: Path, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, *args],
        cwd=project,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("background", ["no", "yes"])
async def test_a_process_that_is_killed_inside_the_subagent_loses_no_question(project, background):
    started = run(project, "start", BACKGROUND=background)
    session_id, pending = started.stdout.split("\n")[:2]
    assert pending == "['one']", started.stderr
    went_on = run(project, "go on", session_id, BACKGROUND=background)
    assert went_on.stdout.splitlines()[0] == "['one']", went_on.stderr
    assert went_on.stdout.splitlines()[-1] == "['two']", went_on.stderr
    killed = run(project, "finish", session_id, DIE_AT="two", BACKGROUND=background)
    assert killed.returncode == -signal.SIGKILL
    assert killed.stdout == "['two']\n"
    finished = run(project, "finish", session_id, BACKGROUND=background)
    assert finished.stdout == "[]\nparent is done\n[]\n", finished.stderr
    # Nobody can know whether a call that was killed had done its work: the model is told so, and nothing is made again.
    assert (project / "steps").read_text().splitlines() == ["one", "two"]


async def test_a_process_that_is_killed_after_the_answer_was_used_goes_on_without_another(project):
    session_id = run(project, "start").stdout.split("\n")[0]
    killed = run(project, "die", session_id)
    assert (killed.returncode, killed.stdout) == (-signal.SIGKILL, "['one']\n")
    finished = run(project, "finish", session_id)
    assert finished.stdout == "[]\nparent is done\n[]\n", finished.stderr
    assert (project / "steps").read_text().splitlines() == ["one"]
