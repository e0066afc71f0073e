"""Ten thousand calls leave nothing behind."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import threading
import tracemalloc
from typing import Any

import pytest

from wieldy import tool

pytestmark = pytest.mark.slow

CALLS = 10_000


@tool(read_only=True)
async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@tool
async def opaque(n: int) -> str:
    """Run alone."""
    await asyncio.sleep(0)
    return str(n)


@tool(read_only=True)
def blocking(n: int) -> str:
    """Run in a thread."""
    return str(n)


@tool(read_only=True)
async def failing(n: int) -> str:
    """Fail."""
    raise ValueError(n)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.soak
@pytest.mark.timeout(180)
@pytest.mark.asyncio
async def test_ten_thousand_calls_leave_no_task_no_descriptor_no_thread_and_no_memory(make_box, caplog):
    caplog.set_level(logging.CRITICAL, logger="wieldy")  # pytest would keep every record of every failure
    async with make_box(add, opaque, blocking, failing) as box:

        async def batch(count: int) -> None:
            for start in range(0, count, 100):
                calls: list[Any] = [("add", {"a": n, "b": 1}) for n in range(start, start + 70)]
                calls += [("opaque", {"n": n}) for n in range(10)]
                calls += [("blocking", {"n": n}) for n in range(10)]
                calls += [("failing", {"n": n}) for n in range(5)] + [("add", {"a": "x"})] * 5
                await box.call_many(calls)

        await batch(1_000)
        gc.collect()
        tasks, files, threads = len(asyncio.all_tasks()), descriptors(), threading.active_count()
        tracemalloc.start()
        await batch(500)
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        await batch(CALLS - 1_500)
        gc.collect()
        after = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        assert len(asyncio.all_tasks()) == tasks
        assert descriptors() == files
        assert threading.active_count() <= threads + 2
        assert after - before < 200_000, f"{after - before} bytes grew over {CALLS - 1_500} calls"
        assert not box.services.queue._claimed
        assert not box.services.supervisor._abandoned
