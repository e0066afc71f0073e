"""Functions called on a loop from threads: in order, none lost, whatever one of them does."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from wieldy.core.threads import homeward

FDS = Path("/proc/self/fd")


def elsewhere(function: Callable[[], object]) -> None:
    """Call a function in a thread that has nothing to do with ours, and wait for its end without the loop."""
    thread = threading.Thread(target=function)
    thread.start()
    thread.join()


@pytest.mark.asyncio
async def test_functions_are_called_on_the_loop_in_the_order_they_were_sent_in():
    loop, all_of_them = asyncio.get_running_loop(), asyncio.Event()
    seen: list[Any] = []
    send = homeward(loop)

    def sends() -> None:
        for number in range(100):
            send(partial(seen.append, (number, loop)))
            loop.call_soon_threadsafe(seen.append, (number, "threadsafe"))
        send(lambda: seen.append(threading.current_thread()))
        send(all_of_them.set)

    elsewhere(sends)
    assert seen == []
    await asyncio.wait_for(all_of_them.wait(), 10)
    assert seen.pop() is threading.current_thread()
    assert [number for number, way in seen if way is loop] == list(range(100))
    assert [number for number, way in seen if way == "threadsafe"] == list(range(100))


@pytest.mark.asyncio
async def test_what_the_loop_was_given_before_is_called_before():
    loop, done = asyncio.get_running_loop(), asyncio.Event()
    seen: list[Any] = []
    send = homeward(loop)

    def both() -> None:
        loop.call_soon_threadsafe(seen.append, "first")
        send(partial(seen.append, "second"))
        send(done.set)

    for _ in range(50):
        seen.clear()
        done.clear()
        elsewhere(both)
        await asyncio.wait_for(done.wait(), 10)
        assert seen == ["first", "second"]


@pytest.mark.asyncio
async def test_a_function_that_fails_takes_none_with_it():
    loop, done = asyncio.get_running_loop(), asyncio.Event()
    seen: list[Any] = []
    told: list[object] = []
    loop.set_exception_handler(lambda loop, context: told.append(context["exception"]))
    send = homeward(loop)

    def sends() -> None:
        send(partial(seen.append, 1))
        send(partial(divmod, 1, 0))
        send(partial(seen.append, 2))
        send(done.set)

    elsewhere(sends)
    await asyncio.wait_for(done.wait(), 10)
    assert seen == [1, 2] and [type(one) for one in told] == [ZeroDivisionError]


@pytest.mark.asyncio
async def test_many_threads_at_once_lose_nothing():
    loop, done = asyncio.get_running_loop(), asyncio.Event()
    seen: list[Any] = []
    send = homeward(loop)
    last = threading.Barrier(8)

    def sends(who: int) -> None:
        for number in range(500):
            send(partial(seen.append, (who, number)))
        if last.wait() == 0:
            send(done.set)

    threads = [threading.Thread(target=sends, args=(who,)) for who in range(8)]
    for thread in threads:
        thread.start()
    await asyncio.wait_for(done.wait(), 10)
    for thread in threads:
        thread.join()
    assert sorted(seen) == [(who, number) for who in range(8) for number in range(500)]
    for who in range(8):
        assert [number for one, number in seen if one == who] == list(range(500))


@pytest.mark.asyncio
async def test_no_function_sees_the_context_of_whoever_came_first():
    whose: contextvars.ContextVar[str] = contextvars.ContextVar("whose", default="nobody's")
    loop = asyncio.new_event_loop()

    async def first() -> str:
        whose.set("the first one's")
        found: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        homeward(asyncio.get_running_loop())(lambda: found.set_result(whose.get()))
        return await found

    try:
        assert await asyncio.to_thread(loop.run_until_complete, first()) == "nobody's"
    finally:
        loop.close()


@pytest.mark.skipif(not (FDS.is_dir() and hasattr(os, "eventfd")), reason="the kernel has no such counters")
def test_a_counter_goes_when_its_loop_is_closed():
    gc.disable()
    try:
        before = len(os.listdir(FDS))
        loop = asyncio.new_event_loop()
        send = homeward(loop)
        assert send == homeward(loop) != loop.call_soon_threadsafe
        loop.close()
        send(gc.collect)  # nobody hears of it
        del send
        assert len(os.listdir(FDS)) == before
        assert homeward(loop) == loop.call_soon_threadsafe
    finally:
        gc.enable()


def test_a_loop_that_watches_no_files_is_told_in_its_own_way():
    class Other:
        def call_soon_threadsafe(self) -> None: ...

    other = Other()
    assert homeward(other) == other.call_soon_threadsafe  # type: ignore[arg-type, comparison-overlap]


OUT_OF_DESCRIPTORS = """
import asyncio, os, resource
from wieldy.core.threads import homeward

async def main():
    loop, told = asyncio.get_running_loop(), asyncio.Event()
    spare = os.dup(0)
    os.close(spare)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (spare, hard))
    send = homeward(loop)
    assert send == loop.call_soon_threadsafe
    send(told.set)
    await told.wait()

asyncio.run(main())
print("told")
"""


def test_where_no_descriptor_is_left_the_loop_is_told_in_its_own_way():
    done = subprocess.run([sys.executable, "-c", OUT_OF_DESCRIPTORS], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("told\n", "")
