"""A session: runs, limits, interruption, resuming."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

import pytest
from tests.unit.agent.conftest import ended, events_of
from tests.unit.agent.oracle import check_history, check_request

from wieldy import Script, Session
from wieldy.agent.records import SideRequestMade
from wieldy.agent.store import last_session, stored_sessions
from wieldy.agent.transcript import raw_records
from wieldy.core.errors import SessionError
from wieldy.core.events import ModelAnswered, ToolFailed, ToolRequested, ToolStarted
from wieldy.core.outcome import Refused
from wieldy.models.anthropic import encode_request

NOTE = {"call": "note", "input": {"word": "once"}}
SLOW = {"call": "slow", "input": {"word": "slow"}}


@pytest.mark.asyncio
async def test_a_conversation_goes_on_with_everything_said_before(make_session):
    model = Script([[NOTE], [{"text": "first"}], [{"text": "second"}]])
    async with make_session(model) as session:
        assert await session.ask("one") == "first"
        assert await session.ask("two") == "second"
        assert [len(request.messages) for request in model.requests] == [1, 3, 5]
        for request in model.requests:
            check_request([message.as_dict() for message in request.messages])


@pytest.mark.asyncio
async def test_a_session_is_resumed_as_it_was(make_session, ledger):
    async with make_session(Script([[{"think": "hm"}, {"text": "well"}, NOTE], [{"text": "done"}]])) as session:
        await session.ask("go")
        before, cost = session.messages, session.conversation.cost
    model = Script([[{"text": "again"}]])
    async with make_session(model, resume=session.id) as resumed:
        assert resumed.messages == before
        assert resumed.conversation.cost == cost
        assert await resumed.ask("more") == "again"
        check_history(resumed.messages)
    async with make_session(model, resume=session.id) as third:
        assert len(third.messages) == len(before) + 2
    assert ledger.ran == ["once"]


@pytest.mark.asyncio
async def test_a_fork_goes_its_own_way(make_session):
    async with make_session(Script([[NOTE], [{"text": "done"}]])) as session:
        await session.ask("go")
    async with make_session(Script([[{"text": "other"}]]), resume=session.id, fork=True) as fork:
        assert fork.id != session.id
        await fork.ask("what if")
    async with make_session(Script(), resume=session.id) as first, make_session(Script(), resume=fork.id) as second:
        assert len(second.messages) == len(first.messages) + 2


@pytest.mark.asyncio
async def test_another_model_is_not_shown_thoughts_it_did_not_have_now_or_later(make_session):
    def model(name: str) -> Script:
        return Script([[{"think": f"{name} thinks"}, {"text": "well"}]], model=name)

    async with make_session(model("a")) as session:
        await session.ask("go")
    for _ in range(2):
        second = model("b")
        async with make_session(second, resume=session.id) as resumed:
            await resumed.ask("more")
        assert "a thinks" not in str(second.requests[0].messages)
    assert "b thinks" in str(second.requests[0].messages), "its own are kept"


@pytest.mark.asyncio
async def test_resuming_what_is_not_there_says_so(make_session):
    for odd in ("nothing", "../../etc", ""):
        with pytest.raises(SessionError, match=r"no session|not the id") if odd else pytest.raises(SessionError):
            make_session(Script(), resume=odd or "..")


@pytest.mark.asyncio
async def test_turns_are_bounded(make_session, ledger):
    async with make_session(Script([[{**NOTE, "input": {"word": str(n)}}] for n in range(9)]), max_turns=3) as session:
        last = ended(await events_of(session))
        assert (last.why, last.turns, last.is_error) == ("max_turns", 3, True)
        assert len(ledger.ran) == 3
        check_request(session.messages)


@pytest.mark.asyncio
async def test_cost_is_counted_and_bounded(make_session):
    usage = {"usage": {"input_tokens": 100_000, "output_tokens": 10_000}}
    turns: list[list[dict[str, Any]]] = [[usage, {**NOTE, "input": {"word": str(n)}}] for n in range(9)]
    async with make_session(Script(turns, model="claude-sonnet-4-5"), max_cost=0.8) as session:
        events = await events_of(session)
        last = ended(events)
        assert (last.why, last.turns) == ("max_cost", 2)
        assert last.cost == pytest.approx(2 * (0.3 + 0.15))
        assert [e.cost for e in events if isinstance(e, ModelAnswered)] == [pytest.approx(0.45)] * 2
        told = [record for record in raw_records(session.box.workspace.session_dir) if record["type"] == "answered"]
        assert told[0]["usage"]["input_tokens"] == 100_000
        assert told[0]["cost"] == pytest.approx(0.45)


@pytest.mark.asyncio
async def test_what_an_earlier_session_cost_does_not_count_against_this_ones_budget(make_session):
    turn: list[dict[str, Any]] = [{"usage": {"input_tokens": 1_000_000}}, {"text": "dear"}]
    async with make_session(Script([turn], model="claude-sonnet-4-5"), max_cost=1) as session:
        await session.ask("go")
    model = Script([[{"text": "fine"}], turn, turn], model="claude-sonnet-4-5", context_window=10_000_000)
    async with make_session(model, resume=session.id, max_cost=1) as again:
        assert await again.ask("more") == "fine"
        assert again.conversation.cost == pytest.approx(3)
        await again.ask("more")
        assert ended(await events_of(again)).why == "max_cost"


@pytest.mark.asyncio
async def test_a_model_without_a_price_costs_nothing_known(make_session):
    async with make_session(Script([[{"usage": {"input_tokens": 5}}, {"text": "x"}]])) as session:
        events = await events_of(session)
        assert [e.cost for e in events if isinstance(e, ModelAnswered)] == [None]


@pytest.mark.asyncio
async def test_a_budget_is_refused_with_a_model_without_a_price(make_session):
    model = Script([[{"text": "x"}]], model="nothing-listed")
    async with make_session(model, max_cost=1) as session:
        last = ended(await events_of(session))
        assert (last.why, len(model.requests)) == ("error", 0)
        assert "the price of nothing-listed is unknown" in last.detail
        assert '{"prices": {"nothing-listed":' in last.detail


@pytest.mark.asyncio
async def test_a_price_of_the_settings_counts(make_session):
    usage = {"usage": {"input_tokens": 1_000_000, "output_tokens": 500_000}}
    turns: list[list[dict[str, Any]]] = [[usage, {**NOTE, "input": {"word": str(n)}}] for n in range(5)]
    prices = {"prices": {"some/nothing-listed": {"input": 0.5, "output": 2}}}
    model = Script(turns, model="Nothing-Listed", context_window=9_000_000)
    async with make_session(model, max_cost=2, settings=prices) as session:
        last = ended(await events_of(session))
        assert (last.why, last.cost, last.unpriced) == ("max_cost", 3.0, ())


@pytest.mark.asyncio
async def test_a_budget_is_refused_after_a_request_beside_the_conversation_whose_price_is_unknown(make_session):
    model = Script([[{"text": "x"}], [{"text": "y"}]], model="claude-sonnet-4-5")
    async with make_session(model, max_cost=1) as session:
        assert ended(await events_of(session)).why == "done"
        session.transcript.append(SideRequestMade(agent="a1", unpriced="nothing-listed"))
        last = ended(await events_of(session))
        assert (last.why, len(model.requests)) == ("error", 1)
        assert "the price of nothing-listed is unknown" in last.detail


@pytest.mark.asyncio
async def test_sums_name_the_models_whose_price_is_unknown(make_session):
    model = Script([[{"usage": {"input_tokens": 5}}, {"text": "x"}]] * 2, model="nothing-listed")
    async with make_session(model) as session:
        assert ended(await events_of(session)).unpriced == ("nothing-listed",)
    async with make_session(model, resume=session.id) as again:
        assert again.conversation.unpriced == {"nothing-listed": 1}


@pytest.mark.asyncio
async def test_an_interrupted_tool_leaves_a_session_one_can_go_on_with(make_session, ledger):
    model = Script([[{"text": "let me see"}, SLOW, NOTE], [{"text": "fine"}]])
    async with make_session(model) as session:
        seen = []
        started = time.monotonic()
        async for event in session.run("go"):
            seen.append(event)
            if isinstance(event, ToolStarted) and event.name == "slow":
                session.abort()
        assert time.monotonic() - started < 10
        assert (ended(seen).why, ended(seen).is_error) == ("interrupted", False)
        check_request(session.messages)
        assert "interrupted" in str(session.messages[2]["content"][0])
        assert await session.ask("go on") == "fine"
        check_request([message.as_dict() for message in model.requests[1].messages])
    assert ledger.ran.count("slow") == 1


@pytest.mark.asyncio
async def test_words_already_read_of_an_interrupted_answer_are_kept(make_session):
    model = Script([[{"think": "hm"}, {"text": "I have seen that", "chunk": 3, "delay": 0.01}]])
    async with make_session(model) as session:
        async for event in session.run("go"):
            if event.kind == "model.said" and not event.thinking:
                session.abort()
        check_history(session.messages)
        assert session.messages[1]["content"][1]["text"].startswith("I h")


@pytest.mark.asyncio
async def test_an_interrupted_wait_for_a_retry_ends_at_once(make_session):
    async with make_session(Script([[{"fail": "rate", "retry_after": 200}]])) as session:
        seen = []
        async for event in session.run("go"):
            seen.append(event)
            if event.kind == "retry":
                session.abort()
        assert ended(seen).why == "interrupted"


@pytest.mark.asyncio
async def test_leaving_the_loop_interrupts_the_run(make_session, ledger):
    async with make_session(Script([[SLOW], [{"text": "x"}]])) as session:
        run = session.run("go")
        async for event in run:
            if isinstance(event, ToolStarted):
                break
        await run.aclose()
        check_request(session.messages)
        assert await session.ask("again") == "x"


@pytest.mark.asyncio
async def test_cancelling_whoever_runs_it_interrupts_the_run(make_session):
    async with make_session(Script([[SLOW], [{"text": "x"}]])) as session:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await session.ask("go")
        check_request(session.messages)


@pytest.mark.asyncio
async def test_a_session_runs_one_thing_at_a_time(make_session):
    async with make_session(Script([[SLOW]])) as session:
        async for event in session.run("go"):
            if isinstance(event, ToolStarted):
                with pytest.raises(SessionError, match="already running"):
                    await session.ask("and this")
                session.abort()


@pytest.mark.asyncio
@pytest.mark.parametrize("prompt", ["", " \n", [], [{"type": "text", "text": " "}], "\x00"])
async def test_an_empty_prompt_is_refused_before_anything_is_sent(make_session, prompt):
    model = Script([[{"text": "x"}]])
    async with make_session(model) as session:
        assert ended(await events_of(session, prompt)).detail == "the prompt is empty"
        assert model.requests == []


@pytest.mark.asyncio
async def test_half_characters_anywhere_in_a_prompt_are_no_obstacle(make_session):
    document = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "a\ud83d"}}
    model = Script([[{"text": "fine"}]])
    async with make_session(model) as session:
        assert await session.ask([document, {"type": "text", "text": "b\udc00"}]) == "fine"
        assert encode_request(model.requests[0], "m")
        assert ended(await events_of(session, [{"text": "no type"}])).detail.startswith("a prompt is text")


@pytest.mark.asyncio
async def test_a_pause_in_which_nothing_was_said_ends_the_run(make_session):
    async with make_session(
        Script([[{"text": "searching"}, {"stop": "pause_turn"}], [{"stop": "pause_turn"}]])
    ) as session:
        assert ended(await events_of(session)).why == "done"


@pytest.mark.asyncio
async def test_pictures_can_be_part_of_a_prompt(make_session):
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "eA=="}}
    model = Script([[{"text": "a cat"}]])
    async with make_session(model) as session:
        assert await session.ask([image, {"type": "text", "text": "what is this?"}]) == "a cat"
        assert model.requests[0].messages[0].content[0] == image


@pytest.mark.asyncio
async def test_without_a_model_it_says_how_to_set_one(make_session, monkeypatch):
    monkeypatch.delenv("WIELDY_MODEL", raising=False)
    async with make_session(None) as session:
        last = ended(await events_of(session))
        assert "--model" in last.detail


@pytest.mark.asyncio
async def test_nothing_is_written_where_nothing_is_to_be_kept(make_session):
    async with make_session(Script([[NOTE], [{"text": "x"}]]), persist=False) as session:
        await session.ask("go")
        assert not (session.box.workspace.session_dir / "transcript.jsonl").exists()


@pytest.mark.asyncio
async def test_a_transcript_that_cannot_be_written_ends_the_run_in_one_line(make_session, ledger):
    async with make_session(Script([[NOTE]])) as session:
        session.box.workspace.session_dir.parent.mkdir(parents=True)
        session.box.workspace.session_dir.write_text("in the way")
        last = ended(await events_of(session))
        assert "cannot be written" in last.detail
        assert ledger.ran == []


@pytest.mark.asyncio
async def test_sessions_are_listed_last_changed_first(make_session, tmp_path):
    ids = []
    for word in ("one", "two"):
        async with make_session(Script([[{"text": "x"}]])) as session:
            await session.ask(f"the {word} prompt")
            ids.append(session.id)
        await asyncio.sleep(0.02)
    listed = list(stored_sessions(tmp_path / "project"))
    assert [(session.id, session.prompt) for session in listed] == [
        (ids[1], "the two prompt"),
        (ids[0], "the one prompt"),
    ]
    assert last_session(tmp_path / "project") == ids[1]
    with pytest.raises(SessionError, match="there is no session of this folder"):
        last_session(tmp_path)


@pytest.mark.asyncio
async def test_a_transcript_that_cannot_be_read_is_one_line_and_the_others_are_listed(make_session):
    for name in ("broken", "fine"):
        async with make_session(Script([[{"text": "x"}]]), session_id=name) as session:
            await session.ask("go")
    path = session.box.workspace.session_dir.parent / "broken" / "transcript.jsonl"
    path.unlink()
    path.mkdir()
    prompts = {each.id: each.prompt for each in stored_sessions()}
    assert prompts["fine"] == "go"
    assert "cannot be read: Is a directory" in prompts["broken"]
    with pytest.raises(SessionError, match=r"cannot be (read|written): Is a directory"):
        await make_session(Script([]), resume="broken").ask("go")


def test_the_public_name_is_there():
    assert Session.__module__ == "wieldy.agent.session"


@pytest.mark.asyncio
async def test_who_does_not_follow_closely_hears_what_the_model_said_when_it_has_said_it(make_session):
    def talk() -> Script:
        return Script(
            [[{"text": "one two three", "chunk": 3}, {"call": "note", "input": {"word": "tea"}}], [{"text": "done"}]]
        )

    async with make_session(talk()) as session:
        near = {type(event).__name__ for event in await events_of(session)}
    async with make_session(talk()) as session:
        far = [event async for event in session.run("go", stream_deltas=False)]
    pieces = {"ModelTextDelta", "ToolInputDelta", "ModelBlockDelta"}
    assert pieces <= near
    assert {type(event).__name__ for event in far} == near - pieces
    assert far[-1].text == "done"


@pytest.mark.asyncio
async def test_a_call_refused_by_the_loop_breaker_has_events_a_result_and_a_record_like_any_other(make_session, ledger):
    again = [{"call": "fails", "input": {"word": "x"}}]
    async with make_session(Script([again, again, again, [{"text": "given up"}]])) as session:
        events = await events_of(session)
        record = [record for record in raw_records(session.box.workspace.session_dir) if record["type"] == "result"][-1]
    assert ledger.ran == ["x", "x"]
    requested = [event for event in events if isinstance(event, ToolRequested)]
    failed = [event for event in events if isinstance(event, ToolFailed)]
    assert len(requested) == len(failed) == 3
    refused = failed[-1].result
    assert isinstance(refused.outcome, Refused)
    assert (refused.outcome.stage, record["refused"]) == ("loop", "loop")
    assert "has failed 2 times" in refused.text


@pytest.mark.asyncio
async def test_a_session_given_folders_and_an_environment_uses_nothing_of_the_users(tmp_path, make_session):
    calls = [
        {"call": "Write", "input": {"file_path": "new.txt", "content": "x"}},
        {"call": "Bash", "input": {"command": "echo $WORD"}},
    ]
    options = {
        "env": {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "WORD": "from the task"},
        "session_dir": tmp_path / "attempt",
        "state_dir": tmp_path / "scratch",
        "builtins": True,
        "mode": "bypassPermissions",
    }
    async with Session(
        tmp_path / "project", model=Script([calls, [{"text": "done"}]]), settings={}, **options
    ) as session:
        await session.ask("go")
        assert "from the task" in str(session.messages)
    assert (tmp_path / "attempt" / "transcript.jsonl").exists()
    assert (tmp_path / "scratch" / "journal").is_dir()
    assert not (tmp_path / "home").exists()


@pytest.mark.asyncio
async def test_the_end_of_a_run_names_the_kind_of_failure(make_session):
    async with make_session(Script([[{"fail": "auth", "message": "no key"}]])) as session:
        assert ended(await events_of(session)).failure == "auth"
    async with make_session(Script([[{"text": "fine"}]])) as session:
        assert ended(await events_of(session)).failure == ""


@pytest.mark.asyncio
async def test_a_resumed_session_keeps_its_model_and_address(tmp_path, monkeypatch):
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("WIELDY_MODEL", raising=False)
    script = tmp_path / "script.json"
    script.write_text('{"turns": [[{"text": "one"}], [{"text": "two"}]]}')
    async with Session(tmp_path, model=f"script:{script}", base_url="http://127.0.0.1:9/v1", settings={}) as session:
        assert await session.ask("hi") == "one"
    settings = {"model": "openai/gpt-5"}
    async with Session(tmp_path, resume=session.id, settings=settings) as resumed:
        assert resumed._models.name_and_url() == (f"script:{script}", "http://127.0.0.1:9/v1")
        assert await resumed.ask("again") == "one"
        monkeypatch.setenv("OPENAI_API_KEY", "k")
        resumed.set_model("openai/gpt-5")
        assert resumed._models.name_and_url()[0] == "openai/gpt-5"
    async with Session(tmp_path, resume=session.id, model="openai/gpt-5.5", settings=settings) as other:
        assert other._models.name_and_url()[0] == "openai/gpt-5.5"
