"""A worker process: many attempts on one event loop. `python -m wieldy.batch.worker FD WORK` is started by a driver.

It ends when the driver does, and takes its sessions and their commands with it. It starts processes of its own only for
attempts in an overlay, each inside its mount.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

from wieldy.batch.attempt import Attempt, AttemptFailure, AttemptHost, AttemptProgress, Job, Report
from wieldy.batch.channel import (
    CancelJob,
    Channel,
    JobEnded,
    JobProgress,
    RateGranted,
    RateReported,
    RateRequested,
    StartJob,
)
from wieldy.batch.commands import CommandRunner
from wieldy.batch.endings import Verdict
from wieldy.batch.processes import WorkerLost, WorkerProcess
from wieldy.batch.rates import RateReport
from wieldy.batch.results import AttemptResult


class RemoteGate:
    """The gate of the driver, asked over the channel."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._numbers = count(1)
        self._waiting: dict[int, asyncio.Future[None]] = {}

    async def acquire(self, key: str) -> None:
        number = next(self._numbers)
        future = self._waiting[number] = asyncio.get_running_loop().create_future()
        self._channel.send(RateRequested(number, key))
        try:
            await future
        finally:
            del self._waiting[number]

    def grant(self, number: int) -> None:
        if (future := self._waiting.get(number)) is not None and not future.done():
            future.set_result(None)

    def report(self, key: str, report: RateReport) -> None:
        self._channel.send(RateReported(key, report))


class Worker:
    """Makes the attempts that the driver asks for, until the driver is gone."""

    def __init__(self, channel: Channel, work: Path) -> None:
        self._channel = channel
        self._work = work
        self._gate = RemoteGate(channel)
        self._commands = CommandRunner(work / "commands" / str(os.getpid()))
        self._host = AttemptHost(self._gate, self._commands, self._run_inside)
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        async for message in self._channel.messages():
            match message:
                case StartJob(job):
                    self._tasks[job.key] = asyncio.get_running_loop().create_task(self._run_job(job))
                case CancelJob(key):
                    if (task := self._tasks.get(key)) is not None:
                        task.cancel()
                case RateGranted(number):
                    self._gate.grant(number)
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self._commands.aclose()

    async def _run_job(self, job: Job) -> None:
        def report(progress: AttemptProgress) -> None:
            self._channel.send(JobProgress(job.key, progress))

        try:
            result = await Attempt(job, self._host, report).run()
            self._channel.send(JobEnded(job.key, result))
            await self._channel.drain()
        finally:
            del self._tasks[job.key]

    async def _run_inside(self, job: Job, report: Report) -> AttemptResult:
        """Run a job in a process inside its overlay, so that every tool sees the same tree."""
        assert job.copy is not None
        assert job.copy.overlay is not None
        process = await WorkerProcess.start(
            self._work, self._gate, log=Path(job.folder) / "worker.log", wrap=job.copy.overlay.command
        )
        try:
            return await process.run(job, report)
        except WorkerLost as lost:
            raise AttemptFailure(Verdict("crashed", str(lost))) from None
        finally:
            await process.aclose()


def main(arguments: list[str]) -> int:
    """Run a worker over an inherited socket."""
    descriptor, work = int(arguments[0]), Path(arguments[1])
    # The driver decides about interrupts; a terminal sends them to the whole group.
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    async def run() -> None:
        channel = await Channel.open(socket.socket(fileno=descriptor))
        worker = Worker(channel, work)
        loop = asyncio.get_running_loop()
        task: asyncio.Task[Any] | None = asyncio.current_task()
        assert task is not None
        loop.add_signal_handler(signal.SIGTERM, task.cancel)
        with suppress(asyncio.CancelledError):
            await worker.run()
        await channel.aclose()

    asyncio.run(run())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
