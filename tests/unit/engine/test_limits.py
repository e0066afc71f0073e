"""Rate limits, time limits and caches, each round one tool."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from wieldy import (
    Cached,
    Logged,
    Output,
    Progress,
    RateLimited,
    TimeLimited,
    Toolbox,
    ToolCall,
    ToolContext,
    ToolDefinitionError,
    tool,
)
from wieldy.core.call import PlannedCall
from wieldy.core.decision import Advice
from wieldy.engine.tool_limits import apply_limits

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
    async with make_box(RateLimited(look, 2, 10, clock=clock)) as box:
        assert not (await box.call("look", path="a")).is_error
        clock.now = 4
        assert not (await box.call("look", path="a")).is_error
        third = await box.call("look", path="a")
        assert third.is_error
        assert "2 times in 10 s. Try again in 6.0 s" in third.text
        clock.now = 10.5
        assert not (await box.call("look", path="a")).is_error
    assert len(ran) == 3


async def test_the_last_call_of_an_answer_is_the_one_too_many_however_long_others_take_to_be_decided(make_box):
    look, ran = counting()

    class SlowFirst:
        def wants(self, plan: PlannedCall) -> bool:
            return plan.call.id == "0"

        async def advise(self, plan: PlannedCall) -> Advice:
            for _ in range(100):
                await asyncio.sleep(0)
            return Advice()

    async with make_box(RateLimited(look, 2, 10), advisers=[SlowFirst()]) as box:
        calls = [ToolCall(str(n), "look", {"path": "abc"[n], "n": n}) for n in range(3)]
        assert [result.is_error for result in await box.call_many(calls)] == [False, False, True]
    assert ran == [0, 1]


async def test_a_kept_result_is_not_used_in_another_folder(make_box):
    @tool(read_only=True)
    async def where(ctx: ToolContext) -> str:
        """Say where."""
        return Path(ctx.cwd).name

    async with make_box(Cached(where, 1_000)) as box:
        here = (await box.call("where")).text
        (Path(box.workspace.root) / "sub").mkdir()
        box.workspace.cwd = f"{box.workspace.root}/sub"
        assert (await box.call("where")).text == "sub"
        box.workspace.cwd = box.workspace.root
        assert (await box.call("where")).text == here


async def test_a_kept_result_is_used_again_for_its_time_and_its_input_only(make_box):
    look, ran = counting()
    clock = Clock()
    async with make_box(Cached(look, 5, clock=clock)) as box:
        first = await box.call("look", path="a", n=1)
        assert (await box.call("look", path="a", n=1)).text == first.text
        assert (await box.call("look", path="a", n=2)).text != first.text
        clock.now = 5
        assert (await box.call("look", path="a", n=1)).text != first.text
    assert len(ran) == 3


async def test_a_write_to_what_was_read_or_an_opaque_call_makes_a_cache_forget(make_box):
    look, ran = counting()
    async with make_box(Cached(look, 1_000), write, opaque) as box:
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
        Cached(write, 5)
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

    async with make_box(Cached(flaky, 100)) as box:
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
        for _ in range(5):
            assert not (await box.call("look", path="a")).is_error
        assert len(ran) == 1
        for name in ("b", "c"):
            assert not (await box.call("look", path=name)).is_error
        assert (await box.call("look", path="d")).is_error
        assert not (await box.call("look", path="a")).is_error
    assert apply_limits(write, {"cacheSeconds": 60}) is write


async def test_a_result_read_while_something_changed_is_not_kept(make_box):
    reading, changed = asyncio.Event(), asyncio.Event()
    ran: list[int] = []

    @tool(read_only=True)
    async def status() -> str:
        """Read without saying what."""
        ran.append(1)
        reading.set()
        await changed.wait()
        return f"status {len(ran)}"

    async with make_box(Cached(status, 1_000), write) as box:
        call = asyncio.create_task(box.call("status"))
        await reading.wait()
        await box.call("write", path="a")
        changed.set()
        await call
        assert (await box.call("status")).text == "status 2"


async def test_a_cache_forgets_what_undo_restores(tmp_path, monkeypatch):
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))
    file = tmp_path / "project" / "a.txt"
    file.parent.mkdir()

    @tool(reads="path")
    async def look(path: str) -> str:
        """Look."""
        return Path(path).read_text() if Path(path).exists() else "gone"

    async with Toolbox(file.parent, settings={}, tools=[Cached(look, 1_000)], mode="acceptEdits") as box:
        await box.call("Write", file_path="a.txt", content="new")
        assert (await box.call("look", path="a.txt")).text == "new"
        await box.undo()
        assert (await box.call("look", path="a.txt")).text == "gone"


async def test_wrappers_forward_progress(make_box):
    @tool(read_only=True)
    async def working() -> AsyncIterator[Progress | Output]:
        """Work."""
        yield Progress("half")
        yield Output("whole")

    heard: list[str] = []
    async with make_box(TimeLimited(Logged(RateLimited(Cached(working, 60), 5, 60)), 5)) as box, box.stream() as events:
        assert (await box.call("working")).text == "whole"
        async for event in events:
            if event.kind == "tool.progress":
                heard.append(event.text)
            if event.kind == "tool.succeeded":
                break
    assert heard == ["half"]


async def test_a_rate_limit_counts_only_calls_that_ran(make_box):
    look, ran = counting()
    clock = Clock()
    async with make_box(RateLimited(look, 1, 10, clock=clock), verdicts={"look": "deny"}) as box:
        for _ in range(3):
            assert "denied" in (await box.call("look", path="a")).text.lower()
        box.services.judge.verdicts["look"] = "allow"
        assert not (await box.call("look", path="a")).is_error
        results = await box.call_many([("look", {"path": "b"}), ("look", {"path": "c"})])
        assert all("Try again in 10.0 s" in result.text for result in results)
    assert len(ran) == 1


@pytest.mark.parametrize("outside", [True, False])
async def test_results_from_a_cache_do_not_count_and_are_never_refused(make_box, outside):
    look, ran = counting()
    limited = Cached(RateLimited(look, 1, 10), 60) if outside else RateLimited(Cached(look, 60), 1, 10)
    async with make_box(limited) as box:
        for _ in range(3):
            assert not (await box.call("look", path="a")).is_error
        assert (await box.call("look", path="b")).is_error
    assert len(ran) == 1


async def test_a_call_too_many_can_wait_for_its_time(make_box):
    look, ran = counting()
    clock = Clock()
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)
        clock.now += seconds

    async with make_box(RateLimited(look, 2, 10, wait=True, clock=clock, sleep=sleep)) as box:
        results = await box.call_many([("look", {"path": "a"})] * 5)
    assert not any(result.is_error for result in results)
    assert waited == [10, 10]
    assert len(ran) == 5


async def test_a_logged_tool_writes_its_calls_to_the_log(make_box, caplog):
    @tool(read_only=True)
    async def greet(name: str) -> str:
        """Greet."""
        if not name:
            raise ValueError("nobody to greet")
        return f"hello {name}"

    with caplog.at_level("INFO", logger="wieldy.tools"):
        async with make_box(Logged(greet)) as box:
            await box.call("greet", name="Ada")
            await box.call("greet", name="")
    lines = [record.getMessage() for record in caplog.records if record.name == "wieldy.tools"]
    assert 'started with {"name": "Ada"}' in lines[0]
    assert "succeeded after" in lines[1]
    assert "failed after" in lines[3]
    assert "nobody to greet" in lines[3]


@pytest.mark.parametrize("seconds", [-1, 0, "3", True, None])
async def test_a_limit_that_is_no_positive_number_is_refused(seconds):
    look, _ = counting()
    for wrap in (
        lambda: TimeLimited(look, seconds),
        lambda: Cached(look, seconds),
        lambda: RateLimited(look, 1, seconds),
    ):
        with pytest.raises(ToolDefinitionError):
            wrap()
