"""Many sessions: what a batch adds to the sessions themselves, what Ray adds to that, and the memory of a session.

CPU time is compared, not wall time: it says the same on a busy machine. It counts every process, also git and bash. What Ray
adds is mostly waiting, so there the time from one task to the next is compared.
"""

from __future__ import annotations

import asyncio
import gc
import importlib.util
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from bench.claim import Claim

from wieldy import Script, Session
from wieldy.faces.batch.store import RunFolder

TASKS = 1_000
RAY_TASKS, RAY_ROUNDS = 100, 3
SINGLE_RUNS = 40
SESSIONS = 200


def turns() -> list[list[dict[str, Any]]]:
    """Ten tool turns as a model works: look, search, change, run."""
    read = [{"call": "Read", "input": {"file_path": "a.py"}}]
    grep = [{"call": "Grep", "input": {"pattern": "x"}}]
    edits = [
        [{"call": "Edit", "input": {"file_path": "a.py", "old_string": f"x = {n}", "new_string": f"x = {n + 1}"}}]
        for n in (1, 2)
    ]
    bash = [{"call": "Bash", "input": {"command": "python3 --version >/dev/null 2>&1 || true; wc -l a.py"}}]
    return [read, grep, read, edits[0], bash, read, edits[1], grep, read, bash, [{"text": "done"}]]


def make_project(folder: Path) -> Path:
    project = folder / "project"
    project.mkdir()
    (project / "a.py").write_text("x = 1\n")
    for number in range(10):
        (project / f"module_{number}.py").write_text("y = 1\n" * 50)
    return project


def cpu_seconds() -> float:
    """CPU time of this process and of its children that have ended."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def single_runs(folder: Path) -> float:
    """CPU of one session in this process, by itself."""

    async def one(number: int) -> None:
        root = folder / f"single-{number}"
        subprocess.run(["cp", "-r", folder / "project", root], check=True)
        options: dict[str, Any] = {"settings": {}, "mode": "bypassPermissions", "state_dir": folder / f"state-{number}"}
        async with Session(root, model=Script(turns(), remember=False), **options) as session:
            await session.ask("go")

    async def several() -> float:
        await one(0)  # imports
        before = cpu_seconds()
        for number in range(1, SINGLE_RUNS + 1):
            await one(number)
        return (cpu_seconds() - before) / SINGLE_RUNS

    return asyncio.run(several())


def batch_run(
    folder: Path, count: int, name: str, *options: str, script: list[list[dict[str, Any]]] | None = None
) -> tuple[float, float]:
    """CPU of a batch for each of its tasks, and wall time from its first start to its last end."""
    (folder / "script.json").write_text(json.dumps({"turns": script or turns()}))
    rows = [{"id": f"t{n}", "prompt": "go", "root": "project", "model": "script:script.json"} for n in range(count)]
    (folder / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = [sys.executable, "-m", "wieldy", "batch", "tasks.jsonl", "--out", name, "--mode", "bypassPermissions"]
    environment = {**os.environ, "HOME": str(folder), "WIELDY_HOME": str(folder / "state")}
    before = cpu_seconds()
    subprocess.run([*command, *options], cwd=folder, env=environment, check=True, capture_output=True)
    cpu = (cpu_seconds() - before) / count
    results = list(RunFolder(folder / name).results())
    ended = max(result.started + result.wall_seconds for result in results)
    return cpu, (ended - min(result.started for result in results)) / count


def task_interval(folder: Path, name: str) -> float:
    """Median seconds from the start of a task to that of the next, in a run of one after the other."""
    starts = sorted(result.started for result in RunFolder(folder / name).results())
    return statistics.median(after - before for before, after in pairwise(starts))


def resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def memory(folder: Path) -> tuple[float, float]:
    """Megabytes of an open session that has done nothing, and of one in the middle of its work."""

    async def measure() -> tuple[float, float]:
        def make(number: int, pause: float) -> Session:
            root = folder / f"memory-{pause}-{number}"
            subprocess.run(["cp", "-r", folder / "project", root], check=True)
            model = Script([*turns()[:9], [{"pause": pause}, {"text": "done"}]], remember=False)
            return Session(root, model=model, settings={}, mode="bypassPermissions", state_dir=folder / f"m-{number}")

        async def work(session: Session) -> None:
            async with session:
                await session.ask("go")

        await work(make(-1, 0.0))
        gc.collect()
        before = resident_bytes()
        idle = [make(number, 0.0) for number in range(SESSIONS)]
        for session in idle:
            await session.__aenter__()
        gc.collect()
        idle_bytes = (resident_bytes() - before) / SESSIONS
        for session in idle:
            await session.aclose()
        del idle
        gc.collect()
        before = resident_bytes()
        tasks = [asyncio.create_task(work(make(number, 60.0))) for number in range(SESSIONS)]
        await asyncio.sleep(45)
        gc.collect()
        running_bytes = (resident_bytes() - before) / SESSIONS
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        return idle_bytes / 1e6, running_bytes / 1e6

    return asyncio.run(measure())


def claims() -> Iterator[Claim]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["WIELDY_HOME"] = f"{folder}/home"
        make_project(folder)
        single = single_runs(folder)
        cpu, wall = batch_run(folder, TASKS, "local", "--workers", "16")
        cores = os.cpu_count() or 1
        detail = f"{single * 1e3:.0f} ms CPU alone, {cpu * 1e3:.0f} ms in the batch, {wall * cores * 1e3:.0f} ms of {cores} cores"
        yield Claim(
            f"CPU of sessions beside a batch of {TASKS} of them", single / cpu, 0.8, at_least=True, detail=detail
        )
        if importlib.util.find_spec("ray") is not None:
            # One after the other, and with next to nothing to do: what remains is the way to the worker and back.
            short: list[list[dict[str, Any]]] = [[{"text": "done"}]]
            intervals: dict[str, list[float]] = {"local": [], "ray": []}
            for number in range(RAY_ROUNDS):  # by turns, and the best of each: the machine may be busy in between
                for engine, seconds in intervals.items():
                    out = f"{engine}-{number}"
                    batch_run(folder, RAY_TASKS, out, "--workers", "1", "--engine", engine, script=short)
                    seconds.append(task_interval(folder, out))
            few, ray = (min(seconds) for seconds in intervals.values())
            detail = f"{few * 1e3:.0f} ms a task without it"
            yield Claim("Ray adds to a task", (ray - few) * 1e3, 20, unit=" ms", detail=detail)
        idle, running = memory(folder)
        yield Claim("memory of an idle session", idle, 1, unit=" MB")
        yield Claim("memory of a running session", running, 5, unit=" MB")
