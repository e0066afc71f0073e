"""Worker processes, seen from the one that started them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path

from wieldy.core.errors import WieldyError
from wieldy.core.own_python import own_python
from wieldy.faces.batch.attempt import Job, Report
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
from wieldy.faces.batch.rates import RateGate
from wieldy.faces.batch.results import AttemptResult

END_SECONDS = 10.0
START_CODE = "from wieldy.faces.batch.worker import main; sys.exit(main(sys.argv[1:]))"


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
