"""A tool may do anything: the toolbox and its other calls go on as if nothing had happened."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from wieldy import Output, Progress, tool
from wieldy.core.outcome import Interrupted

pytestmark = pytest.mark.asyncio


@tool(read_only=True)
async def fine(n: int) -> str:
    """Be fine."""
    return f"fine {n}"


async def test_a_generator_that_never_gives_a_result_is_told_so(make_box):
    @tool(read_only=True)
    async def silent() -> AsyncIterator[Progress]:
        """Say nothing."""
        yield Progress("…")

    async with make_box(silent) as box:
        assert "ended without a result" in (await box.call("silent")).text


async def test_the_first_result_ends_the_run(make_box):
    after: list[str] = []

    @tool(read_only=True)
    async def twice() -> AsyncIterator[Output]:
        """Answer twice."""
        yield Output("one")
        after.append("ran on")
        yield Output("two")

    async with make_box(twice) as box:
        assert (await box.call("twice")).text == "one"
    assert after == []


async def test_a_tool_that_blocks_in_finally_is_left_behind_on_time(make_box):
    released = asyncio.Event()

    @tool(read_only=True, timeout=0.05)
    async def stubborn() -> str:
        """Refuse to stop."""
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.shield(released.wait())
        return ""

    async with make_box(stubborn, fine) as box:
        box.services.supervisor.grace = 0.05
        results = await asyncio.wait_for(box.call_many([("stubborn", {}), ("fine", {"n": 1})]), timeout=5)
        released.set()
        await asyncio.sleep(0)
    assert "did not finish within 0.05 s" in results[0].text
    assert results[1].text == "fine 1"


async def test_a_tool_that_leaks_a_task_breaks_nothing(make_box):
    leaked: list[asyncio.Task[Any]] = []

    @tool(read_only=True)
    async def leaky() -> str:
        """Leak."""
        leaked.append(asyncio.create_task(asyncio.sleep(60)))
        return "leaked"

    async with make_box(leaky, fine) as box:
        assert (await box.call("leaky")).text == "leaked"
        assert (await box.call("fine", n=2)).text == "fine 2"
    leaked[0].cancel()


async def test_a_blocking_function_holds_up_neither_the_loop_nor_its_siblings(make_box):
    gate = threading.Event()

    @tool(read_only=True, timeout=5)
    def blocking() -> str:
        """Block."""
        gate.wait(5)
        return "unblocked"

    async with make_box(blocking, fine) as box, box.turn() as turn:
        for _ in range(8):
            turn.submit(("blocking", {}))
        last = turn.submit(("fine", {"n": 3}))
        assert (await last).text == "fine 3"
        gate.set()
        assert [r.text for r in await turn.results()] == ["unblocked"] * 8 + ["fine 3"]


async def test_a_sync_generator_reports_progress_and_returns_its_result(make_box):
    @tool(read_only=True)
    def steps() -> Any:
        """Step."""
        yield Progress("one")
        yield Progress("two")
        return "done"

    async with make_box(steps) as box:
        assert (await box.call("steps")).text == "done"


async def test_a_tool_that_cancels_itself_fails_alone(make_box):
    @tool(read_only=True)
    async def suicidal() -> str:
        """Cancel itself."""
        raise asyncio.CancelledError

    async with make_box(suicidal, fine) as box:
        results = await box.call_many([("suicidal", {}), ("fine", {"n": 4})])
    assert [r.is_error for r in results] == [True, False]


async def test_one_failure_of_many_cancels_no_sibling(make_box):
    @tool(read_only=True)
    async def maybe(n: int) -> str:
        """Fail on seven."""
        await asyncio.sleep(0)
        if n == 7:
            raise ValueError("seven")
        return str(n)

    async with make_box(maybe) as box:
        results = await box.call_many([("maybe", {"n": n}) for n in range(27)])
    assert [r.text for r in results if not r.is_error] == [str(n) for n in range(27) if n != 7]
    assert results[7].is_error


async def test_an_abort_ends_every_open_call_with_a_result_and_the_toolbox_goes_on(make_box):
    begun = asyncio.Event()

    @tool
    async def endless() -> str:
        """Never end."""
        begun.set()
        await asyncio.sleep(3600)
        return ""

    async with make_box(endless, fine) as box:
        running = asyncio.ensure_future(box.call_many([("endless", {}), ("endless", {}), ("fine", {"n": 1})]))
        await begun.wait()
        box.abort()
        results = await asyncio.wait_for(running, 5)
        assert [r.text for r in results] == ["interrupted by the user"] * 3
        assert all(isinstance(r.outcome, Interrupted) for r in results)
        assert (await box.call("fine", n=5)).text == "fine 5"


async def test_what_a_tool_says_while_it_is_being_stopped_is_kept(make_box):
    begun = asyncio.Event()

    @tool(read_only=True)
    async def talker() -> AsyncIterator[Output]:
        """Talk until stopped."""
        try:
            begun.set()
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            yield Output("half a sentence")

    async with make_box(talker) as box:
        running = asyncio.ensure_future(box.call("talker"))
        await begun.wait()
        box.abort()
        result = await asyncio.wait_for(running, 5)
    assert result.text == "interrupted by the user\nUntil then it said:\nhalf a sentence"


async def test_cancelling_the_caller_is_honoured_and_stops_the_tool(make_box):
    begun, stopped = asyncio.Event(), asyncio.Event()

    @tool(read_only=True)
    async def endless() -> str:
        """Never end."""
        begun.set()
        try:
            await asyncio.sleep(3600)
        finally:
            stopped.set()
        return ""

    async with make_box(endless) as box:
        running = asyncio.ensure_future(box.call("endless"))
        await begun.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert stopped.is_set()


async def test_a_tool_may_call_tools_without_waiting_for_itself(make_box):
    async with make_box() as box:

        @tool
        async def outer() -> str:
            """Call others."""
            results = await box.call_many([("inner", {"n": n}) for n in range(12)])
            return ",".join(r.text for r in results)

        @tool
        async def inner(n: int) -> str:
            """Be called."""
            await asyncio.sleep(0)
            return str(n)

        box.add(outer)
        box.add(inner)
        results = await asyncio.wait_for(box.call_many([("outer", {})] * 12), 10)
    assert {r.text for r in results} == {",".join(map(str, range(12)))}


async def test_work_that_never_began_is_put_away_without_a_word(recwarn):
    import gc

    from wieldy.core.supervise import Abort, Aborted, Supervisor

    async def work() -> str:
        return "done"

    stopped = Abort()
    stopped.set()
    with pytest.raises(Aborted):
        await Supervisor().run(work(), stopped)
    waiting = asyncio.ensure_future(Supervisor().run(work(), Abort(), 5))
    await asyncio.sleep(0)  # now it waits for a task that has not taken its first step
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await Supervisor().run(work(), Abort(), 5) == "done"
    gc.collect()
    assert [str(warning.message) for warning in recwarn] == []


class Stop(BaseException):
    """An exception that no `except Exception` catches."""


@pytest.mark.parametrize("error", [SystemExit(3), SystemExit(), KeyboardInterrupt(), Stop("now")])
async def test_a_tool_that_exits_the_program_fails_alone(make_box, error):
    @tool(read_only=True)
    async def leaving() -> str:
        """Leave."""
        raise error

    @tool(read_only=True, name="leaving_in_thread")
    def in_thread() -> str:
        """Leave from a thread."""
        raise error

    @tool(read_only=True, effects=lambda input, workspace: leaving_early(error), name="leaving_early")
    async def early() -> str:
        """Leave before it runs."""
        return ""

    async with make_box(leaving, in_thread, early, fine) as box:
        calls: list[Any] = [("leaving", {}), ("leaving_in_thread", {}), ("leaving_early", {}), ("fine", {"n": 4})]
        results = await box.call_many(calls)
    assert [result.is_error for result in results] == [True, True, True, False]
    for result in results[:3]:
        assert "tried to end the program" in result.text
        assert type(error).__name__ in result.text


async def test_a_tool_that_raises_the_end_of_a_generator_fails_alone(make_box):
    @tool(read_only=True)
    async def leaving() -> str:
        """Leave."""
        raise GeneratorExit

    async with make_box(leaving, fine) as box:
        result, other = await box.call_many([("leaving", {}), ("fine", {"n": 4})])
    assert "it raised GeneratorExit" in result.text
    assert other.text == "fine 4"


def leaving_early(error: BaseException) -> Any:
    raise error


@pytest.mark.parametrize("part", ["check", "enabled"])
async def test_a_check_that_exits_the_program_fails_alone(make_box, part):
    def leave(*_: Any) -> Any:
        raise SystemExit(1)

    options: Any = {part: leave}

    @tool(read_only=True, **options)
    async def leaving() -> str:
        """Leave."""
        return "ran"

    async with make_box(leaving, fine) as box:
        if part == "check":
            assert (await box.call("leaving")).is_error
        assert [each.tool.name for each in await box.offer() if each.offered][-1] in ("fine", "leaving")
        assert (await box.call("fine", n=5)).text == "fine 5"
