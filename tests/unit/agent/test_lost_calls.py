"""Calls whose result was lost with the process: not run, made, or unknown; none is made twice unasked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.agent.oracle import check_history

from wieldy import Script, Session, Tool, tool
from wieldy.agent.conversation import NOT_RUN, UNKNOWN, UNKNOWN_FOR_PERSON, fold
from wieldy.agent.records import CallStarted, ToolResultRecord
from wieldy.agent.resume import WHY_ASKED
from wieldy.agent.transcript import records
from wieldy.cli.sessions import main as sessions_main
from wieldy.core.errors import ToolDefinitionError
from wieldy.core.events import Notice, RunEnded
from wieldy.core.session_files import TRANSCRIPT_NAME

pytestmark = pytest.mark.asyncio

END = [{"text": "end"}]


def call(name: str, id: str, **input: Any) -> dict[str, Any]:
    return {"call": name, "input": input, "id": id}


@pytest.fixture
def ran() -> list[str]:
    return []


@pytest.fixture
def make(make_session: Any, ran: list[str]) -> Any:
    @tool(needs_permission=False)
    def plain() -> str:
        """Do it."""
        ran.append("plain")
        return "did"

    @tool(needs_permission=False, replay="safe")
    def safe() -> str:
        """Do it."""
        ran.append("safe")
        return "did"

    @tool(needs_permission=False, replay="ask")
    def asked() -> str:
        """Do it."""
        ran.append("asked")
        return "did"

    @tool(read_only=True)
    def look() -> str:
        """Look."""
        ran.append("look")
        return "saw"

    def make(turns: list[Any], **options: Any) -> Session:
        own: list[Tool] = [plain, safe, asked, look]
        session: Session = make_session(
            Script(turns), **{"builtins": True, "tools": own, "mode": "bypassPermissions", **options}
        )
        return session

    return make


def cut(session: Session, keep: Any) -> Path:
    """Leave only the first lines of a transcript, up to the one for which `keep` is false."""
    folder = session.box.workspace.session_dir
    lines = (folder / TRANSCRIPT_NAME).read_bytes().splitlines(keepends=True)
    kept = list(_until(lines, keep))
    (folder / TRANSCRIPT_NAME).write_bytes(b"".join(kept))
    return folder


def _until(lines: list[bytes], keep: Any) -> Iterator[bytes]:
    for line in lines:
        yield line
        if not keep(json.loads(line)):
            return


def before_result(record: dict[str, Any]) -> bool:
    return bool(record["type"] != "started")


def before_start(record: dict[str, Any]) -> bool:
    return bool(record["type"] != "answered")


def results(session: Session) -> dict[str, str]:
    blocks = [block for message in session.messages for block in message["content"]]
    return {
        block["tool_use_id"]: block["content"] if isinstance(block["content"], str) else block["content"][0]["text"]
        for block in blocks
        if block["type"] == "tool_result"
    }


async def killed(make: Any, step: dict[str, Any], keep: Any, **options: Any) -> Session:
    """A session that was killed while it made a call, or before."""
    session: Session = make([[step], END], **options)
    async with session:
        await session.ask("go")
    cut(session, keep)
    return session


async def resumed(make: Any, session: Session, prompt: str = "go on", **options: Any) -> tuple[Session, list[str]]:
    """The session after a resume, and what a person was told."""
    again = make([END, END], resume=session.id, **options)
    async with again:
        events = [event async for event in again.run(prompt)]
    check_history(again.messages)
    return again, [event.text for event in events if isinstance(event, Notice)]


async def test_a_call_that_may_have_happened_is_unknown_to_the_model_and_the_person_and_is_not_repeated(make, ran):
    first = await killed(make, call("plain", "p"), before_result)
    second, notices = await resumed(make, first)
    assert results(second) == {"p": UNKNOWN}
    assert ran == ["plain"]
    assert notices == [f"plain(): {UNKNOWN_FOR_PERSON}"]
    third, notices = await resumed(make, second)
    assert results(third) == {"p": UNKNOWN} and notices == [], "it is told once"


async def test_sessions_show_names_an_unknown_call_before_and_after_a_resume(make, capsys):
    first = await killed(make, call("plain", "p"), before_result)
    assert sessions_main("sessions", ["show", first.id]) == 0
    assert f"✗ {UNKNOWN_FOR_PERSON}" in capsys.readouterr().out
    await resumed(make, first)
    assert sessions_main("sessions", ["show", first.id]) == 0
    assert f"✗ {UNKNOWN_FOR_PERSON}" in capsys.readouterr().out


async def test_a_call_that_had_not_started_is_known_as_such(make, ran):
    first = await killed(make, call("plain", "p"), before_start)
    second, notices = await resumed(make, first)
    assert results(second) == {"p": NOT_RUN}
    assert notices == []


async def test_each_start_is_in_the_transcript_before_the_call_and_a_call_that_changes_nothing_has_none(make):
    session = make([[call("plain", "p"), call("look", "l"), call("safe", "s")], END])
    async with session:
        await session.ask("go")
    kinds = [record for record in records(session.box.workspace.session_dir) if isinstance(record, CallStarted)]
    assert kinds == [CallStarted("p", "never"), CallStarted("s", "safe")]
    assert session.conversation.started == {}


async def test_every_prefix_of_a_transcript_tells_what_became_of_each_call(make):
    turn = [call("plain", "p{n}"), call("look", "l{n}"), call("safe", "s{n}")]
    turns = [[{**each, "id": each["id"].format(n=n)} for each in turn] for n in range(3)]
    session = make([*turns, END])
    async with session:
        await session.ask("go")
    whole = list(records(session.box.workspace.session_dir))
    for length in range(4, len(whole)):
        part = whole[:length]
        started = {record.id for record in part if isinstance(record, CallStarted)}
        ended = {record.block["tool_use_id"] for record in part if isinstance(record, ToolResultRecord)}
        messages = [message.as_dict() for message in fold(part).messages]
        check_history(messages)
        blocks = [block for message in messages for block in message["content"]]
        told = {block["tool_use_id"]: str(block["content"]) for block in blocks if block["type"] == "tool_result"}
        for id, text in told.items():
            assert (text == UNKNOWN) == (id in started - ended), (length, id, text)
            assert (text == NOT_RUN) == (id not in started | ended), (length, id, text)


async def test_a_tool_that_is_safe_to_repeat_is_repeated_with_the_same_id(make, ran):
    first = await killed(make, call("safe", "s"), before_result)
    second, notices = await resumed(make, first)
    assert results(second) == {"s": "did"}
    assert ran == ["safe", "safe"] and notices == []


@pytest.mark.parametrize(("answer", "times"), [(True, 2), (False, 1)])
async def test_a_tool_can_have_the_person_asked_whether_to_repeat(make, ran, answer, times):
    questions = []

    def ask(question: Any) -> bool:
        questions.append(question.decision.why)
        return bool(answer)

    first = await killed(make, call("asked", "a"), before_result)
    second, _ = await resumed(make, first, ask=ask)
    assert len(questions) == 1 and WHY_ASKED in questions[0]
    assert ran == ["asked"] * times
    assert results(second)["a"] == ("did" if answer else UNKNOWN)


async def test_where_nobody_can_be_asked_a_call_is_not_repeated(make, ran):
    first = await killed(make, call("asked", "a"), before_result)
    second, _ = await resumed(make, first)
    assert results(second)["a"] == UNKNOWN and ran == ["asked"]


@pytest.mark.parametrize(("answer", "times"), [(True, 2), (False, 1)])
async def test_the_question_whether_to_repeat_can_wait(make, ran, answer, times):
    first = await killed(make, call("asked", "a"), before_result)
    second = make([END], resume=first.id, ask="defer")
    async with second:
        events = [event async for event in second.run("my next prompt")]
    last = events[-1]
    assert isinstance(last, RunEnded) and (last.why, last.unsent) == ("waiting", ("my next prompt",))
    third = make([END], resume=first.id, ask="defer")
    async with third:
        assert [question.id for question in third.pending] == ["a"]
        assert await third.answer({"a": answer}) == "end"
        assert results(third)["a"] == ("did" if answer else UNKNOWN)
    assert ran == ["asked"] * times


async def test_a_fork_repeats_nothing(make, ran):
    first = await killed(make, call("safe", "s"), before_result)
    fork, _ = await resumed(make, first, fork=True)
    assert results(fork) == {"s": UNKNOWN} and ran == ["safe"]
    second, _ = await resumed(make, first)
    assert results(second) == {"s": "did"}


async def test_what_an_edit_did_is_known_from_the_journal(make, tmp_path):
    write = call("Write", "w", file_path="a.txt", content="new\n")
    first = await killed(make, write, before_result)
    second, notices = await resumed(make, first)
    assert "Done: the files were changed" in results(second)["w"] and "a.txt" in results(second)["w"]
    assert notices == []
    refused = await killed(
        make, call("Edit", "e", file_path="a.txt", old_string="nowhere", new_string="x"), before_result
    )
    third, notices = await resumed(make, refused)
    assert results(third)["e"] == NOT_RUN and notices == []


async def test_an_edit_is_unknown_without_a_journal(make):
    write = call("Write", "w", file_path="a.txt", content="new\n")
    options: dict[str, Any] = {"settings": {"journal": {"enabled": False}}}
    first = await killed(make, write, before_result, **options)
    second, _ = await resumed(make, first, **options)
    assert results(second)["w"] == UNKNOWN


async def test_an_approved_call_that_had_started_is_not_run_again_by_another_answer(make_session):
    ran = []

    @tool
    def pay() -> str:
        """Pay."""
        ran.append("pay")
        return "paid"

    def make(turns: list[Any], **options: Any) -> Session:
        session: Session = make_session(Script(turns), tools=[pay], ask="defer", **options)
        return session

    first = make([[call("pay", "a"), call("pay", "b")], END])
    async with first:
        await first.ask("go")
    second = make([END], resume=first.id)
    async with second:
        await second.answer({"a": True})
    cut(second, before_result)
    third = make([END], resume=first.id)
    async with third:
        assert [question.id for question in third.pending] == []
        assert await third.answer({}) == ""
        assert [question.id for question in third.pending] == ["b"]
        assert await third.answer({"b": True}) == "end"
        assert results(third) == {"a": UNKNOWN, "b": "paid"}
    assert ran == ["pay", "pay"]


async def test_the_model_hears_of_an_unknown_call_by_an_answer_without_replies(make_session):
    @tool
    def pay() -> str:
        """Pay."""
        return "paid"

    first = make_session(Script([[call("pay", "a")], END]), tools=[pay], ask="defer")
    async with first:
        await first.ask("go")
        await first.answer({"a": True})
    cut(first, before_result)
    second = make_session(Script([END]), tools=[pay], ask="defer", resume=first.id)
    async with second:
        assert await second.answer({}) == "end"
        assert results(second) == {"a": UNKNOWN}


async def test_a_transcript_that_does_not_tell_what_had_started_claims_nothing(make):
    first = await killed(make, call("plain", "p"), before_start)
    path = first.box.workspace.session_dir / TRANSCRIPT_NAME
    path.write_text(path.read_text().replace('"v":2', '"v":1', 1))
    second, _ = await resumed(make, first)
    assert results(second) == {"p": "interrupted: this call has no result"}


async def test_the_key_of_a_call_stays_the_same_when_it_is_made_again(make_session):
    from wieldy import ToolContext

    keys = []

    @tool(needs_permission=False, replay="safe")
    def send(ctx: ToolContext) -> str:
        """Send."""
        keys.append(ctx.idempotency_key)
        return "sent"

    first = await killed(
        lambda turns, **more: make_session(Script(turns), tools=[send], **more), call("send", "s"), before_result
    )
    again = make_session(Script([END]), tools=[send], resume=first.id)
    async with again:
        await again.ask("go on")
    assert len(keys) == 2 and len(set(keys)) == 1 and first.id in keys[0]


async def test_an_unknown_replay_is_a_mistake():
    with pytest.raises(ToolDefinitionError, match="`replay` is 'safe', 'ask', 'never', 'journal', not 'always'"):
        tool(replay="always")(lambda: "x")  # type: ignore[call-overload]
