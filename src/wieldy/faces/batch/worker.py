"""A worker process: many attempts on one event loop, started by a driver.

It ends when the driver does, and takes its sessions and their commands with it. It starts processes of its own only for
attempts in an overlay, each inside its mount.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from wieldy.faces.batch.attempt import Attempt, AttemptFailure, AttemptHost, AttemptProgress, Job, Report
from wieldy.faces.batch.channel import (
    CancelJob,
    Channel,
    JobEnded,
    JobProgress,
    RateGranted,
    RateReported,
    RateRequested,
    StartJob,
)
from wieldy.faces.batch.commands import CommandRunner
from wieldy.faces.batch.endings import Verdict
from wieldy.faces.batch.processes import WorkerLost, WorkerProcess
from wieldy.faces.batch.rates import RateGate, RateReport
from wieldy.faces.batch.results import AttemptResult


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


class AttemptRunner:
    """Makes attempts in this process. One in an overlay gets a process of its own inside the mount."""

    def __init__(self, work: Path, gate: RateGate) -> None:
        self._work = work
        self._gate = gate
        self._commands = CommandRunner(work / "commands" / str(os.getpid()))
        self._host = AttemptHost(gate, self._commands, self._run_inside)
        self._tasks: dict[str, asyncio.Task[AttemptResult]] = {}

    def start(self, job: Job, report: Report) -> asyncio.Task[AttemptResult]:
        task = asyncio.get_running_loop().create_task(Attempt(job, self._host, report).run())
        self._tasks[job.key] = task
        task.add_done_callback(lambda _: self._tasks.pop(job.key))
        return task

    def cancel(self, key: str) -> None:
        """Give an attempt up; nothing happens if it has ended."""
        if (task := self._tasks.get(key)) is not None:
            task.cancel()

    async def aclose(self) -> None:
        """Give up what is under way, and end every process."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self._commands.aclose()

    async def _run_inside(self, job: Job, report: Report) -> AttemptResult:
        """Run a job in a process inside its overlay, so that every tool sees the same tree."""
        assert job.copy is not None
        assert job.copy.overlay is not None
        log = Path(job.folder) / "worker.log"
        process = await WorkerProcess.start(self._work, self._gate, log=log, wrap=job.copy.overlay.command)
        try:
            return await process.run(job, report)
        except WorkerLost as lost:
            raise AttemptFailure(Verdict("crashed", str(lost))) from None
        finally:
            await process.aclose()


async def serve_driver(channel: Channel, work: Path) -> None:
    """Make the attempts that the driver asks for, until the driver is gone."""
    gate = RemoteGate(channel)
    runner = AttemptRunner(work, gate)
    async for message in channel.messages():
        match message:
            case StartJob(job):
                report = partial(_send_progress, channel, job.key)
                runner.start(job, report).add_done_callback(partial(_send_result, channel, job.key))
            case CancelJob(key):
                runner.cancel(key)
            case RateGranted(number):
                gate.grant(number)
    await runner.aclose()


def _send_progress(channel: Channel, key: str, progress: AttemptProgress) -> None:
    channel.send(JobProgress(key, progress))


def _send_result(channel: Channel, key: str, task: asyncio.Task[AttemptResult]) -> None:
    if not task.cancelled():
        channel.send(JobEnded(key, task.result()))


def main(arguments: list[str]) -> int:
    """Run a worker over an inherited socket."""
    descriptor, work = int(arguments[0]), Path(arguments[1])
    # The driver decides about interrupts; a terminal sends them to the whole group.
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    async def run() -> None:
        channel = await Channel.open(socket.socket(fileno=descriptor))
        loop = asyncio.get_running_loop()
        task: asyncio.Task[Any] | None = asyncio.current_task()
        assert task is not None
        loop.add_signal_handler(signal.SIGTERM, task.cancel)
        with suppress(asyncio.CancelledError):
            await serve_driver(channel, work)
        await channel.aclose()

    asyncio.run(run())
    return 0
