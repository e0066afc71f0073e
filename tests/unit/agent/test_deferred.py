"""Approvals that can wait: a run ends at its questions and goes on when they are answered, in any process."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.unit.agent.oracle import check_history

from wieldy import Answer, Script, Session, SessionError, tool
from wieldy.core.events import RunEnded, ToolStarted

pytestmark = pytest.mark.asyncio


def asks(word: str, id: str) -> dict[str, Any]:
    return {"call": "asks", "input": {"word": word}, "id": id}


NOTE = {"call": "note", "input": {"word": "tea"}, "id": "n"}


async def test_a_run_ends_at_a_question_and_goes_on_with_its_answer(make_session, ledger):
    model = Script([[{"text": "I will."}, NOTE, asks("x", "a")], [{"text": "done"}]])
    async with make_session(model, ask="defer") as session:
        events = [event async for event in session.run("go")]
        last = events[-1]
        assert isinstance(last, RunEnded)
        assert (last.why, last.is_error, last.text) == ("waiting", False, "I will.")
        assert ledger.ran == ["tea"]
        (question,) = session.pending
        assert question.id == "a"
        data = json.loads(json.dumps(question.as_dict()))
        assert data["kind"] == "permission"
        assert (data["name"], data["input"]) == ("asks", {"word": "x"})
        assert data["decision"]["behavior"] == "ask"
        assert data["decision"]["why"]
        assert await session.answer({"a": True}) == "done"
        assert ledger.ran == ["tea", "x"]
        assert session.pending == []
        check_history(session.messages)


@pytest.mark.parametrize(
    ("reply", "words"), [(False, "declined"), ("not on Friday", "not on Friday"), (Answer(False, "never"), "never")]
)
async def test_a_no_reaches_the_model(make_session, ledger, reply, words):
    model = Script([[asks("x", "a")], [{"text": "as you wish"}]])
    async with make_session(model, ask="defer") as session:
        await session.ask("go")
        assert await session.answer({"a": reply}) == "as you wish"
        assert ledger.ran == []
        assert words in str(model.requests[1].messages[-1].content)


async def test_it_goes_on_in_another_session_object(make_session, ledger):
    async with make_session(Script([[asks("x", "a"), asks("y", "b")]]), ask="defer") as session:
        await session.ask("go")
        assert [question.id for question in session.pending] == ["a"]
    resumed = make_session(Script([[{"text": "never said"}], [{"text": "done"}]][1:]), resume=session.id, ask="defer")
    assert [question.id for question in resumed.pending] == ["a"]
    async with resumed:
        kinds = [event.kind async for event in resumed.answer({"a": True})]
        assert kinds[-1] == "run.ended"
        # The second call may touch anything, so it waited for the first.
        assert ledger.ran == ["x"]
        assert [question.id for question in resumed.pending] == ["b"]
        assert await resumed.answer({"b": True}) == "done"
    assert ledger.ran == ["x", "y"]


async def test_it_goes_on_in_another_process(tmp_path, make_session):
    program = """
import asyncio, sys
from wieldy import Script, Session, tool

@tool
async def asks(word: str = "") -> str:
    '''Needs permission.'''
    return f"done with {word}"

async def main():
    model = Script([[{"text": "finished"}]])
    async with Session(sys.argv[1], model=model, settings={}, tools=[asks], resume=sys.argv[2]) as session:
        (question,) = session.pending
        print(await session.answer({question.id: True}), session.messages[2]["content"][0]["content"][0]["text"])

