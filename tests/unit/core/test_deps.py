"""Dependencies for tools: typed, given once, and missing ones are told."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from wieldy import Cached, Script, Session, Tool, Toolbox, ToolContext, ToolDefinitionError, tool


@dataclass
class Shop:
    prices: dict[str, int] = field(default_factory=lambda: {"tea": 3})


@tool(read_only=True)
async def price(name: str, ctx: ToolContext[Shop]) -> str:
    """Look up a price."""
    return f"{ctx.deps.prices[name]}"


@tool(read_only=True)
def sync_price(name: str, context: ToolContext[Shop]) -> str:
    """Look up a price."""
    return f"{context.deps.prices[name]}"


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))


@pytest.mark.asyncio
async def test_a_tool_reads_what_the_toolbox_was_given(tmp_path):
    async with Toolbox(tmp_path, settings={}, tools=[Cached(price, 60), sync_price], deps=Shop()) as box:
        assert (await box.call("price", name="tea")).text == "3"
        assert (await box.call("sync_price", name="tea")).text == "3"
        assert list(price.schema["properties"]) == list(sync_price.schema["properties"]) == ["name"]


@pytest.mark.asyncio
async def test_a_session_and_its_subagents_have_the_same_deps(tmp_path):
    call = {"call": "price", "input": {"name": "tea"}}
    send = {"call": "Agent", "input": {"agent_type": "general", "prompt": "look", "description": "x"}}
    agent = Script([[call], [{"text": "it is 3"}]])
    model = Script([[call, send], [{"text": "done"}]], agents=[("general", "", agent)])
    async with Session(tmp_path, model=model, settings={}, tools=[price], deps=Shop()) as session:
        await session.ask("go")
        results = session.messages[2]["content"]
    assert results[0]["content"][0]["text"] == "3"
    assert "'3'" in str(agent.requests[1].messages[-1].content)


@pytest.mark.parametrize("deps", [None, {"tea": 3}])
def test_missing_or_wrong_deps_are_told_where_the_tool_is_added(tmp_path, deps):
    with pytest.raises(ToolDefinitionError, match="needs deps of type Shop"):
        Toolbox(tmp_path, settings={}, tools=[price], deps=deps)
    box = Toolbox(tmp_path, settings={}, deps=deps)
    with pytest.raises(ToolDefinitionError, match="needs deps of type Shop"):
        box.add(price)


def test_a_context_without_a_type_takes_any_deps(tmp_path):
    @tool(read_only=True)
    async def look(ctx: ToolContext) -> str:
        """Look."""
        return str(ctx.deps)

    Toolbox(tmp_path, settings={}, tools=[look])
    Toolbox(tmp_path, settings={}, tools=[look], deps=3)


def test_a_tool_can_still_be_called_like_its_function():
    @tool(read_only=True)
    def double(number: int) -> int:
        """Double a number."""
        return 2 * number

    result: int = double(4)
    assert result == 8


@pytest.mark.asyncio
async def test_a_handler_gets_the_context_only_where_it_asks_for_it(tmp_path):
    seen: list[Any] = []

    def plain(input: dict[str, Any], more: str = "default") -> str:
        seen.append(more)
        return "ok"

    async def asking(input: dict[str, Any], *, ctx: ToolContext[Shop]) -> str:
        seen.append(ctx.deps)
        return "ok"

    schema = {"type": "object", "properties": {}}
    tools = [
        Tool.from_schema("plain", "Plain.", schema, plain, read_only=True),
        Tool.from_schema("asking", "Asking.", schema, asking, read_only=True),
    ]
    shop = Shop()
    async with Toolbox(tmp_path, settings={}, tools=tools, deps=shop) as box:
        await box.call("plain")
        await box.call("asking")
    assert seen == ["default", shop]
