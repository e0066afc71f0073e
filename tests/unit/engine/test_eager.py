"""Work whose first step is taken at once: it goes on like any other, only earlier."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar

import pytest

from wieldy.engine.supervise import at_once, begun

colour: ContextVar[str] = ContextVar("colour", default="none")


@pytest.mark.asyncio
async def test_work_that_never_waits_is_over_at_once():
    async def work() -> int:
        return 7

    task = begun(work())
    assert task.done()
    assert task.result() == 7


@pytest.mark.asyncio
async def test_an_error_in_the_first_step_is_the_tasks_own():
    async def work() -> None:
        raise ValueError("no")

    task = begun(work())
    with pytest.raises(ValueError, match="no"):
        await task


@pytest.mark.asyncio
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


@pytest.mark.asyncio
async def test_timeouts_begun_in_the_first_step_stop_that_task_and_no_other():
    async def work() -> str:
        try:
            async with asyncio.timeout(0.01):
                await asyncio.sleep(5)
        except TimeoutError:
            return "late"
        return "in time"

    assert await begun(work()) == "late"


@pytest.mark.asyncio
async def test_what_it_sets_in_its_context_stays_there():
    async def work() -> str:
        colour.set("red")
        await asyncio.sleep(0)
        return colour.get()

    task = begun(work())
    assert colour.get() == "none"
    assert await task == "red"


@pytest.mark.asyncio
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


@pytest.mark.asyncio
async def test_the_loop_schedules_as_before_afterwards():
    async def work() -> None:
        return None

    begun(work())
    done = asyncio.Event()
    asyncio.get_running_loop().call_soon(done.set)
    await asyncio.wait_for(done.wait(), 1)


@pytest.mark.asyncio
async def test_what_never_waits_is_a_result_and_no_task():
    async def work() -> int:
        return 7

    before = asyncio.all_tasks()
    assert at_once(work()) == 7
    assert asyncio.all_tasks() == before


@pytest.mark.asyncio
async def test_what_waits_goes_on_in_a_task_as_often_as_it_waits():
    async def work() -> list[object]:
        seen: list[object] = []
        for _ in range(3):
            await asyncio.sleep(0)
            seen.append(asyncio.current_task())
        await asyncio.sleep(0.001)
        return [*seen, asyncio.current_task()]

    task = at_once(work())
    assert isinstance(task, asyncio.Task)
    assert await task == [task] * 4


@pytest.mark.asyncio
@pytest.mark.parametrize("waits", [False, True])
async def test_an_error_is_the_tasks_own_whenever_it_comes(waits):
    async def work() -> None:
        if waits:
            await asyncio.sleep(0)
        raise ValueError("no")

    task = at_once(work())
    assert isinstance(task, asyncio.Task)
    with pytest.raises(ValueError, match="no"):
        await task


@pytest.mark.asyncio
async def test_who_is_cancelled_while_it_first_waits_may_clean_up_and_wait_again():
    seen: list[str] = []

    async def work() -> str:
        try:
            await asyncio.sleep(5)
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            seen.append("cleaned up")
            raise
        return "in time"

    task = at_once(work())
    assert isinstance(task, asyncio.Task)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen == ["cleaned up"]


@pytest.mark.asyncio
async def test_who_is_cancelled_and_will_not_hear_of_it_has_its_result():
    async def work() -> str:
        try:
            await asyncio.sleep(5)
        except asyncio.CancelledError:
            return "did not mind"
        return "in time"

    task = at_once(work())
    assert isinstance(task, asyncio.Task)
    task.cancel()
    assert await task == "did not mind"


@pytest.mark.asyncio
async def test_a_future_that_fails_is_told_to_who_waits_for_it():
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def work() -> str:
        try:
            await future
        except OSError as error:
            return str(error)
        return "nothing"

    task = at_once(work())
    future.set_exception(OSError("broken"))
    assert isinstance(task, asyncio.Task)
    assert await task == "broken"


@pytest.mark.asyncio
async def test_what_the_first_step_sets_in_its_context_is_there_in_the_others_and_nowhere_else():
    async def work() -> str:
        colour.set("red")
        await asyncio.sleep(0)
        return colour.get()

    task = at_once(work())
    assert colour.get() == "none"
    assert isinstance(task, asyncio.Task)
    assert await task == "red"


def test_on_a_loop_that_takes_no_step_early_who_is_cancelled_at_once_still_cleans_up():
    class Sealed(asyncio.SelectorEventLoop):
        def __setattr__(self, name: str, value: object) -> None:
            if name == "call_soon":
                raise AttributeError(name)
            super().__setattr__(name, value)

    seen: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(5)
        finally:
            seen.append("cleaned up")

    async def main() -> None:
        task = at_once(work())
        assert isinstance(task, asyncio.Task)
        task.cancel()
        await asyncio.wait((task,))
        await asyncio.sleep(0)

    with asyncio.Runner(loop_factory=Sealed) as runner:
        runner.run(main())
    assert seen == ["cleaned up"]