asyncio.run(main())
"""
    async with make_session(Script([[asks("tea", "a")]]), ask="defer") as session:
        await session.ask("go")
    done = subprocess.run(
        [sys.executable, "-c", program, session.box.workspace.root, session.id],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == "finished done with tea\n", done.stderr


async def test_independent_questions_are_asked_together(make_session, tmp_path):
    @tool(writes="path")
    async def touch(path: str) -> str:
        """Touch a file."""
        return f"touched {path[-1]}"

    calls = [{"call": "touch", "input": {"path": name}, "id": name} for name in "ab"]
    async with make_session(Script([calls, [{"text": "done"}]]), ask="defer", tools=[touch]) as session:
        await session.ask("go")
        assert [question.id for question in session.pending] == ["a", "b"]
        assert await session.answer({"a": True, "b": "no"}) == "done"
        results = session.messages[2]["content"]
        assert [block["is_error"] for block in results] == [False, True]


async def test_a_later_call_that_depends_on_a_waiting_one_waits_too(make_session, tmp_path):
    order: list[str] = []

    @tool(writes="path")
    async def write(path: str) -> str:
        """Write."""
        order.append("write")
        return "written"

    @tool(reads="path")
    async def look(path: str) -> str:
        """Look."""
        order.append("look")
        return "seen"

    calls = [
        {"call": "write", "input": {"path": "a"}, "id": "w"},
        {"call": "look", "input": {"path": "a"}, "id": "r"},
        {"call": "look", "input": {"path": "b"}, "id": "free"},
    ]
    async with make_session(Script([calls, [{"text": "done"}]]), ask="defer", tools=[write, look]) as session:
        await session.ask("go")
        assert order == ["look"]
        assert await session.answer({"w": True}) == "done"
        assert order == ["look", "write", "look"]
        assert [block["tool_use_id"] for block in session.messages[2]["content"]] == ["w", "r", "free"]


async def test_a_changed_input_is_checked_and_judged_but_not_asked_about_again(make_session, ledger):
    model = Script([[asks("x", "a")], [{"text": "done"}]])
    async with make_session(model, ask="defer") as session:
        await session.ask("go")
        assert await session.answer({"a": {"allowed": True, "updated_input": {"word": "better"}}}) == "done"
        assert ledger.ran == ["better"]
    model = Script([[asks("x", "a")], [{"text": "done"}]])
    async with make_session(model, ask="defer") as session:
        await session.ask("go")
        await session.answer({"a": Answer(True, updated_input={"word": 3, "more": 4})})
        assert ledger.ran == ["better"]
        assert "InputValidationError" in str(model.requests[1].messages[-1].content)


async def test_a_rule_that_came_meanwhile_decides(make_session, ledger):
    async with make_session(Script([[asks("x", "a")]]), ask="defer") as session:
        await session.ask("go")
    denied = {"permissions": {"deny": ["asks"]}}
    model = Script([[{"text": "done"}]])
    async with make_session(model, resume=session.id, settings=denied) as resumed:
        assert await resumed.answer({"a": True}) == "done"
    assert ledger.ran == []


async def test_whoever_sends_a_new_prompt_instead_leaves_the_question(make_session, ledger):
    model = Script([[asks("x", "a")], [{"text": "fine"}]])
    async with make_session(model, ask="defer") as session:
        await session.ask("go")
        assert await session.ask("never mind") == "fine"
        assert session.pending == []
        check_history(session.messages)
        with pytest.raises(SessionError, match="no question is waiting"):
            await session.answer({"a": True})
    assert ledger.ran == []


@pytest.mark.parametrize("replies", [{"b": True}, {"a": 3}, {"a": None}, {"a": {"allow": True}}, {"a": [True]}])
async def test_a_reply_that_answers_nothing_is_an_error_and_changes_nothing(make_session, replies):
    model = Script([[asks("x", "a")], [{"text": "done"}]])
    async with make_session(model, ask="defer") as session:
        await session.ask("go")
        with pytest.raises(SessionError):
            await session.answer(replies)
        assert [question.id for question in session.pending] == ["a"]
        assert await session.answer({"a": True}) == "done"


ASK = {"question": "Which color?", "options": ["red", "blue"]}


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        ("red", "→ red"),
        ("as you like", "→ as you like"),
        (["blue"], "→ blue"),
        ([["red", "blue"]], "→ red; blue"),
        ({"Which color?": "blue"}, "→ blue"),
        (False, "does not want to answer"),
    ],
)
async def test_questions_about_the_task_can_wait_too(make_session, reply, answer):
    call = {"call": "AskUser", "input": {"questions": [ASK]}, "id": "q"}
    async with make_session(Script([[call]]), ask="defer", builtins=True) as session:
        await session.ask("go")
        (question,) = session.pending
        data = json.loads(json.dumps(question.as_dict()))
        assert (data["kind"], data["questions"][0]["question"]) == ("user", "Which color?")
    model = Script([[{"text": "done"}]])
    async with make_session(model, resume=session.id, builtins=True) as resumed:
        with pytest.raises(SessionError):
            await resumed.answer({"q": ["one", "two"]})
        assert await resumed.answer({"q": reply}) == "done"
    assert answer in str(model.requests[0].messages[-1].content)


async def test_leaving_the_answer_early_interrupts_it(make_session):
    slow = {"call": "slow", "input": {"word": "slow"}, "id": "s"}
    async with make_session(Script([[asks("x", "a")], [slow], [{"text": "fine"}]]), ask="defer") as session:
        await session.ask("go")
        async for event in session.answer({"a": True}):
            if isinstance(event, ToolStarted) and event.name == "slow":
                break
        assert await session.ask("again") == "fine"


async def test_an_ask_that_is_neither_a_function_nor_defer_is_an_error(make_session):
    with pytest.raises(TypeError, match="or 'defer'"):
        make_session(Script([]), ask="later")


async def test_questions_can_be_answered_in_a_fork_and_in_the_original(make_session, ledger):
    async with make_session(Script([[NOTE, asks("x", "a")], [{"text": "original"}]]), ask="defer") as session:
        await session.ask("go")
        async with make_session(Script([]), resume=session.id, fork=True, ask="defer") as idle:
            assert [question.id for question in idle.pending] == ["a"]
        async with make_session(Script([[{"text": "forked"}]]), resume=session.id, fork=True) as fork:
            assert await fork.answer({"a": True}) == "forked"
            check_history(fork.messages)
            assert "noted tea" in str(fork.messages[2])
        assert await session.answer({"a": True}) == "original"
    assert ledger.ran == ["tea", "x", "x"]


async def test_a_fork_that_waits_can_be_resumed_itself(make_session, ledger):
    async with make_session(Script([[asks("x", "a"), asks("y", "b")]]), ask="defer") as session:
        await session.ask("go")
    async with make_session(Script([]), resume=session.id, fork=True, ask="defer") as fork:
        await fork.answer({"a": True})
        assert [question.id for question in fork.pending] == ["b"]
    async with make_session(Script([[{"text": "done"}]]), resume=fork.id) as again:
        assert await again.answer({"b": True}) == "done"
        check_history(again.messages)
    assert ledger.ran == ["x", "y"]


async def test_a_conversation_with_open_questions_is_not_compacted(make_session):
    async with make_session(Script([[asks("x", "a")]]), ask="defer") as session:
        await session.ask("go")
        with pytest.raises(SessionError, match="questions are waiting"):
            await session.compact()
        assert [question.id for question in session.pending] == ["a"]


@pytest.mark.parametrize("call", ["Write", "Bash"])
async def test_an_answer_is_about_the_folder_in_which_it_was_asked(tmp_path, monkeypatch, call):
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "state"))
    (tmp_path / "project" / "sub").mkdir(parents=True)
    input = {"file_path": "g", "content": "x"} if call == "Write" else {"command": "touch g"}
    turn = [{"call": "Bash", "input": {"command": "cd sub"}, "id": "c"}, {"call": call, "input": input, "id": "w"}]
    options: dict[str, Any] = {"ask": "defer", "settings": {}}
    async with Session(tmp_path / "project", model=Script([turn]), **options) as session:
        await session.ask("go")
        assert [question.id for question in session.pending] == ["w"]
    async with Session(
        tmp_path / "project", model=Script([[{"text": "done"}]]), resume=session.id, **options
    ) as resumed:
        assert await resumed.answer({"w": True}) == "done"
    assert (tmp_path / "project" / "sub" / "g").exists()
    assert not (tmp_path / "project" / "g").exists()


async def test_an_answer_is_not_taken_for_another_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "state"))
    (tmp_path / "project" / "sub").mkdir(parents=True)
    turn = [{"call": "Bash", "input": {"command": "cd sub"}, "id": "c"}]
    turn.append({"call": "Bash", "input": {"command": "touch g"}, "id": "w"})
    options: dict[str, Any] = {"ask": "defer", "settings": {}}
    async with Session(tmp_path / "project", model=Script([turn]), **options) as session:
        await session.ask("go")
    (tmp_path / "project" / "sub").rmdir()
    async with Session(tmp_path / "project", model=Script([]), resume=session.id, **options) as resumed:
        await resumed.answer({"w": True})
        assert [question.id for question in resumed.pending] == ["w"]
    assert not (tmp_path / "project" / "g").exists()


@pytest.mark.parametrize("is_stored", [False, True])
async def test_two_that_resume_a_session_cannot_both_answer_its_question(make_session, ledger, is_stored):
    class Records(dict[str, list[bytes]]):
        async def append(self, session_id: str, records: list[bytes]) -> None:
            self.setdefault(session_id, []).extend(records)

        async def read(self, session_id: str) -> AsyncIterator[bytes]:
            for record in self.get(session_id, []):
                yield record

        async def list(self) -> list[str]:
            return [*self]

    options: dict[str, Any] = {"ask": "defer", **({"store": Records()} if is_stored else {})}
    async with make_session(Script([[asks("x", "a")]]), **options) as session:
        await session.ask("go")
    first, second = (make_session(Script([[{"text": "done"}]]), resume=session.id, **options) for _ in range(2))
    async with first:
        with pytest.raises(SessionError, match="is open in this process"):
            await second.__aenter__()
        assert await first.answer({"a": True}) == "done"
    await second.aclose()
    async with make_session(Script([]), resume=session.id, **options) as third:
        assert third.pending == []
    assert ledger.ran == ["x"]
