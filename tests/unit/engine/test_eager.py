"""Tasks whose first step is taken at once: they are tasks like any other, only earlier."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar

import pytest

from wieldy.engine.eager import begun

pytestmark = pytest.mark.asyncio
colour: ContextVar[str] = ContextVar("colour", default="none")


async def test_work_that_never_waits_is_over_at_once():
    async def work() -> int:
        return 7

    task = begun(work())
    assert task.done()
    assert task.result() == 7


async def test_an_error_in_the_first_step_is_the_tasks_own():
    async def work() -> None:
        raise ValueError("no")

    task = begun(work())
    with pytest.raises(ValueError, match="no"):
        await task


async def test_the_current_task_is_the_new_one_from_first_to_last_step():
    async def work() -> list[object]:
        seen: list[object] = [asyncio.current_task()]
        await asyncio.sleep(0)
        return [*seen, asyncio.current_task()]

    me = asyncio.current_task()
    task = begun(work())
    assert asyncio.current_task() is me
    assert task in asyncio.all_tasks()
    assert await task == [task, task]


async def test_timeouts_begun_in_the_first_step_stop_that_task_and_no_other():
    async def work() -> str:
        try:
            async with asyncio.timeout(0.01):
                await asyncio.sleep(5)
        except TimeoutError:
            return "late"
        return "in time"

    assert await begun(work()) == "late"


async def test_what_it_sets_in_its_context_stays_there():
    async def work() -> str:
        colour.set("red")
        await asyncio.sleep(0)
        return colour.get()

    task = begun(work())
    assert colour.get() == "none"
    assert await task == "red"


async def test_one_inside_another_and_both_cancelled_from_outside():
    inner: list[asyncio.Task[None]] = []

    async def deep() -> None:
        await asyncio.sleep(5)

    async def work() -> None:
        inner.append(begun(deep()))
        await inner[0]

    task = begun(work())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert inner[0].cancelled()


async def test_the_loop_schedules_as_before_afterwards():
    async def work() -> None:
        return None

    begun(work())
    done = asyncio.Event()
    asyncio.get_running_loop().call_soon(done.set)
    await asyncio.wait_for(done.wait(), 1)
