"""Engines make attempts somewhere. The driver and the results store are the same whatever the engine."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Protocol

from wieldy.core.errors import WieldyError
from wieldy.core.state_dirs import make_private_folder
from wieldy.faces.batch.attempt import Job, Report
from wieldy.faces.batch.processes import WorkerProcess
from wieldy.faces.batch.rates import RateGate
from wieldy.faces.batch.results import AttemptResult


class EngineError(WieldyError):
    """Nothing can be run; the message is one line."""


class Engine(Protocol):
    """Makes attempts, many at a time."""

    async def start(self) -> None:
        """Get ready. Raises `WieldyError`."""
        ...

    async def run(self, job: Job, report: Report, *, alone: bool) -> AttemptResult:
        """Make one attempt; `alone` in a process that makes no other. Raises `WorkerLost`."""
        ...

    async def aclose(self) -> None:
        """End every process."""
        ...


class LocalEngine:
    """A few worker processes on this machine, each with many sessions on one event loop."""

    def __init__(self, work: Path, gate: RateGate, *, processes: int, logs: Path) -> None:
        self._work = work
        self._gate = gate
        self._processes = processes
        self._logs = logs
        self._workers: list[WorkerProcess] = []
        self._alone: set[WorkerProcess] = set()
        self._starting = asyncio.Lock()
        self._count = 0

    async def start(self) -> None:
        make_private_folder(self._work)

    async def run(self, job: Job, report: Report, *, alone: bool) -> AttemptResult:
        if not alone:
            return await (await self._worker()).run(job, report)
        worker = await self._start_worker()
        self._alone.add(worker)
        try:
            return await worker.run(job, report)
        finally:
            self._alone.discard(worker)
            await worker.aclose()

    async def aclose(self) -> None:
        await asyncio.gather(*(worker.aclose() for worker in (*self._workers, *self._alone)))
        self._workers = []
        with contextlib.suppress(OSError):
            self._logs.rmdir()  # where no worker had anything to say

    async def _worker(self) -> WorkerProcess:
        """The worker with the least to do. One that is lost is replaced."""
        async with self._starting:
            lost = [worker for worker in self._workers if worker.is_lost]
            self._workers = [worker for worker in self._workers if not worker.is_lost]
            for worker in lost:
                await worker.aclose()
            idle = any(worker.load == 0 for worker in self._workers)
            if len(self._workers) < self._processes and not idle:
                self._workers.append(await self._start_worker())
            return min(self._workers, key=lambda worker: worker.load)

    async def _start_worker(self) -> WorkerProcess:
        self._count += 1
        try:
            return await WorkerProcess.start(self._work, self._gate, log=self._logs / f"worker-{self._count}.log")
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            raise EngineError(
                f"no worker can be started: {where}{error.strerror or error}. What is finished is kept; "
                "when that is mended, the same command goes on"
            ) from None
