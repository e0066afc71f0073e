"""Rate limits, time limits and caches, each round one tool."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from wieldy import Output, Progress, Toolbox, ToolDefinitionError, tool
from wieldy.engine.tool_limits import CachedTool, CacheInvalidator, RateLimited, TimeLimited, apply_limits

pytestmark = pytest.mark.asyncio


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def counting() -> tuple[Any, list[int]]:
    ran: list[int] = []

    @tool(reads="path")
    async def look(path: str, n: int = 0) -> str:
        """Look."""
        ran.append(n)
        return f"{Path(path).name} {n} #{len(ran)}"

    return look, ran


@tool(writes="path")
async def write(path: str) -> str:
    """Write."""
    return "written"


@tool
async def opaque() -> str:
    """Do anything."""
    return "done"


async def test_a_call_too_many_is_refused_and_told_when_to_come_back(make_box):
    look, ran = counting()
    clock = Clock()
    async with make_box(RateLimited(look, 2, 10, clock)) as box:
        assert not (await box.call("look", path="a")).is_error
        clock.now = 4
        assert not (await box.call("look", path="a")).is_error
        third = await box.call("look", path="a")
        assert third.is_error
        assert "2 times in 10 s. Try again in 6.0 s" in third.text
        clock.now = 10.5
        assert not (await box.call("look", path="a")).is_error
    assert len(ran) == 3


async def test_a_kept_result_is_used_again_for_its_time_and_its_input_only(make_box):
    look, ran = counting()
    clock = Clock()
    async with make_box(CachedTool(look, 5, clock=clock)) as box:
        first = await box.call("look", path="a", n=1)
        assert (await box.call("look", path="a", n=1)).text == first.text
        assert (await box.call("look", path="a", n=2)).text != first.text
        clock.now = 5
        assert (await box.call("look", path="a", n=1)).text != first.text
    assert len(ran) == 3


async def test_a_write_to_what_was_read_or_an_opaque_call_makes_a_cache_forget(make_box):
    look, ran = counting()
    cache, invalidator = CachedTool(look, 1_000), CacheInvalidator()
    invalidator.watch(cache)
    async with make_box(cache, write, opaque, advisers=[invalidator]) as box:
        await box.call("look", path="a")
        await box.call("look", path="b")
        await box.call("write", path="a")
        await box.call("look", path="b")
        assert len(ran) == 2
        await box.call("look", path="a")
        assert len(ran) == 3
        await box.call("opaque")
        await box.call("look", path="a")
        await box.call("look", path="b")
        assert len(ran) == 5


async def test_only_read_only_tools_can_be_cached_and_impossible_limits_are_refused():
    with pytest.raises(ToolDefinitionError, match="not read-only"):
        CachedTool(write, 5)
    with pytest.raises(ToolDefinitionError):
        RateLimited(write, 0, 5)
    with pytest.raises(ToolDefinitionError):
        TimeLimited(write, 0)
    assert TimeLimited(write, math.inf).timeout is None


async def test_errors_are_not_kept(make_box):
    ran: list[int] = []

    @tool(read_only=True)
    async def flaky() -> AsyncIterator[Progress | Output]:
        """Fail first."""
        ran.append(1)
        yield Progress("…")
        yield Output(f"try {len(ran)}", is_error=len(ran) == 1)

    async with make_box(CachedTool(flaky, 100)) as box:
        assert (await box.call("flaky")).is_error
        assert (await box.call("flaky")).text == "try 2"
        assert (await box.call("flaky")).text == "try 2"


async def test_a_time_limit_stops_the_tool(make_box):
    @tool(read_only=True)
    async def slow() -> str:
        """Sleep."""
        await asyncio.sleep(60)
        return ""

    async with make_box(TimeLimited(slow, 0.05)) as box:
        assert "did not finish within 0.05 s" in (await box.call("slow")).text


async def test_settings_put_limits_round_tools(tmp_path, monkeypatch):
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))
    look, ran = counting()
    settings = {"tools": {"look": {"cacheSeconds": 60, "rateLimit": {"calls": 3, "seconds": 60}, "timeout": 5}}}
    async with Toolbox(tmp_path, settings=settings, tools=[look], mode="acceptEdits") as box:
        for _ in range(3):
            assert not (await box.call("look", path="a")).is_error
        assert (await box.call("look", path="a")).is_error
        assert len(ran) == 1
    assert apply_limits(write, {"cacheSeconds": 60}) is write
