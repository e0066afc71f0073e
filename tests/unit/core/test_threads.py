"""Blocking functions off the loop: given up when nobody waits any more, or seen through to their end."""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
import weakref

import pytest

from wieldy.core.threads import _Call, _threads, afterwards, begin_in_thread, in_thread, in_thread_to_the_end

pytestmark = pytest.mark.asyncio


async def test_what_a_function_returns_or_raises_comes_back():
    assert await in_thread(threading.current_thread) is not threading.current_thread()
    for run in (in_thread, in_thread_to_the_end, begin_in_thread):
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

    waiting = asyncio.ensure_future(in_thread_to_the_end(work))
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
        assert await in_thread_to_the_end(whose.get) == number
        assert (whose.get(), asyncio.current_task()) == (number, before)
        await asyncio.sleep(0)
        assert asyncio.current_task() is before

    await asyncio.gather(*(waiting(number) for number in range(20)))
    with pytest.raises(LookupError):
        whose.get()


async def test_who_goes_on_in_the_same_turn_may_wait_again_and_again():
    async def fails() -> None:
        for number in range(50):
            assert await in_thread_to_the_end(divmod, number, 3) == divmod(number, 3)
        await in_thread_to_the_end(divmod, 1, 0)

    results = await asyncio.gather(*(fails() for _ in range(5)), return_exceptions=True)
    assert [type(result) for result in results] == [ZeroDivisionError] * 5


async def test_a_thread_that_is_slow_to_leave_holds_on_to_nothing():
    class Large:
        pass

    given, future = Large(), asyncio.get_running_loop().create_future()
    call = _Call(future, lambda large: Large(), (given,), {})
    call()
    made = await future
    held = weakref.ref(given), weakref.ref(made)
    del given, made, future
    await asyncio.sleep(0)  # the loop lets go of what it is just at
    assert [one() for one in held] == [None, None] and call is not None


@pytest.mark.parametrize("fails", [False, True])
async def test_what_is_left_for_afterwards_is_not_waited_for(fails: bool):
    go, ended = threading.Event(), threading.Event()

    def work() -> str:
        afterwards(divmod, 1, 0)  # not heard of
        afterwards(go.wait, 10)
        afterwards(ended.set)
        if fails:
            raise ValueError
        return "the result"

    waiting = in_thread_to_the_end(work)
    if fails:
        with pytest.raises(ValueError):
            await waiting
    else:
        assert await waiting == "the result"
    assert not ended.is_set()
    go.set()
    assert await in_thread(ended.wait, 10)


async def test_what_is_left_for_afterwards_is_done_though_nobody_hears_the_result():
    loop, done = asyncio.new_event_loop(), threading.Event()
    call = _Call(loop.create_future(), afterwards, (done.set,), {})
    loop.close()
    call()
    assert done.is_set()


async def test_where_nobody_waits_afterwards_is_now():
    done = threading.Event()
    afterwards(done.set)
    assert done.is_set()
    afterwards(divmod, 1, 0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks on this system")
async def test_a_fork_has_threads_of_its_own():
    await in_thread(divmod, 7, 2)  # an idle thread is left here, and none in the fork
    child = os.fork()
    if child == 0:
        done = threading.Event()
        _threads.start(done.set)
        os._exit(7 if done.wait(10) else 1)
    assert os.waitstatus_to_exitcode((await in_thread(os.waitpid, child, 0))[1]) == 7
