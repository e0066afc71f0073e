"""Saying something while the model works, changing the mode, leaving a run, and using a session that is closed."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest
from tests.unit.agent.oracle import check_history

from wieldy import Script, python_hook
from wieldy.core.errors import ClosedError, SessionError
from wieldy.core.events import Notice, RunEnded, Steered, ToolStarted

pytestmark = pytest.mark.asyncio

NOTE = {"call": "note", "input": {"word": "tea"}}
SLOW = {"call": "slow", "input": {"word": "slow"}}


def said(request: Any) -> list[str]:
    """The texts of the user's messages in a request."""
    messages = [message for message in request.messages if message.role == "user"]
    return [block["text"] for message in messages for block in message.content if block["type"] == "text"]


async def test_what_is_said_during_a_call_is_heard_with_its_result(make_session):
    model = Script([[NOTE], [{"text": "done"}]])
    async with make_session(model) as session:
        seen = []
        async for event in session.run("go"):
            seen.append(event)
            if isinstance(event, ToolStarted):
                session.steer("and use milk")
        assert seen[-1].text == "done"
        assert [event.text for event in seen if isinstance(event, Steered)] == ["and use milk"]
        check_history(session.messages)
    assert said(model.requests[1]) == ["go", "and use milk"]


async def test_what_is_said_during_the_last_answer_makes_the_model_go_on(make_session):
    model = Script([[{"text": "finished", "chunk": 2, "delay": 0.01}], [{"text": "changed"}]])
    async with make_session(model) as session:
        async for event in session.run("go"):
            if event.kind == "model.said" and len(model.requests) == 1 and event.text == "fi":
                session.steer("wait, in blue")
            last = event
        assert last.text == "changed"
        check_history(session.messages)
    assert said(model.requests[1]) == ["go", "wait, in blue"]


async def test_several_words_are_heard_in_their_order_and_content_blocks_too(make_session):
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "eA=="}}
    model = Script([[NOTE], [{"text": "done"}]])
    async with make_session(model) as session:
        async for event in session.run("go"):
            if isinstance(event, ToolStarted):
                session.steer("one")
                session.steer([image, {"type": "text", "text": "two"}])
    assert said(model.requests[1]) == ["go", "one", "two"]
    assert image in [block for message in model.requests[1].messages for block in message.content]


async def test_what_comes_too_late_is_not_lost(make_session):
    async with make_session(Script([[SLOW]])) as session:
        async for event in session.run("go"):
            if isinstance(event, ToolStarted):
                session.steer("too late")
                session.abort()
            last = event
        assert isinstance(last, RunEnded)
        assert last.unsent == ("too late",)


async def test_nothing_can_be_said_to_a_session_that_does_not_run(make_session):
    async with make_session(Script([[{"text": "x"}]])) as session:
        with pytest.raises(SessionError, match="nothing is running"):
            session.steer("hello")
        await session.ask("go")
        with pytest.raises(SessionError, match="nothing is running"):
            session.steer("hello")


@pytest.mark.parametrize("prompt", ["", "  ", [], [{"text": "no type"}]])
async def test_empty_words_are_refused_where_they_are_said(make_session, prompt):
    async with make_session(Script([[NOTE], [{"text": "x"}]])) as session:
        async for event in session.run("go"):
            if isinstance(event, ToolStarted):
                with pytest.raises(SessionError):
                    session.steer(prompt)


async def test_a_hook_can_block_what_is_said_and_the_person_is_told(make_session):
    def guard(payload: dict[str, Any]) -> dict[str, Any] | None:
        return {"decision": "block", "reason": "secret"} if "password" in payload["prompt"] else None

    model = Script([[NOTE], [{"text": "done"}]])
    async with make_session(model, hooks=[python_hook("UserPromptSubmit", guard)]) as session:
        seen = []
        async for event in session.run("go"):
            seen.append(event)
            if isinstance(event, ToolStarted):
                session.steer("the password is x")
    assert said(model.requests[1]) == ["go"]
    assert any("it was not sent" in event.text for event in seen if isinstance(event, Notice))


async def test_the_mode_can_be_changed_between_and_during_runs(make_session, ledger):
    asks = [{"call": "asks", "input": {"word": "x"}}]
    async with make_session(Script([asks, [{"text": "a"}], asks, [{"text": "b"}]])) as session:
        assert session.mode == "default"
        session.mode = "bypassPermissions"
        await session.ask("go")
        assert ledger.ran == ["x"]
        session.mode = "plan"
        await session.ask("go")
        assert ledger.ran == ["x"]
        assert "You are in plan mode" in session.system_prompt[0]
        with pytest.raises(ValueError, match="did you mean `plan`"):
            session.mode = "plam"


async def test_a_mode_that_the_settings_disable_is_refused(make_session):
    settings = {"permissions": {"disableBypassPermissionsMode": "disable"}}
    async with make_session(Script([]), settings=settings) as session:
        with pytest.raises(ValueError, match="disable the mode bypassPermissions"):
            session.mode = "bypassPermissions"


async def test_after_a_run_was_left_early_the_session_can_be_asked_at_once(make_session):
    async with make_session(Script([[SLOW], [{"text": "second"}]])) as session:
        async for event in session.run("go"):
            if isinstance(event, ToolStarted):
                break
        assert await session.ask("again") == "second"
        check_history(session.messages)


async def test_a_run_left_by_an_error_can_be_followed_by_another_run(make_session):
    async with make_session(Script([[SLOW], [{"text": "second"}]])) as session:
        try:
            async for event in session.run("go"):
                if isinstance(event, ToolStarted):
                    raise LookupError
        except LookupError:
            pass
        seen = [event async for event in session.run("again")]
        assert seen[-1].text == "second"


async def test_a_run_that_was_never_followed_never_begins(make_session):
    model = Script([[{"text": "x"}]])
    async with make_session(model) as session:
        session.run("go")
        gc.collect()
        await asyncio.sleep(0)
        assert not session.running
        assert model.requests == []


async def test_asking_raises_when_it_is_interrupted(make_session):
    async with make_session(Script([[SLOW]])) as session:
        asking = asyncio.create_task(session.ask("go"))
        while not session.running or not session.conversation.turns:
            await asyncio.sleep(0.01)
        session.abort("enough")
        with pytest.raises(SessionError, match="enough"):
            await asking


async def test_a_closed_session_says_so(make_session):
    session = make_session(Script([[{"text": "x"}]]))
    async with session:
        await session.ask("go")
    await session.aclose()
    for use in (lambda: session.run("x"), lambda: session.steer("x")):
        with pytest.raises(ClosedError, match="closed"):
            use()
    for work in (session.ask("x"), session.compact(), session.box.call("Read"), session.box.offering()):
        with pytest.raises(ClosedError, match="closed"):
            await work


async def test_a_session_that_is_closed_during_a_run_has_ended_it(make_session):
    async with make_session(Script([[SLOW], [{"text": "x"}]])) as session:
        async for event in session.run("go"):
            if isinstance(event, ToolStarted):
                break
    assert not session.running
    check_history(session.messages)
    async with make_session(Script([[{"text": "fine"}]]), resume=session.id) as resumed:
        assert await resumed.ask("go on") == "fine"


async def test_a_session_can_be_closed_by_whoever_follows_its_run(make_session):
    session = make_session(Script([[SLOW], [{"text": "x"}]]))
    seen = []
    async with session:
        async for event in session.run("go"):
            seen.append(event.kind)
            if isinstance(event, ToolStarted):
                await session.aclose()
    assert not session.running
