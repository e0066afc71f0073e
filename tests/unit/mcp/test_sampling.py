"""Servers that ask the model: by the session's, each time the person has agreed, at the session's cost."""

from __future__ import annotations

from typing import Any

import pytest

from wieldy import Answer, Script, Session

CALL: dict[str, Any] = {"call": "mcp__s__sample", "input": {}}
REPLY: list[dict[str, Any]] = [{"usage": {"input_tokens": 1_000_000}}, {"text": "Hot water."}]


def session_with(stage: Any, model: Script, ask: Any = None, **settings: Any) -> Session:
    servers = {"s": stage.entry()}
    allowed = {"allow": ["mcp__s__*"]}
    return Session(
        stage.folder, model=model, ask=ask, settings={"mcpServers": servers, "permissions": allowed, **settings}
    )


def results(session: Session) -> list[str]:
    blocks = [b for m in session.messages for b in m["content"] if b["type"] == "tool_result"]
    return [str(block["content"]) for block in blocks]


@pytest.mark.asyncio
async def test_the_sessions_model_answers_each_time_the_person_has_agreed_to_this_very_request(stage):
    asked: list[Any] = []

    async def agree(question: Any) -> Answer:
        asked.append(question)
        return Answer(allowed=True)

    turns: list[list[dict[str, Any]]] = [[CALL], REPLY, [CALL], REPLY, [{"text": "done"}]]
    model = Script(turns, model="claude-haiku-4-5")
    async with session_with(stage, model, agree) as session:
        await session.box.connected()
        await session.ask("go")
        said = results(session)
    assert len(said) == 2
    for text in said:
        assert "Hot water." in text and "claude-haiku-4-5" in text and "endTurn" in text
    assert [question.plan.tool.name for question in asked] == ["mcp__s__sampling"] * 2
    shown = {"model": "claude-haiku-4-5", "system": "Be brief.", "messages": "What is tea?"}
    assert [dict(question.plan.input) for question in asked] == [shown, shown]
    beside = model.requests[1]
    assert beside.system == ("Be brief.",) and beside.max_tokens == 50 and not beside.tools
    assert session.conversation.cost == pytest.approx(2.0)
    assert "Hot water" not in str([m for m in session.messages if m["role"] == "assistant"])


@pytest.mark.asyncio
async def test_without_consent_the_server_is_told_so_and_no_model_is_asked(stage):
    model = Script([[CALL], [{"text": "done"}]])
    async with session_with(stage, model) as session:
        await session.box.connected()
        await session.ask("go")
        assert "the user did not agree" in results(session)[0]
    assert len(model.requests) == 2


@pytest.mark.asyncio
async def test_a_server_named_in_the_settings_need_not_ask(stage):
    model = Script([[CALL], REPLY, [{"text": "done"}]], model="claude-haiku-4-5")
    async with session_with(stage, model, mcp={"sampling": ["s"]}) as session:
        await session.box.connected()
        await session.ask("go")
        assert "Hot water" in results(session)[0]


@pytest.mark.asyncio
async def test_a_model_that_fails_is_an_error_for_the_server_and_the_session_goes_on(stage):
    model = Script([[CALL], [{"fail": "rate", "message": "slow down"}], [{"text": "done"}]])
    async with session_with(stage, model, mcp={"sampling": ["s"]}) as session:
        await session.box.connected()
        assert await session.ask("go") == "done"
        assert "slow down" in results(session)[0]
