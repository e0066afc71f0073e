"""Blocking functions off the loop: given up when nobody waits any more, or seen through to their end."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import os
import sys
import threading
import weakref

import pytest

from wieldy.core.threads import (
    POOL_THREADS,
    ThreadPool,
    _own_pool,
    call_function,
    in_thread,
    in_thread_uncancellable,
    run_in_background,
    timer,
)

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


async def test_background_work_that_exits_takes_no_thread_from_the_pool():
    for _ in range(POOL_THREADS):
        run_in_background(sys.exit, "no")
    for _ in range(500):
        if len(_own_pool._idle) == _own_pool._threads:
            break
        await asyncio.sleep(0.01)
    assert len(_own_pool._idle) == _own_pool._threads


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks on this system")
async def test_a_fork_has_threads_of_its_own():
    await in_thread(divmod, 7, 2)  # an idle thread is left here, and none in the fork
    child = os.fork()
    if child == 0:
        done = threading.Event()
        _own_pool.start(done.set)
        os._exit(7 if done.wait(10) else 1)
    assert os.waitstatus_to_exitcode((await in_thread(os.waitpid, child, 0))[1]) == 7


async def test_jobs_beyond_the_size_of_the_pool_wait_for_a_free_thread():
    pool, go, names, lock = ThreadPool("wieldy-test"), threading.Event(), set(), threading.Lock()
    ended = threading.Semaphore(0)

    def job() -> None:
        with lock:
            names.add(threading.get_ident())
        go.wait(0.01)
        ended.release()

    for _ in range(10 * POOL_THREADS):
        pool.start(job)
    for _ in range(10 * POOL_THREADS):
        assert await in_thread(ended.acquire, timeout=20)
    assert len(names) <= POOL_THREADS


async def test_jobs_that_wait_for_jobs_in_the_backlog_do_not_deadlock():
    pool, released, ended = ThreadPool("wieldy-test"), threading.Event(), threading.Semaphore(0)

    def waits() -> None:
        assert released.wait(60)
        ended.release()

    for _ in range(POOL_THREADS + 5):
        pool.start(waits)
    pool.start(released.set)
    for _ in range(POOL_THREADS + 5):
        assert await in_thread(ended.acquire, timeout=60)


async def test_functions_of_the_program_that_never_return_do_not_delay_our_own_work():
    go = threading.Event()
    stuck = [asyncio.ensure_future(call_function(go.wait, 60)) for _ in range(POOL_THREADS + 1)]
    await asyncio.sleep(0)
    assert await in_thread(divmod, 7, 2) == (3, 1)
    go.set()
    assert await asyncio.gather(*stuck) == [True] * len(stuck)


async def test_a_function_of_the_program_that_nobody_waits_for_any_more_is_not_begun():
    go, called = threading.Event(), threading.Event()
    busy = [asyncio.ensure_future(call_function(go.wait, 60)) for _ in range(POOL_THREADS)]
    await asyncio.sleep(0)
    waiting = asyncio.ensure_future(call_function(called.set))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    go.set()
    await asyncio.gather(*busy)
    await call_function(divmod, 1, 1)
    assert not called.is_set()


async def test_the_timer_calls_functions_in_the_order_of_their_times():
    calls: list[int] = []
    ended = threading.Event()
    timer.call_later(0.2, ended.set)
    timer.call_later(0.1, lambda: calls.append(2))
    timer.call_later(0.0, lambda: calls.append(1 // 0))
    timer.call_later(0.0, lambda: calls.append(1))
    assert await in_thread(ended.wait, 20)
    assert calls == [1, 2]
