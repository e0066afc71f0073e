"""Results in request order, writers alone, questions one at a time in the order of the calls."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from wieldy import ToolContext, tool
from wieldy.core.decision import Advice, Opinion
from wieldy.core.events import EventsDropped

pytestmark = pytest.mark.asyncio


async def test_results_come_in_the_order_of_the_requests_whatever_finished_first(make_box):
    first_done = asyncio.Event()

    @tool(read_only=True)
    async def wait_for_other(n: int) -> str:
        """The first waits for the second."""
        if n == 0:
            await first_done.wait()
        else:
            first_done.set()
        return str(n)

    async with make_box(wait_for_other) as box:
        results = await asyncio.wait_for(box.call_many([("wait_for_other", {"n": n}) for n in range(2)]), 5)
    assert [r.text for r in results] == ["0", "1"]


async def test_an_undeclared_tool_runs_alone(make_box):
    running = most = 0

    @tool
    async def opaque() -> str:
        """Do who knows what."""
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return "ok"

    async with make_box(opaque) as box:
        await box.call_many([("opaque", {})] * 5)
    assert most == 1


async def test_writers_of_one_file_take_turns_and_readers_of_another_do_not_wait(make_box):
    order: list[str] = []
    reader_ran = asyncio.Event()

    @tool(writes="path")
    async def write(path: str, n: int) -> str:
        """Write."""
        order.append(f"begin {n}")
        if n == 1:
            await asyncio.wait_for(reader_ran.wait(), 5)
        order.append(f"end {n}")
        return "ok"

    @tool(reads="path")
    async def read(path: str) -> str:
        """Read."""
        reader_ran.set()
        return "ok"

    async with make_box(write, read) as box:
        await box.call_many(
            [("write", {"path": "a", "n": 1}), ("write", {"path": "a", "n": 2}), ("read", {"path": "b"})]
        )
    assert order == ["begin 1", "end 1", "begin 2", "end 2"]


async def test_questions_come_one_at_a_time_in_call_order(make_box):
    asked: list[int] = []
    open_questions = 0

    class SlowForTheFirst:
        def wants(self, plan: Any) -> bool:
            return True

        async def advise(self, plan: Any) -> Advice:
            for _ in range(10 - plan.input["n"]):
                await asyncio.sleep(0)
            return Advice((Opinion("hook", "ask", "to be sure"),))

    async def answer(question: Any) -> bool:
        nonlocal open_questions
        open_questions += 1
        assert open_questions == 1
        asked.append(question.plan.input["n"])
        await asyncio.sleep(0)
        open_questions -= 1
        return True

    @tool(read_only=True)
    async def step(n: int) -> str:
        """Step."""
        return str(n)

    async with make_box(step, ask=answer, advisers=[SlowForTheFirst()]) as box:
        results = await asyncio.wait_for(box.call_many([("step", {"n": n}) for n in range(6)]), 10)
    assert asked == list(range(6))
    assert [r.text for r in results] == [str(n) for n in range(6)]


async def test_more_questions_than_slots_do_not_lock_each_other_out(make_box):
    @tool(writes="path")
    async def write(path: str) -> str:
        """Write."""
        await asyncio.sleep(0)
        return "ok"

    async with make_box(write, verdicts={"write": "ask"}, ask=lambda question: True, max_concurrency=2) as box:
        calls = [("write", {"path": f"f{n % 3}"}) for n in range(30)]
        results = await asyncio.wait_for(box.call_many(calls), 10)
    assert [r.text for r in results] == ["ok"] * 30


async def test_a_hook_may_rewrite_the_input_and_the_result_carries_its_context(make_box):
    class Rewriter:
        def wants(self, plan: Any) -> bool:
            return True

        async def advise(self, plan: Any) -> Advice:
            return Advice(updated_input={"n": plan.input["n"] + 1}, context=("one more than asked",))

    @tool(read_only=True)
    async def step(n: int) -> str:
        """Step."""
        return str(n)

    async with make_box(step, advisers=[Rewriter()]) as box:
        assert (await box.call("step", n=1)).text == "2\none more than asked"


async def test_a_failing_or_slow_subscriber_hurts_nobody(make_box):
    import threading

    @tool(read_only=True)
    async def step(n: int) -> str:
        """Step."""
        return str(n)

    gate, heard = threading.Event(), []

    def slow(event: Any) -> None:
        gate.wait(10)
        heard.append(event)

    async def failing(event: Any) -> None:
        raise RuntimeError("subscriber")

    async with make_box(step) as box:
        box.events.subscribe(slow, backlog=10)
        box.events.subscribe(failing)
        results = [await asyncio.wait_for(box.call("step", n=n), 5) for n in range(50)]
        gate.set()
    assert [r.text for r in results] == [str(n) for n in range(50)]
    dropped = [event for event in heard if isinstance(event, EventsDropped)]
    assert sum(event.count for event in dropped) + len(heard) - len(dropped) == 200


async def test_events_can_be_iterated_while_calls_run(make_box):
    @tool(read_only=True)
    async def step(n: int) -> str:
        """Step."""
        return str(n)

    kinds = []
    async with make_box(step) as box, box.stream() as events:
        await box.call("step", n=1)
        async for event in events:
            kinds.append(event.kind)
            if event.kind == "tool.succeeded":
                break
    assert kinds == ["tool.requested", "permission.decided", "tool.started", "tool.succeeded"]


async def test_a_call_is_planned_for_the_folder_that_earlier_calls_leave_it_in(make_box, tmp_path):
    (tmp_path / "sub").mkdir()

    @tool
    async def enter(folder: str, ctx: ToolContext) -> str:
        """Go there."""
        await asyncio.sleep(0)
        ctx.workspace.cwd = f"{ctx.workspace.root}/{folder}"
        return "there"

    @tool(reads="path")
    async def look(path: str) -> str:
        """Look."""
        return path

    async with make_box(enter, look) as box:
        _, result = await box.call_many([("enter", {"folder": "sub"}), ("look", {"path": "f"})])
    assert result.text == str(tmp_path / "sub/f")
