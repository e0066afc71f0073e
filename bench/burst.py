"""Two hundred sessions at once in one process: threads, what is left behind, and how late the event loop is.

The lag of the loop is how much later than asked a timer of 5 ms fires. The model thinks for a second before each turn, as a
fast real one does; all sessions begin in the same moment.
"""

from __future__ import annotations

import asyncio
import gc
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.claim import Claim

from wieldy import Script, Session
from wieldy.core.threads import POOL_THREADS

SESSIONS = 200
THINKING = 1.0
TICK = 0.005


def turns() -> list[list[dict[str, Any]]]:
    think = {"pause": THINKING}
    return [
        [think, {"call": "Bash", "input": {"command": "echo made > made; cat made"}}],
        [think, {"call": "Read", "input": {"file_path": "a.txt"}}],
        [think, {"call": "Edit", "input": {"file_path": "a.txt", "old_string": "one", "new_string": "two"}}],
        [think, {"call": "Bash", "input": {"command": "wc -c < a.txt"}}],
        [think, {"text": "done"}],
    ]


async def run_one(folder: Path, number: int) -> None:
    root = folder / str(number)
    root.mkdir()
    (root / "a.txt").write_text("one\n")
    options: dict[str, Any] = {"settings": {}, "mode": "bypassPermissions", "state_dir": folder / f"state-{number}"}
    async with Session(root, model=Script(turns(), remember=False), **options) as session:
        assert await session.ask("go") == "done"


def usage() -> tuple[int, int]:
    """Open descriptors and children of this process."""
    pid = os.getpid()
    children = sum(
        len(Path(f"/proc/{pid}/task/{task}/children").read_text().split()) for task in os.listdir(f"/proc/{pid}/task")
    )
    return len(os.listdir("/proc/self/fd")), children


async def measure(folder: Path) -> tuple[int, list[float], tuple[int, int], tuple[int, int]]:
    await run_one(folder, -1)  # imports, and the guardian
    gc.collect()
    before = usage()
    threads, lags = 0, []

    async def watch() -> None:
        nonlocal threads
        while True:
            start = time.perf_counter()
            await asyncio.sleep(TICK)
            lags.append(time.perf_counter() - start - TICK)
            threads = max(threads, threading.active_count())

    watching = asyncio.create_task(watch())
    await asyncio.gather(*(run_one(folder, number) for number in range(SESSIONS)))
    watching.cancel()
    gc.collect()
    return threads, sorted(lags), before, usage()


def claims() -> Iterator[Claim]:
    with tempfile.TemporaryDirectory() as name:
        os.environ["WIELDY_HOME"] = f"{name}/home"
        threads, lags, before, after = asyncio.run(measure(Path(name)))
    yield Claim(f"threads of {SESSIONS} sessions at once", threads, 2 * POOL_THREADS + 2, unit="")
    left = after[0] - before[0] + after[1] - before[1]
    yield Claim("descriptors and children they leave", left, 0, unit="", detail=f"{after[0]} and {after[1]} in all")
    p95, worst = lags[int(0.95 * len(lags))] * 1e3, lags[-1] * 1e3
    detail = f"median {statistics.median(lags) * 1e3:.1f} ms, worst {worst:.0f} ms, {len(lags)} ticks"
    yield Claim("event loop lag, 95th percentile", p95, 250, unit=" ms", detail=detail)
