"""Worker processes: the messages between them and the driver, their side, the driver's side, and the engine that starts them.

A message is one JSON object a line, over a socket pair. The end of the socket says that the other side is dead, however it
died: a worker ends when its driver does, and takes its sessions and their commands with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import msgspec
from msgspec import Struct

from wieldy.core.errors import WieldyError
from wieldy.core.programs import own_python
from wieldy.core.state_dirs import make_private_folder
from wieldy.faces.batch.attempt import Attempt, AttemptFailure, AttemptHost, AttemptProgress, CommandRunner, Job, Report
from wieldy.faces.batch.rates import RateGate, RateReport
from wieldy.faces.batch.store import AttemptResult, Verdict

MAX_MESSAGE_BYTES = 256 * 1024 * 1024


class WorkerMessage(Struct, frozen=True, tag_field="type", omit_defaults=True):
    """Anything that is sent between a driver and a worker."""


class StartJob(WorkerMessage, frozen=True, tag="start"):
    """Driver → worker: make an attempt."""

    job: Job


class CancelJob(WorkerMessage, frozen=True, tag="cancel"):
    """Driver → worker: give an attempt up; no result follows."""

    key: str


class RateGranted(WorkerMessage, frozen=True, tag="granted"):
    """Driver → worker: the request with this number may be sent."""

    number: int


class JobEnded(WorkerMessage, frozen=True, tag="ended"):
    """Worker → driver: an attempt has its result."""

    key: str
    result: AttemptResult


class JobProgress(WorkerMessage, frozen=True, tag="progress"):
    """Worker → driver: what an attempt does now."""

    key: str
    progress: AttemptProgress


class RateRequested(WorkerMessage, frozen=True, tag="acquire"):
    """Worker → driver: a request to a provider waits for its turn."""

    number: int
    key: str


class RateReported(WorkerMessage, frozen=True, tag="rate"):
    """Worker → driver: how a request to a provider went."""

    key: str
    report: RateReport


ToWorker: TypeAlias = StartJob | CancelJob | RateGranted
ToDriver: TypeAlias = JobEnded | JobProgress | RateRequested | RateReported

_decoder = msgspec.json.Decoder(ToWorker | ToDriver)


class Channel:
    """One end of a socket pair."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, end: socket.socket) -> Channel:
        end.setblocking(False)
        return cls(*await asyncio.open_connection(sock=end, limit=MAX_MESSAGE_BYTES))

    def send(self, message: WorkerMessage) -> None:
        """Send a message; nothing happens if the other side is gone, which `messages` shows."""
        if not self._writer.is_closing():
            self._writer.write(msgspec.json.encode(message) + b"\n")

    async def messages(self) -> AsyncIterator[ToWorker | ToDriver]:
        """Every message until the other side is gone."""
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while line := await self._reader.readline():
                if line.endswith(b"\n"):
                    yield _decoder.decode(line)

    async def drain(self) -> None:
        with contextlib.suppress(ConnectionError):
            await self._writer.drain()

    async def aclose(self) -> None:
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()


END_SECONDS = 10.0
START_CODE = "from wieldy.faces.batch.workers import main; sys.exit(main(sys.argv[1:]))"


class WorkerLost(WieldyError):
    """A worker died while it made attempts. They have no result. `with_machine` says that it was not the fault of any."""

    def __init__(self, message: str, *, with_machine: bool = False) -> None:
        super().__init__(message)
        self.with_machine = with_machine


