"""Five hundred turns of long results: what is kept is the history, and nothing else."""

from __future__ import annotations

import gc
import statistics
import sys
import tracemalloc
from itertools import pairwise
from types import FrameType

import pytest

from wieldy import Script, tool

pytestmark = pytest.mark.slow

TURNS, LENGTH = 500, 20_000


@pytest.mark.soak
@pytest.mark.asyncio
async def test_memory_is_the_history_and_no_more(make_session):
    @tool(read_only=True)
    async def long(n: int) -> str:
        """A long text."""
        return f"{n} " + "x" * LENGTH

    model = Script([[{"call": "long", "input": {"n": n}}] for n in range(TURNS)] + [[{"text": "done"}]], remember=False)
    async with make_session(model) as session:
        session.box.add(long)
        gc.collect()
        tracemalloc.start()
        assert await session.ask("go") == "done"
        gc.collect()
        now, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        history = sum(len(str(message)) for message in session.messages)
    assert history > TURNS * LENGTH
    assert now < 1.5 * history
    assert peak < 1.6 * history


@pytest.mark.asyncio
async def test_a_late_turn_takes_as_many_steps_as_an_early_one(make_session):
    counts: list[int] = []
    steps = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal steps
        steps += event in ("call", "c_call")

    @tool(read_only=True)
    async def long(n: int) -> str:
        """A long text."""
        counts.append(steps)
        return f"{n} " + "x" * LENGTH

    model = Script([[{"call": "long", "input": {"n": n}}] for n in range(300)] + [[{"text": "done"}]], remember=False)
    async with make_session(model) as session:
        session.box.add(long)
        sys.setprofile(count)
        try:
            assert await session.ask("go") == "done"
        finally:
            sys.setprofile(None)
    taken = [later - earlier for earlier, later in pairwise(counts)]
    assert statistics.median(taken[-50:]) <= 1.02 * statistics.median(taken[10:60])
