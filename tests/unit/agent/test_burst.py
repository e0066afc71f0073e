"""Two hundred sessions at once in one process, each with shell commands and edits: what they use is bounded, and goes."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from pathlib import Path
from typing import Any

import psutil
import pytest

from wieldy import Script, Session
from wieldy.core.threads import POOL_THREADS

SESSIONS = 200


def turns(number: int) -> list[list[dict[str, Any]]]:
    return [
        [{"call": "Bash", "input": {"command": f"echo {number} > made; cat made"}}],
        [{"call": "Read", "input": {"file_path": "a.txt"}}],
        [{"call": "Edit", "input": {"file_path": "a.txt", "old_string": "one", "new_string": f"two {number}"}}],
        [
            {"call": "Bash", "input": {"command": "sleep 0.05; wc -c < a.txt"}},
            {"call": "Read", "input": {"file_path": "a.txt"}},
        ],
        [{"text": f"did {number}"}],
    ]


async def run_one(number: int, folder: Path) -> str:
    root = folder / str(number)
    root.mkdir()
    (root / "a.txt").write_text("one\n")
    state = folder / "state" / str(number)
    model = Script(turns(number))
    async with Session(root, model=model, mode="bypassPermissions", settings={}, state_dir=state) as session:
        session.box.subscribe(lambda event: None)  # a plain function: it is called in a thread
        text = await session.ask("go")
    assert (root / "made").read_text() == f"{number}\n"
    assert (root / "a.txt").read_text() == f"two {number}\n"
    return text


def children() -> set[int]:
    return {child.pid for child in psutil.Process().children(recursive=True)}


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.timeout(300)
@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts descriptors in /proc")
@pytest.mark.asyncio
async def test_a_burst_of_sessions_keeps_to_a_bounded_number_of_threads_and_leaves_nothing_behind(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))
    (tmp_path / "first").mkdir()
    await run_one(0, tmp_path / "first")  # what the first session of a process starts: imports, the guardian
    gc.collect()
    before = descriptors(), children()
    other_threads = {thread for thread in threading.enumerate() if not thread.name.startswith("wieldy-")}
    most = 0

    async def watch() -> None:
        nonlocal most
        while True:
            most = max(most, threading.active_count() - len(other_threads))
            await asyncio.sleep(0.005)

    watching = asyncio.create_task(watch())
    texts = await asyncio.wait_for(asyncio.gather(*(run_one(number, tmp_path) for number in range(SESSIONS))), 250)
    watching.cancel()
    assert texts == [f"did {number}" for number in range(SESSIONS)]
    assert most <= 2 * POOL_THREADS + 1  # our own blocking work, that of the program, and the timer
    for _ in range(600):  # idle threads end by themselves
        gc.collect()
        if not [thread for thread in threading.enumerate() if thread not in other_threads]:
            break
        await asyncio.sleep(0.05)
    assert [thread for thread in threading.enumerate() if thread not in other_threads] == []
    assert (descriptors(), children()) == before
