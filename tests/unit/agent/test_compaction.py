"""Conversations that do not fit are made to: pictures withheld, results put aside, the rest summed up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.unit.agent.conftest import ended, events_of
from tests.unit.agent.oracle import check_history, check_request

from wieldy import Script, tool
from wieldy.agent.compaction import SUMMARY_PREFIX, as_text, char_count, with_summary
from wieldy.agent.conversation import fold
from wieldy.agent.transcript import records
from wieldy.core.events import Compacted
from wieldy.core.messages import Message

OVERFLOW = {"fail": "overflow", "message": "prompt is too long"}


@tool(read_only=True)
async def big(n: int) -> str:
    """A long text."""
    return f"{n}: " + "x" * 8_000


def calls(count: int) -> list[list[dict[str, Any]]]:
    return [[{"call": "big", "input": {"n": n}}] for n in range(count)]


def requests_of(model: Script) -> list[list[dict[str, Any]]]:
    requests = [[message.as_dict() for message in request.messages] for request in model.requests]
    for messages in requests:
        check_request(messages)
    return requests


def compacted(events) -> list[str]:
    return [event.trigger for event in events if isinstance(event, Compacted)]


@pytest.mark.asyncio
async def test_old_results_are_put_aside_first_and_can_be_read_again(make_session):
    model = Script([*calls(8), [OVERFLOW], [{"text": "done"}]])
    async with make_session(model) as session:
        session.box.add(big)
        events = await events_of(session)
        assert (ended(events).why, compacted(events)) == ("done", ["auto"])
        before, after = requests_of(model)[-2:]
        assert len(before) == len(after)
        assert char_count(after) < char_count(before) / 2
        aside = after[2]["content"][0]["content"][0]["text"]
        kept = Path(aside.split("Read ")[1].split(" if")[0])
        assert kept.read_text().startswith("0: xxx")
        assert "x" * 8_000 in str(after[-1]), "the latest stay"
        assert [m.as_dict() for m in fold(records(session.box.workspace.session_dir)).messages] == session.messages


@pytest.mark.asyncio
async def test_when_that_is_not_enough_the_model_sums_up(make_session):
    model = Script([*calls(8), [OVERFLOW], [OVERFLOW], [{"text": "we did much"}], [{"text": "done"}]])
    async with make_session(model) as session:
        session.box.add(big)
        events = await events_of(session, "the task")
        assert (ended(events).why, compacted(events)) == ("done", ["auto", "auto"])
        asked, last = model.requests[-2], requests_of(model)[-1]
        assert "the task" in asked.messages[0].content[0]["text"]
        assert asked.tools == ()
        assert last[0]["content"][0]["text"] == SUMMARY_PREFIX + "we did much"
        assert last[-1]["content"][0]["type"] == "tool_result"
        assert len(last) < 18
        assert [m.as_dict() for m in fold(records(session.box.workspace.session_dir)).messages] == session.messages


@pytest.mark.asyncio
async def test_a_conversation_that_never_fits_ends_with_the_providers_words(make_session):
    model = Script([*calls(2), *[[OVERFLOW], [{"text": "short"}]] * 6])
    async with make_session(model) as session:
        session.box.add(big)
        last = ended(await events_of(session))
        assert (last.why, last.detail) == ("error", "prompt is too long")
        assert len(model.requests) < 10


@pytest.mark.asyncio
async def test_a_full_context_is_compacted_before_the_next_request(make_session):
    usage = {"usage": {"input_tokens": 9_000}}
    model = Script([*calls(5), [usage, {"text": "full"}], [{"text": "fine"}]], context_window=10_000)
    async with make_session(model) as session:
        session.box.add(big)
        await session.ask("go")
        events = await events_of(session, "more")
        assert compacted(events) == ["auto"]
        assert "put aside" in str(requests_of(model)[-1])


@pytest.mark.asyncio
async def test_compacting_by_hand_always_sums_up(make_session):
    model = Script([[{"text": "hello"}], [{"text": "they said hello"}], [{"text": "on"}]])
    async with make_session(model) as session:
        await session.ask("hi")
        await session.compact("names")
        assert "names" in model.requests[1].messages[0].content[0]["text"]
        assert await session.ask("go on") == "on"
        check_request([m.as_dict() for m in model.requests[2].messages])
        assert "they said hello" in str(model.requests[2].messages)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("kind", "message", "left"),
    [
        ("bad_request", "messages.0.content.1.image.source.base64: image exceeds 5 MB maximum", 1),
        ("bad_request", "Could not process image", 0),
        ("too_large", "request exceeds 32 MB", 0),
    ],
)
async def test_pictures_a_provider_does_not_take_are_left_out_and_it_is_asked_again(make_session, kind, message, left):
    def image(data: str) -> dict[str, Any]:
        return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}

    model = Script([[{"fail": kind, "message": message}], [{"text": "without it then"}]])
    async with make_session(model) as session:
        assert await session.ask([{"type": "text", "text": "see"}, image("YQ=="), image("Yg==")]) == "without it then"
        last = requests_of(model)[-1]
        assert [block["type"] for block in last[0]["content"]].count("image") == left
        assert "did not accept it" in str(last)
        again = fold(records(session.box.workspace.session_dir))
        assert [m.as_dict() for m in again.messages] == session.messages


@pytest.mark.asyncio
async def test_thoughts_a_provider_does_not_know_again_are_left_out_and_it_is_asked_again(make_session):
    complaint = "messages.1.content.0: Invalid `signature` in `thinking` block"
    model = Script().thinks("hm").calls("note", word="tea").then().does(fail="bad_request", message=complaint)
    model = model.then().says("without them then")
    async with make_session(model) as session:
        assert await session.ask("go") == "without them then"
        assert "hm" in str(requests_of(model)[-2])
        assert "hm" not in str(requests_of(model)[-1])
        check_request(requests_of(model)[-1])
        again = fold(records(session.box.workspace.session_dir))
        assert [m.as_dict() for m in again.messages] == session.messages


@pytest.mark.asyncio
async def test_a_complaint_about_thoughts_where_there_are_none_is_an_error(make_session):
    model = Script([[{"fail": "bad_request", "message": '"thinking.type.enabled" is not supported'}]])
    async with make_session(model) as session:
        assert ended(await events_of(session)).why == "error"


@pytest.mark.asyncio
async def test_a_complaint_that_names_no_picture_is_an_error(make_session):
    model = Script([[{"fail": "bad_request", "message": "temperature is deprecated"}]])
    async with make_session(model) as session:
        assert ended(await events_of(session)).why == "error"


def message(role: Any, *blocks: dict[str, Any]) -> Message:
    return Message(role, blocks)


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def test_after_a_summary_calls_stay_with_their_results_and_the_tail_is_bounded():
    history = [message("user", text("start"))]
    for n in range(20):
        call = {"type": "tool_use", "id": f"c{n}", "name": "big", "input": {}}
        history.append(message("assistant", call))
        history.append(message("user", {"type": "tool_result", "tool_use_id": f"c{n}", "content": "y" * 4_000}))
    for window in (1, 10_000, 40_000, 1_000_000):
        short = with_summary(history, "so far", window)
        check_history([m.as_dict() for m in short])
        assert short[-1] is history[-1]
        assert len(short) >= 3
    assert len(with_summary(history, "so far", 10_000)) == 3
    assert len(with_summary(history, "so far", 40_000)) == 7


def test_a_new_prompt_is_kept_word_for_word_after_a_summary():
    history = [message("user", text("a")), message("assistant", text("b" * 50_000)), message("user", text("c"))]
    short = with_summary(history, "so far", 1_000)
    assert [block["text"] for block in short[0].content] == [SUMMARY_PREFIX + "so far", "c"]
    assert len(short) == 1


def test_what_the_model_is_given_to_sum_up_is_bounded():
    history = [message("user", text(f"{n} " + "z" * 3_000)) for n in range(100)]
    told = as_text(history, 20_000)
    assert len(told) < 20_200
    assert told.startswith("User: 0 z")
    assert "left out" in told
    assert told.rstrip().endswith("z")
