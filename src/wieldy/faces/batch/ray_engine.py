"""Attempts on a Ray cluster: long-lived actors, each with many sessions on one event loop.

Ray never repeats a call here (`max_task_retries=0`): whether something runs again is decided by the driver, from the results
store. Actors end with the driver. Their commands end with them, by the guardian of each session.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import logging
import os
import secrets
import shutil
import tarfile
import tempfile
import time
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from wieldy.core.errors import WieldyError
from wieldy.core.state_dirs import make_private_folder
from wieldy.core.threads import in_thread
from wieldy.faces.batch.attempt import AttemptProgress, Job, Report
from wieldy.faces.batch.rates import RateLimiter, RateReport
from wieldy.faces.batch.store import AttemptResult
from wieldy.faces.batch.tasks import digest
from wieldy.faces.batch.workers import WorkerLost
from wieldy.models.catalog import model_environment

PROGRESS_SECONDS = 1.0
SILENT_SECONDS = 10.0
LOST_SECONDS = 120.0
END_SECONDS = 10.0
NODE_DIED = "node has died"


class RayMissing(WieldyError):
    """Ray cannot be used; the message says what to do."""


class RayEngine:
    """Actors on a Ray cluster. The cluster is the one at `address`, or a new one on this machine.

    Where a node does not see the folder of the run, files come back with the result.
    """

    def __init__(
        self, address: str, out: Path, work: str, caps: Mapping[str, float], *, workers: int, actors: int | None
    ) -> None:
        self._address = address
        self._out = out
        self._work = work
        self._caps = dict(caps)
        self._workers = workers
        self._wanted = actors
        self._actors: list[ActorHandle] = []
        self._gate: Any = None  # held: an actor ends with its last reference
        self._gate_name = ""
        self._owns_cluster = False
        self._polling: asyncio.Task[None] | None = None
        self._token = out / f".shared-{secrets.token_hex(8)}"
        self._alone = asyncio.Semaphore(4)

    async def start(self) -> None:
        """Connect, and start the actors. Raises `RayMissing`."""
        try:
            # Ray reports its use to its makers unless told otherwise.
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
            os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
            import ray

            logging.getLogger("ray").setLevel(logging.ERROR)
        except ImportError:
            raise RayMissing("--engine ray needs Ray: pip install 'wieldy[ray]'") from None
        self._token.touch()
        try:
            self._connect(ray)  # in the main thread: Ray sets a signal handler
        except Exception as error:
            words = " ".join(str(error).split())[:300]
            raise RayMissing(f"no Ray cluster is available: {words or type(error).__name__}") from None
        resources: Any = ray.cluster_resources  # without types
        cpus = resources().get("CPU", 1.0)
        count = max(min(self._wanted or int(cpus), self._workers), 1)
        self._gate_name = f"wieldy-rates-{secrets.token_hex(8)}"
        self._gate = _rate_actor(ray).options(name=self._gate_name).remote(self._caps)
        self._actors = [self._make_actor(ray) for _ in range(count)]
        self._polling = asyncio.get_running_loop().create_task(self._poll())

    def _connect(self, ray: Any) -> None:
        if ray.is_initialized():
            return
        # Ray imports from the working directory, in its own processes and in the actors.
        options: dict[str, Any] = {"logging_level": "error", "log_to_driver": False, "configure_logging": False}
        with contextlib.chdir(os.sep):
            if self._address:
                ray.init(address=self._address, **options)
            else:
                ray.init(address="local", include_dashboard=False, **options)
        self._owns_cluster = True

    def _make_actor(self, ray: Any) -> ActorHandle:
        # The environment is an argument, because Ray would show the variables of a runtime environment.
        arguments = (self._gate_name, self._work, str(self._token), model_environment(os.environ))
        return ActorHandle(_worker_actor(ray).remote(*arguments))

    async def run(self, job: Job, report: Report, *, alone: bool) -> AttemptResult:
        import ray

        if not alone:
            return await self._run_on(self._least_loaded(), job, report)
        async with self._alone:
            handle = self._make_actor(ray)
            try:
                return await self._run_on(handle, job, report)
            finally:
                ray.kill(handle.actor)

    def _least_loaded(self) -> ActorHandle:
        """The actor with the least to do; one that has been silent lately only where there is no other."""
        now = time.monotonic()
        return min(self._actors, key=lambda handle: (now - handle.last_seen > SILENT_SECONDS, len(handle.reports)))

    async def _run_on(self, handle: ActorHandle, job: Job, report: Report) -> AttemptResult:
        from ray.exceptions import RayActorError, RayError

        handle.reports[job.key] = report
        call = asyncio.wrap_future(handle.actor.run.remote(msgspec.json.encode(job)).future())
        lost = asyncio.ensure_future(handle.lost.wait())
        try:
            await asyncio.wait((call, lost), return_when=asyncio.FIRST_COMPLETED)
            if not call.done():
                raise WorkerLost(f"the worker was silent for {LOST_SECONDS:g} s", with_machine=True)
            data, files = call.result()
        except RayActorError as error:
            raise WorkerLost(_describe(error), with_machine=NODE_DIED in str(error)) from None
        except RayError as error:
            raise WorkerLost(_describe(error)) from None
        except asyncio.CancelledError:
            handle.actor.cancel.remote(job.key)
            raise
        finally:
            lost.cancel()
            handle.reports.pop(job.key, None)
        if files is not None:
            await in_thread(unpack, files, Path(job.folder))
        result: AttemptResult = msgspec.json.decode(data, type=AttemptResult)
        return result

    async def _poll(self) -> None:
        """Fetch the progress of every actor; replace one that is silent for long."""
        while True:
            await asyncio.sleep(PROGRESS_SECONDS)
            await asyncio.gather(*map(self._fetch_progress, self._actors))
            for index, handle in enumerate(self._actors):
                if time.monotonic() - handle.last_seen > LOST_SECONDS:
                    self._replace(index)

    async def _fetch_progress(self, handle: ActorHandle) -> None:
        with contextlib.suppress(Exception):  # an actor that restarts has none
            async with asyncio.timeout(SILENT_SECONDS):
                progress = await handle.actor.progress.remote()
            handle.last_seen = time.monotonic()
            for key, data in progress.items():
                if (report := handle.reports.get(key)) is not None:
                    report(msgspec.json.decode(data, type=AttemptProgress))

    def _replace(self, index: int) -> None:
        import ray

        handle, self._actors[index] = self._actors[index], self._make_actor(ray)
        handle.lost.set()
        with contextlib.suppress(Exception):
            ray.kill(handle.actor)

    async def aclose(self) -> None:
        """End the actors and what they run; leave the cluster as it was."""
        self._token.unlink(missing_ok=True)
        if self._polling is None:
            return
        import ray

        self._polling.cancel()
        with contextlib.suppress(Exception):
            async with asyncio.timeout(END_SECONDS):
                await asyncio.gather(*(handle.actor.close.remote() for handle in self._actors), return_exceptions=True)
        for handle in self._actors:
            with contextlib.suppress(Exception):
                ray.kill(handle.actor)
        if self._owns_cluster:
            await in_thread(ray.shutdown)


class ActorHandle:
    """An actor, and the callbacks for the progress of its attempts."""

    def __init__(self, actor: Any) -> None:
        self.actor = actor
        self.reports: dict[str, Report] = {}
        self.last_seen = time.monotonic()
        self.lost = asyncio.Event()


class ClusterGate:
    """The rate limiter of the run, which is one actor for all workers, seen from a worker."""

    def __init__(self, name: str) -> None:
        self._name = name

    @cached_property
    def _actor(self) -> Any:
        import ray

        return ray.get_actor(self._name)

    async def acquire(self, key: str) -> None:
        from ray.exceptions import RayError

        while True:
            try:
                await self._actor.acquire.remote(key)
                return
            except RayError:  # its node died: it starts again on another one
                await asyncio.sleep(0.5)

    def report(self, key: str, report: RateReport) -> None:
        self._actor.report.remote(key, report)


class ClusterWorker:
    """A worker on a node of the cluster: many attempts on one event loop."""

    def __init__(self, gate: str, work: str, token: str, env: Mapping[str, str]) -> None:
        from wieldy.faces.batch.workers import AttemptRunner

        os.environ.update(env)
        base = Path(work) if work else Path(tempfile.gettempdir()) / f"wieldy-batch-{os.getuid()}"
        self._work = base / digest(os.path.dirname(token))
        self._is_shared = os.path.exists(token)
        make_private_folder(base)
        make_private_folder(self._work)
        self._runner = AttemptRunner(self._work, ClusterGate(gate))
        self._progress: dict[str, bytes] = {}

    async def run(self, data: bytes) -> tuple[bytes, bytes | None]:
        """Make an attempt; returns its result, and its files where the driver cannot see them."""
        job: Job = msgspec.json.decode(data, type=Job)
        job = replace(job, options=replace(job.options, work=str(self._work)))
        if not self._is_shared:
            job = replace(job, folder=tempfile.mkdtemp(prefix="attempt-", dir=self._work))

        def report(progress: AttemptProgress) -> None:
            self._progress[job.key] = msgspec.json.encode(progress)

        try:
            result = await self._runner.start(job, report)
            files = None if self._is_shared else await in_thread(pack, Path(job.folder))
            return msgspec.json.encode(result), files
        finally:
            self._progress.pop(job.key, None)
            if not self._is_shared:
                await in_thread(shutil.rmtree, job.folder, ignore_errors=True)

    async def progress(self) -> dict[str, bytes]:
        return dict(self._progress)

    async def cancel(self, key: str) -> None:
        self._runner.cancel(key)

    async def close(self) -> None:
        await self._runner.aclose()


def _worker_actor(ray: Any) -> Any:
    # A session mostly waits for its model. A larger share of a CPU could not be placed again when a node is lost.
    options = {"num_cpus": 0.01, "max_restarts": -1, "max_task_retries": 0, "max_concurrency": 10_000}
    return ray.remote(scheduling_strategy="SPREAD", **options)(ClusterWorker)


def _rate_actor(ray: Any) -> Any:
    return ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=0, max_concurrency=100_000)(RateLimiter)


def pack(folder: Path) -> bytes:
    """The files of a folder as a compressed archive."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=1) as archive:
        for entry in sorted(folder.iterdir()):
            archive.add(entry, entry.name)
    return buffer.getvalue()


def unpack(data: bytes, folder: Path) -> None:
    """Write the files of an archive into a folder."""
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        archive.extractall(folder, filter="data")


def _describe(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"the worker was lost ({lines[0][:200] if lines else type(error).__name__})"
