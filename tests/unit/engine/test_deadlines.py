"""Many time limits on few timers."""

from __future__ import annotations

import asyncio

import pytest

from wieldy.engine.supervise import Deadlines

pytestmark = pytest.mark.asyncio


async def test_each_rings_after_its_own_seconds_and_a_dropped_one_never():
    loop, deadlines, rung = asyncio.get_running_loop(), Deadlines(), []
    wakes = {name: (lambda name=name: rung.append(name)) for name in "abcd"}
    deadlines.add(loop, 0.04, wakes["a"])
    deadlines.add(loop, 0.01, wakes["b"])
    deadlines.add(loop, 0.04, wakes["c"])
    assert len(deadlines._timers) == 2
    deadlines.drop(0.04, wakes["c"])
    await asyncio.sleep(0.005)
    deadlines.add(loop, 0.04, wakes["d"])
    await asyncio.sleep(0.2)
    assert rung == ["b", "a", "d"]
    assert not deadlines._timers
    assert not deadlines._waiting


async def test_the_timer_goes_on_for_those_that_came_later():
    loop, deadlines, rung = asyncio.get_running_loop(), Deadlines(), []
    for number in range(20):
        wake = lambda number=number: rung.append(number)  # noqa: E731
        deadlines.add(loop, 0.02, wake)
        await asyncio.sleep(0.002)
    await asyncio.sleep(0.06)
    assert rung == list(range(20))