class WorkerProcess:
    """One worker: sends it jobs, answers its questions about rates, and notices its death."""

    def __init__(self, process: asyncio.subprocess.Process, channel: Channel, gate: RateGate, log: Path) -> None:
        self.process = process
        self._channel = channel
        self._gate = gate
        self._log = log
        self._jobs: dict[str, tuple[asyncio.Future[AttemptResult], Report]] = {}
        self._grants: set[asyncio.Task[None]] = set()
        self.is_lost = False
        self._reading = asyncio.get_running_loop().create_task(self._read())

    @classmethod
    async def start(
        cls,
        work: Path,
        gate: RateGate,
        *,
        log: Path,
        wrap: Callable[[list[str]], list[str]] = lambda command: command,
    ) -> WorkerProcess:
        """Start a worker; `wrap` turns its command into one that prepares what it runs in."""
        log.parent.mkdir(parents=True, exist_ok=True)
        output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        ours, theirs = socket.socketpair()
        python = own_python(START_CODE, str(theirs.fileno()), str(work.absolute()))
        try:
            if python is None:
                raise OSError("there is no Python interpreter to start")
            process = await asyncio.create_subprocess_exec(
                *wrap(python),
                cwd="/",
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        except OSError:
            ours.close()
            raise
        finally:
            os.close(output)
            theirs.close()
        return cls(process, await Channel.open(ours), gate, log)

    @property
    def load(self) -> int:
        return len(self._jobs)

    async def run(self, job: Job, report: Report) -> AttemptResult:
        """Have an attempt made. Raises `WorkerLost` when the worker dies; when this is cancelled the attempt is given up."""
        if self.is_lost:
            raise WorkerLost(self._describe_loss())
        future: asyncio.Future[AttemptResult] = asyncio.get_running_loop().create_future()
        self._jobs[job.key] = (future, report)
        self._channel.send(StartJob(job))
        try:
            return await future
        except asyncio.CancelledError:
            self._channel.send(CancelJob(job.key))
            raise
        finally:
            self._jobs.pop(job.key, None)

    async def aclose(self) -> None:
        """Let the worker end: it sees the end of the channel, and ends what it runs."""
        for task in self._grants:
            task.cancel()
        await self._channel.aclose()
        try:
            async with asyncio.timeout(END_SECONDS):
                await self.process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGKILL)
            await self.process.wait()
        self._reading.cancel()
        await asyncio.wait((self._reading,))
        with contextlib.suppress(OSError):
            if self._log.stat().st_size == 0:
                self._log.unlink()

    async def _read(self) -> None:
        async for message in self._channel.messages():
            match message:
                case JobEnded(key, result):
                    if (entry := self._jobs.get(key)) is not None and not entry[0].done():
                        entry[0].set_result(result)
                case JobProgress(key, progress):
                    if (entry := self._jobs.get(key)) is not None:
                        entry[1](progress)
                case RateRequested(number, key):
                    task = asyncio.get_running_loop().create_task(self._grant(number, key))
                    self._grants.add(task)
                    task.add_done_callback(self._grants.discard)
                case RateReported(key, report):
                    self._gate.report(key, report)
        self.is_lost = True
        await self.process.wait()
        for future, _ in self._jobs.values():
            if not future.done():
                future.set_exception(WorkerLost(self._describe_loss()))

    async def _grant(self, number: int, key: str) -> None:
        await self._gate.acquire(key)
        self._channel.send(RateGranted(number))

    def _describe_loss(self) -> str:
        code = self.process.returncode
        if code is not None and code < 0:
            with contextlib.suppress(ValueError):
                return f"the worker was killed by {signal.Signals(-code).name}"
        words = ""
        with contextlib.suppress(OSError):
            lines = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
            words = f" ({lines[-1][:200]})" if lines else ""
        return f"the worker ended with exit code {code}{words}"


class EngineError(WieldyError):
    """Nothing can be run; the message is one line."""


class Engine(Protocol):
    """Makes attempts, many at a time."""

    async def start(self) -> None:
        """Get ready. Raises `WieldyError`."""

    async def run(self, job: Job, report: Report, *, alone: bool) -> AttemptResult:
        """Make one attempt; `alone` in a process that makes no other. Raises `WorkerLost`."""

    async def aclose(self) -> None:
        """End every process."""


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
                "when that is repaired, the same command continues"
            ) from None


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
