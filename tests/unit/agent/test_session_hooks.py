"""Hooks of a session: its start and end, prompts, stops, compaction."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.agent.conftest import ended, events_of
from tests.unit.agent.oracle import check_request

from wieldy import Script
from wieldy.policy.hooks.config import Hook, python_hook


class Told:
    """Python hooks that remember what they were told, and answer as they were asked to."""

    def __init__(self, **answers: Any) -> None:
        self.moments: list[dict[str, Any]] = []
        self.answers = answers

    def hooks(self, *events: str) -> list[Hook]:
        return [python_hook(event, self.hear) for event in events]

    def hear(self, payload: dict[str, Any]) -> Any:
        self.moments.append(payload)
        answer = self.answers.get(payload["hook_event_name"])
        return answer(payload) if callable(answer) else answer


EVENTS = ("SessionStart", "UserPromptSubmit", "Stop", "PreCompact", "SessionEnd")


@pytest.mark.asyncio
async def test_every_moment_is_told_in_order(make_session):
    told = Told()
    model = Script([[{"text": "one"}], [{"text": "two"}], [{"text": "in short"}]])
    async with make_session(model, hooks=told.hooks(*EVENTS)) as session:
        await session.ask("first")
        await session.ask("second")
        await session.compact("briefly")
    assert [moment["hook_event_name"] for moment in told.moments] == [
        "SessionStart", "UserPromptSubmit", "Stop", "UserPromptSubmit", "Stop", "PreCompact", "SessionEnd",
    ]  # fmt: skip
    start, prompt, stop = told.moments[:3]
    assert (start["source"], start["session_id"]) == ("startup", session.id)
    assert prompt["prompt"] == "first"
    assert (stop["last_assistant_message"], stop["stop_hook_active"]) == ("one", False)
    assert told.moments[5]["trigger"] == "manual"


@pytest.mark.asyncio
async def test_what_hooks_add_is_told_to_the_model(make_session):
    told = Told(
        SessionStart={"hookSpecificOutput": {"hookEventName": "SessionStart", "additionalContext": "it is raining"}},
        UserPromptSubmit={"hookSpecificOutput": {"hookEventName": "UserPromptSubmit", "additionalContext": "be kind"}},
    )
    model = Script([[{"text": "x"}]])
    async with make_session(model, hooks=told.hooks("SessionStart", "UserPromptSubmit")) as session:
        await session.ask("hi")
    said = [block["text"] for block in model.requests[0].messages[0].content]
    assert said == ["hi", "it is raining", "be kind"]


@pytest.mark.parametrize("event", ["UserPromptSubmit", "SessionStart"])
@pytest.mark.asyncio
async def test_what_a_hook_adds_is_bounded_like_a_result(make_session, event):
    page = "a line\n" * 100_000
    told = Told(**{event: {"hookSpecificOutput": {"hookEventName": event, "additionalContext": page}}})
    model = Script([[{"text": "x"}]])
    async with make_session(model, hooks=told.hooks(event)) as session:
        await session.ask("hi")
    said = [block["text"] for block in model.requests[0].messages[0].content]
    assert sum(map(len, said)) < 60_000
    (saved,) = (session.box.workspace.session_dir / "tool-results").iterdir()
    assert saved.read_text() == page
    assert str(saved) in said[1]


@pytest.mark.parametrize("event", ["Stop", "SubagentStop"])
@pytest.mark.asyncio
async def test_why_a_stop_hook_sends_the_model_on_is_bounded_like_a_result(make_session, event):
    told = Told(**{event: {"decision": "block", "reason": "a line\n" * 100_000}})
    agent = Script([[{"text": f"found {n}"}] for n in range(50)])
    model = Script().calls("Agent", agent_type="general", prompt="p", description="d").sends(None, agent)
    for n in range(50):
        model = model.then().says(f"done {n}")
    async with make_session(model, hooks=told.hooks(event), builtins=True) as session:
        await session.ask("hi")
    requests = model.requests if event == "Stop" else agent.requests
    assert len(requests) > 10
    for request in requests[-9:]:
        said = [block["text"] for block in request.messages[-1].content]
        assert 0 < sum(map(len, said)) < 60_000


@pytest.mark.asyncio
async def test_a_blocked_prompt_is_never_sent(make_session):
    told = Told(UserPromptSubmit={"decision": "block", "reason": "no secrets"})
    model = Script([[{"text": "x"}]])
    async with make_session(model, hooks=told.hooks("UserPromptSubmit")) as session:
        last = ended(await events_of(session, "my password is …"))
        assert last.why == "error"
        assert "no secrets" in last.detail
        assert model.requests == []
        assert "password" not in str(session.messages)


@pytest.mark.asyncio
async def test_a_stop_hook_sends_the_model_on_but_not_for_ever(make_session):
    told = Told(Stop={"decision": "block", "reason": "run the tests"})
    model = Script([[{"text": f"done {n}"}] for n in range(50)])
    async with make_session(model, hooks=told.hooks("Stop")) as session:
        assert ended(await events_of(session)).why == "done"
        assert len(model.requests) == 11
        assert "run the tests" in str(model.requests[1].messages[-1].content)
        assert [moment["stop_hook_active"] for moment in told.moments[:2]] == [False, True]
        for request in model.requests:
            check_request([message.as_dict() for message in request.messages])


@pytest.mark.asyncio
async def test_a_hook_can_end_the_run(make_session):
    told = Told(UserPromptSubmit={"continue": False, "stopReason": "enough for today"})
    model = Script([[{"text": "x"}], [{"text": "later"}]])
    async with make_session(model, hooks=told.hooks("UserPromptSubmit")) as session:
        last = ended(await events_of(session))
        assert (last.why, last.detail) == ("interrupted", "enough for today")
        assert model.requests == []


@pytest.mark.asyncio
async def test_a_resumed_session_says_so(make_session):
    async with make_session(Script([[{"text": "x"}]])) as session:
        await session.ask("hi")
    told = Told()
    async with make_session(Script([[{"text": "y"}]]), resume=session.id, hooks=told.hooks("SessionStart")) as again:
        await again.ask("more")
    assert told.moments[0]["source"] == "resume"
