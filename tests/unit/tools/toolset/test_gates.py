"""Which tools fit a context, each with its reason."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from wieldy.core.abort import Abort
from wieldy.core.supervise import Supervisor, ask_enabled
from wieldy.core.tool import Tool
from wieldy.engine.toolbox import Toolbox
from wieldy.tools.toolset.gates import OfferContext, check_availability, feature_gate, is_feature_enabled


def make(name: str, **declared: object) -> Tool:
    return Tool.from_schema(name, f"Does {name}.", {"type": "object", "properties": {}}, lambda input: "", **declared)


async def itself(tool: Tool) -> str | None:
    return await ask_enabled(tool, None, Supervisor(), Abort())  # type: ignore[arg-type]


async def reasons(
    tools: list[Tool],
    context: OfferContext | None = None,
    removes: Callable[[str], object | None] = lambda name: None,
    disabled: Callable[[Tool], Awaitable[str | None]] = itself,
) -> dict[str, tuple[bool, str]]:
    rows = await check_availability(
        tools, context or OfferContext(), gate=lambda name: None, removes=removes, disabled=disabled
    )
    return {row.tool.name: (row.offered, row.reason) for row in rows}


@pytest.mark.asyncio
async def test_simple_mode_has_three_tools_and_says_so():
    found = await reasons([make("Bash"), make("Edit"), make("Grep"), make("Read")], OfferContext(simple=True))
    assert [name for name, (offered, _) in found.items() if offered] == ["Bash", "Edit", "Read"]
    assert "Bash, Edit, Read" in found["Grep"][1]


@pytest.mark.asyncio
async def test_plan_mode_offers_what_only_reads():
    found = await reasons([make("Look", read_only=True), make("Change")], OfferContext(mode="plan"))
    assert found["Look"][0] and not found["Change"][0]
    assert "plan mode" in found["Change"][1]


@pytest.mark.asyncio
async def test_a_list_of_names_and_patterns_is_all_that_a_sub_agent_gets():
    tools = [make("Read"), make("Write"), make("mcp__git__log"), make("mcp__web__get")]
    found = await reasons(tools, OfferContext(only=("Read", "mcp__git__*")))
    assert {name for name, (offered, _) in found.items() if offered} == {"Read", "mcp__git__log"}


@pytest.mark.asyncio
async def test_a_bare_deny_rule_takes_a_tool_away_and_is_the_reason():
    found = await reasons([make("Write")], removes=lambda name: "deny: rule `Write`")
    assert found["Write"] == (False, "deny: rule `Write`")


@pytest.mark.asyncio
async def test_self_checks_run_side_by_side_and_one_that_fails_loses_only_its_own_tool():
    both = asyncio.Barrier(2)

    async def meets(workspace):
        await both.wait()
        return True

    async def breaks(workspace):
        raise OSError("no display")

    tools = [make("One", enabled=meets), make("Two", enabled=meets), make("Three", enabled=breaks)]
    tools.append(make("Four", enabled=lambda workspace: "needs a key"))
    found = await asyncio.wait_for(reasons(tools), 5)
    assert found["One"][0] and found["Two"][0]
    assert found["Three"] == (False, "its self-check failed: no display")
    assert found["Four"] == (False, "needs a key")


@pytest.mark.asyncio
async def test_tools_without_a_self_check_are_not_asked():
    async def never(tool):
        raise AssertionError(tool.name)

    assert (await reasons([make("Read")], disabled=never))["Read"] == (True, "available")


def test_features_are_off_until_switched_on_and_the_environment_has_the_last_word():
    assert "features.memory" in str(feature_gate("MemoryRead", {}, {}))
    assert feature_gate("MemoryRead", {"features": {"memory": True}}, {}) is None
    assert feature_gate("MemoryRead", {}, {"WIELDY_FEATURE_MEMORY": "1"}) is None
    assert feature_gate("MemoryRead", {"features": {"memory": True}}, {"WIELDY_FEATURE_MEMORY": "0"}) is not None
    assert feature_gate("Read", {}, {}) is None
    assert "features.browser" in str(feature_gate("BrowserClick", {}, {}))
    assert feature_gate("BrowserClick", {"features": {"browser": True}}, {}) is None
    assert not is_feature_enabled("browser", {"features": {"browser": "yes"}}, {})


@pytest.mark.asyncio
async def test_what_is_off_by_name_is_looked_at_only_by_whoever_asks_for_every_tool(tmp_path):
    async with Toolbox(tmp_path, settings={}) as box:
        looked_at = {row.tool.name for row in (await box.offering()).availability}
        every = {row.tool.name: row.reason for row in await box.offer()}
    off = {"Architect", "BrowserClick", "MemoryRead", "StickerRequest", "ExitPlan"}
    assert not off & looked_at
    assert "Read" in looked_at
    assert off <= every.keys()
    assert every["ExitPlan"] == "only for plan mode"
    assert "features.browser" in every["BrowserClick"]
