"""Blocking functions off the loop: given up when nobody waits any more, or seen through to their end."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import os
import threading
import weakref

import pytest

from wieldy.core.threads import _pool, in_thread, in_thread_uncancellable, run_in_background

pytestmark = pytest.mark.asyncio


async def test_what_a_function_returns_or_raises_comes_back():
    assert await in_thread(threading.current_thread) is not threading.current_thread()
    for run in (in_thread, in_thread_uncancellable):
        assert await run(divmod, 7, 2) == (3, 1)
        with pytest.raises(ZeroDivisionError):
            await run(divmod, 7, 0)


async def test_who_is_cancelled_leaves_a_function_to_itself():
    go, ended = threading.Event(), threading.Event()

    def work() -> None:
        go.wait(10)
        ended.set()

    waiting = asyncio.ensure_future(in_thread(work))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not ended.is_set()
    go.set()
    assert await in_thread(ended.wait, 10)


@pytest.mark.parametrize("fails", [False, True])
async def test_who_is_cancelled_waits_for_what_must_come_to_its_end(fails: bool):
    begun, go, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        go.wait(10)
        ended.set()
        if fails:
            raise ValueError

    waiting = asyncio.ensure_future(in_thread_uncancellable(work))
    await in_thread(begun.wait, 10)
    for _ in range(2):
        waiting.cancel()
        done, _ = await asyncio.wait((waiting,), timeout=0.05)
        assert not done
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert ended.is_set()


async def test_who_waits_for_the_end_goes_on_as_it_was():
    whose: contextvars.ContextVar[int] = contextvars.ContextVar("whose")

    async def waiting(number: int) -> None:
        whose.set(number)
        before = asyncio.current_task()
        assert await in_thread_uncancellable(whose.get) == number
        assert (whose.get(), asyncio.current_task()) == (number, before)
        await asyncio.sleep(0)
        assert asyncio.current_task() is before

    await asyncio.gather(*(waiting(number) for number in range(20)))
    with pytest.raises(LookupError):
        whose.get()


async def test_who_goes_on_in_the_same_turn_may_wait_again_and_again():
    async def fails() -> None:
        for number in range(50):
            assert await in_thread_uncancellable(divmod, number, 3) == divmod(number, 3)
        await in_thread_uncancellable(divmod, 1, 0)

    results = await asyncio.gather(*(fails() for _ in range(5)), return_exceptions=True)
    assert [type(result) for result in results] == [ZeroDivisionError] * 5


async def test_an_idle_thread_holds_no_reference_to_arguments_or_result():
    class Large:
        pass

    argument = Large()
    result = await in_thread(lambda large: Large(), argument)
    references = weakref.ref(argument), weakref.ref(result)
    del argument, result
    for _ in range(100):
        await asyncio.sleep(0.01)  # until the thread has dropped its job
        gc.collect()
        if not any(reference() for reference in references):
            break
    assert [reference() for reference in references] == [None, None]


async def test_background_work_is_done_and_its_errors_are_logged(caplog):
    done = threading.Event()
    run_in_background(divmod, 1, 0)
    run_in_background(done.set)
    assert await in_thread(done.wait, 10)
    for _ in range(100):
        if caplog.records:
            break
        await asyncio.sleep(0.01)
    assert caplog.records[0].exc_info[0] is ZeroDivisionError


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks on this system")
async def test_a_fork_has_threads_of_its_own():
    await in_thread(divmod, 7, 2)  # an idle thread is left here, and none in the fork
    child = os.fork()
    if child == 0:
        done = threading.Event()
        _pool.start(done.set)
        os._exit(7 if done.wait(10) else 1)
    assert os.waitstatus_to_exitcode((await in_thread(os.waitpid, child, 0))[1]) == 7
