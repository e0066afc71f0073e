"""The constants of docs/scale.md that `bench/batch.py` does not measure: workers, the driver, descriptors, overlays, a URL."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
from bench.batch import batch_run, cpu_seconds, make_project, turns
from bench.claim import Claim

from wieldy import Script, Session
from wieldy.faces.batch.rates import RateLimiter
from wieldy.faces.batch.store import AttemptResult, ResultStore
from wieldy.faces.batch.workers import WorkerProcess
from wieldy.shell.backends.overlay import overlay_problem

SESSIONS = 50
TASKS = 200
OVERLAYS = 20
STARTS = 5
RESULTS = 2_000


def worker(folder: Path) -> tuple[float, float]:
    """CPU seconds of the start and end of a worker process, and its private megabytes before the first session."""

    async def measure() -> tuple[float, float]:
        size = 0
        before = cpu_seconds()
        for number in range(STARTS):
            process = await WorkerProcess.start(folder, RateLimiter(), log=folder / f"{number}.log")
            await asyncio.sleep(2.0)
            size = psutil.Process(process.process.pid).memory_full_info().uss
            await process.aclose()
        return (cpu_seconds() - before) / STARTS, size / 1e6

    return asyncio.run(measure())


def descriptors(folder: Path) -> tuple[float, float]:
    """Descriptors of a session that waits for its model, and of one that runs a command."""

    async def count(step: list[dict[str, Any]], name: str) -> float:
        before = len(os.listdir("/proc/self/fd"))
        sessions = []
        for number in range(SESSIONS):
            root = folder / f"{name}-{number}"
            subprocess.run(["cp", "-r", folder / "project", root], check=True)
            model = Script([*turns()[:5], step, [{"text": "done"}]], remember=False)
            options: dict[str, Any] = {
                "settings": {},
                "mode": "bypassPermissions",
                "state_dir": folder / f"s-{name}-{number}",
            }
            sessions.append(Session(root, model=model, **options))
        tasks = [asyncio.create_task(run(session)) for session in sessions]
        most = 0
        for _ in range(100):
            await asyncio.sleep(0.2)
            most = max(most, len(os.listdir("/proc/self/fd")) - before)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        return most / SESSIONS

    async def run(session: Session) -> None:
        async with session:
            await session.ask("go")

    async def both() -> tuple[float, float]:
        waiting = await count([{"pause": 60.0}, {"text": "x"}], "wait")
        return waiting, await count([{"call": "Bash", "input": {"command": "sleep 60"}}], "command")

    return asyncio.run(both())


def driver_cpu(folder: Path) -> float:
    """CPU seconds of the driver alone for each task of ten tool turns."""
    (folder / "script.json").write_text(json.dumps({"turns": turns()}))
    rows = [{"id": f"t{n}", "prompt": "go", "root": "project", "model": "script:script.json"} for n in range(TASKS)]
    (folder / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = [sys.executable, "-m", "wieldy", "batch", "tasks.jsonl", "--out", "driver", "--mode", "bypassPermissions"]
    environment = {**os.environ, "HOME": str(folder), "WIELDY_HOME": str(folder / "state")}
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen([*command, "--workers", "16"], cwd=folder, env=environment, **quiet) as process:
        used = start = 0.0
        seen = psutil.Process(process.pid)
        while process.poll() is None:
            try:
                times = seen.cpu_times()
            except psutil.Error:
                break
            used = times.user + times.system
            if not start and (folder / "driver" / "progress.json").exists():
                start = used  # imports and the plan are paid once
            time.sleep(0.05)
    return (used - start) / TASKS


def stored_results(folder: Path) -> float:
    """Results a second that reach the disk when many arrive together."""

    async def measure() -> float:
        store = ResultStore(folder / "stored")
        store.open()
        store.write_run({})
        results = [AttemptResult(id=str(n), identity=str(n), ending="solved", text="x" * 500) for n in range(RESULTS)]
        start = time.perf_counter()
        for first in range(0, RESULTS, 100):
            await asyncio.gather(*map(store.append, results[first : first + 100]))
        elapsed = time.perf_counter() - start
        store.close()
        return RESULTS / elapsed

    return asyncio.run(measure())


def claims() -> Iterator[Claim]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["WIELDY_HOME"] = f"{folder}/home"
        make_project(folder)
        start_cpu, size = worker(folder)
        yield Claim("CPU of the start of a worker process", start_cpu, 1.0, unit=" s")
        yield Claim("memory of a worker process before its first session", size, 60, unit=" MB")
        waiting, running = descriptors(folder)
        yield Claim("descriptors of a session that waits for its model", waiting, 10, unit="")
        yield Claim("descriptors of a session that runs a command", running, 15, unit="")
        yield Claim("CPU of the driver for a task of ten tool turns", driver_cpu(folder) * 1e3, 30, unit=" ms")
        yield Claim("results that reach the disk", stored_results(folder), 500, unit=" a second", at_least=True)
        if overlay_problem() is None:
            plain = batch_run(folder, OVERLAYS, "copies", "--isolate", "copy")[0]
            overlay = batch_run(folder, OVERLAYS, "overlays", "--isolate", "overlay")[0]
            detail = f"{plain * 1e3:.0f} ms a task with a plain copy"
            yield Claim("CPU that an overlay adds to a task", overlay - plain, 1.0, unit=" s", detail=detail)
