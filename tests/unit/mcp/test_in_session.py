"""A session with servers: what is offered when, what is only named, and what a resumed session still knows."""

from __future__ import annotations

import json
from typing import Any

import pytest

from wieldy import Script, Session

FIND = {"call": "ToolSearch", "input": {"query": "select:mcp__s__echo"}}
ECHO = {"call": "mcp__s__echo", "input": {"text": "hello"}}
GROW = {"call": "mcp__s__grow", "input": {}}
DONE = {"text": "done"}


def session_with(stage: Any, model: Script, defer: str = "auto", resume: str | None = None) -> Session:
    settings = {"mcpServers": {"s": stage.entry()}, "permissions": {"allow": ["mcp__s__*"]}, "defer": defer}
    return Session(stage.folder, model=model, settings=settings, resume=resume)


def offered(request: Any) -> list[str]:
    return [tool.name for tool in request.tools]


def own(request: Any) -> str:
    return json.dumps([[t.name, t.description, t.input_schema] for t in request.tools if "mcp__" not in t.name])


@pytest.mark.asyncio
async def test_a_server_that_becomes_ready_or_changes_its_list_is_offered_from_the_next_request_on(stage):
    model = Script([[DONE], [GROW], [{"pause": 0.5}, ECHO], [DONE]])
    async with session_with(stage, model) as session:
        await session.ask("at once")
        await session.box.connected()
        await session.ask("again")
    first, second, _, last = model.requests
    assert not [name for name in offered(first) if name.startswith("mcp__")]
    assert "mcp__s__echo" in offered(second) and "mcp__s__grown" not in offered(second)
    assert "mcp__s__grown" in offered(last)
    assert own(first) == own(second) == own(last)
    assert offered(last)[: len(offered(first))] == offered(first)


@pytest.mark.asyncio
async def test_deferred_tools_are_named_found_and_kept_through_a_resume(stage):
    model = Script([[FIND], [ECHO], [DONE]])
    async with session_with(stage, model, defer="always") as session:
        await session.box.connected()
        await session.ask("echo something")
        heard = str(session.messages)
    first, second, third = model.requests
    assert "mcp__s__echo" in "\n".join(first.system) and "mcp__s__echo" not in offered(first)
    assert offered(second) == [*offered(first), "mcp__s__echo"]
    assert offered(third) == offered(second)
    assert second.system == first.system, "what was cached stays cached"
    assert "hello" in heard
    again = Script([[DONE]])
    async with session_with(stage, again, defer="always", resume=session.id) as resumed:
        await resumed.box.connected()
        await resumed.ask("more")
    assert offered(again.requests[0])[-1] == "mcp__s__echo"


@pytest.mark.parametrize("defer", ["always", "auto"])
@pytest.mark.asyncio
async def test_a_first_request_names_the_servers_that_are_starting_and_a_search_waits_for_them(stage, defer):
    model = Script([[{"call": "ToolSearch", "input": {"query": "say it again"}}], [ECHO], [DONE]])
    async with session_with(stage, model, defer=defer) as session:
        await session.ask("echo something")
        assert "hello" in str(session.messages)
    first, second, _ = model.requests
    assert "Still starting, ask ToolSearch for their tools: s" in "\n".join(first.system)
    assert "mcp__s__echo" in offered(second)
    assert '"input_schema"' in str(second.messages), "the schema came with the answer"
    assert "Still starting" not in "\n".join(second.system)
