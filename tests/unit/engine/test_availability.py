"""What is not available is neither offered nor called, whoever asks."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from wieldy import RateLimited, Toolbox, tool
from wieldy.core.outcome import Refused

pytestmark = pytest.mark.asyncio

OFF = "switched off by the operator"


async def off_later(workspace: Any) -> str:
    await asyncio.sleep(0)
    return OFF


def broken(workspace: Any) -> bool:
    raise OSError("no display")


def deploy_tool(enabled: Any, runs: list[str]) -> Any:
    @tool(enabled=enabled, needs_permission=False, read_only=True)
    def deploy(target: str = "x") -> str:
        """Deploys."""
        runs.append(target)
        return "deployed"

    return deploy


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize(
    ("enabled", "reason"),
    [
        (lambda *_: OFF, OFF),
        (lambda *_: False, "not available here"),
        (off_later, OFF),
        (broken, "its self-check failed: no display"),
    ],
)
async def test_a_disabled_tool_does_not_run_whoever_calls_it(tmp_path, enabled, reason, wrapped):
    runs: list[str] = []
    deploy = deploy_tool(enabled, runs)
    offered = RateLimited(deploy, 9, 9) if wrapped else deploy
    async with Toolbox(tmp_path, settings={}, tools=[offered]) as box:
        assert {row.tool.name: row.offered for row in await box.offer()}["deploy"] is False
        results = [await box.call("deploy"), *await box.call_many([("deploy", {}), ("deploy", '{"target": "y"}')])]
        for result in results:
            assert isinstance(result.outcome, Refused) and result.outcome.stage == "lookup"
            assert "`deploy` is not available" in result.text and reason in result.text
            assert reason in result.person_text
    assert runs == []


async def test_a_tool_is_asked_anew_for_each_call(tmp_path):
    runs: list[str] = []
    state: list[bool | str] = [True]
    async with Toolbox(tmp_path, settings={}, tools=[deploy_tool(lambda *_: state[0], runs)]) as box:
        assert not (await box.call("deploy")).is_error
        state[0] = OFF
        assert (await box.call("deploy")).is_error
        state[0] = True
        assert not (await box.call("deploy")).is_error
    assert len(runs) == 2


@pytest.mark.parametrize("before", [True, False])
async def test_a_call_before_it_may_switch_a_tool_on_or_off(tmp_path, before):
    state = [before]

    @tool(needs_permission=False)
    async def switch() -> str:
        """Switches it."""
        await asyncio.sleep(0)
        state[0] = not before
        return "switched"

    runs: list[str] = []
    deploy = deploy_tool(lambda *_: state[0], runs)
    async with Toolbox(tmp_path, settings={}, tools=[switch, deploy]) as box:
        results = await box.call_many([("switch", {}), ("deploy", {})])
    assert [result.is_error for result in results] == [False, before]
    assert len(runs) == (not before)


async def test_a_check_that_has_to_wait_does_not_change_the_order_of_calls(tmp_path):
    order: list[str] = []

    async def slow(workspace: Any) -> bool:
        await asyncio.sleep(0.05)
        return True

    @tool(enabled=slow, needs_permission=False)
    def first() -> str:
        """Runs first."""
        order.append("first")
        return "1"

    @tool(needs_permission=False)
    def second() -> str:
        """Runs second."""
        order.append("second")
        return "2"

    settings = {"permissions": {"allow": ["first", "second"]}}
    async with Toolbox(tmp_path, settings=settings, tools=[first, second]) as box:
        await box.call_many([("first", {}), ("second", {})])
    assert order == ["first", "second"]


async def test_simple_mode_runs_only_what_it_offers(tmp_path):
    (tmp_path / "f").write_text("hay\n")
    async with Toolbox(tmp_path, settings={"features": {"simple": True}}) as box:
        offered = {row.tool.name for row in await box.offer() if row.offered}
        assert offered == {"Bash", "Edit", "Read"}
        refused = await box.call("Grep", pattern="hay")
        assert isinstance(refused.outcome, Refused) and "simple mode has only" in refused.text
        assert not (await box.call("Read", file_path=str(tmp_path / "f"))).is_error


async def test_a_tool_whose_feature_is_off_says_how_to_switch_it_on(tmp_path):
    async with Toolbox(tmp_path, settings={}) as box:
        for name, input in (
            ("MemoryRead", {}),
            ("BrowserClick", {"element": "x", "ref": "e1"}),
            ("ExitPlan", {"plan": "x"}),
        ):
            result = await box.call(name, input)
            assert isinstance(result.outcome, Refused) and result.outcome.stage == "lookup", result.text
        assert "features.memory" in (await box.call("MemoryRead")).text
