"""One attempt at a task: make the copy, set it up, run the session, check it, write the files, and say how it ended."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from wieldy.agent.run_totals import RunTotals
from wieldy.agent.session import Session
from wieldy.core.errors import MissingKey, WieldyError
from wieldy.core.events import (
    AgentEvent,
    Event,
    ModelAnswered,
    ModelRequested,
    Retried,
    RunEnded,
    ToolEnded,
    ToolProgress,
)
from wieldy.core.git import SourceError, without_location
from wieldy.core.state_dirs import open_private
from wieldy.core.text import truncate
from wieldy.core.threads import in_thread, in_thread_uncancellable
from wieldy.core.workspace import Workspace
from wieldy.faces.batch.isolation import Isolation, SourceCache, WorkingCopy, make_copy
from wieldy.faces.batch.rates import GatedProvider, RateGate, WorkClock, rate_key
from wieldy.faces.batch.store import (
    MAX_TEXT_CHARS,
    PATCH_NAME,
    RESULT_NAME,
    AttemptResult,
    Ending,
    TaskCheck,
    Verdict,
    judge,
    needs_check,
    write_durably,
)
from wieldy.faces.batch.tasks import Task
from wieldy.files.working_copies import IsolationError, PatchRecorder, remove_tree, write_patch
from wieldy.models.catalog import pick, unpriced
from wieldy.shell.running.session import ShellSession
from wieldy.shell.running.shell import collect_result, stop_and_collect
from wieldy.tools import MODULES


class CommandRunner:
    """Runs commands in bash. Everything they start ends with them, and with this process, whatever kills it."""

    def __init__(self, folder: Path) -> None:
        # Unlike the commands of a model, these get the whole environment, but for what leads git out of the copy.
        settings = {"bash": {"keepEnv": list(os.environ)}}
        env = without_location(os.environ)
        self._shells = ShellSession(Workspace(folder, session_dir=folder, settings=settings, env=env))

    async def run(self, command: str, *, cwd: str, env: Mapping[str, str], seconds: float, log: Path) -> TaskCheck:
        """Run a command to its end, or to the end of its time; all of its output goes to `log`."""
        shell = self._shells.start(command, cwd=cwd, extra_env=env, keeps_directory=True)
        try:
            async with asyncio.timeout(seconds):
                await asyncio.shield(shell.exit)
        except TimeoutError:
            result = await stop_and_collect(shell, "timed out")
        except asyncio.CancelledError:
            await asyncio.shield(stop_and_collect(shell, "interrupted"))
            raise
        else:
            result = await collect_result(shell)
            if result.leftovers:
                await shell.terminate()
                await shell.close()
        await in_thread(_write_log, log, result.text, result.path)
        return TaskCheck(result.code, round(result.seconds, 3), timed_out=result.reason == "timed out")

    async def aclose(self) -> None:
        await self._shells.aclose()


def _write_log(log: Path, text: str, path: str | None) -> None:
    if path is not None and Path(path).exists():
        shutil.move(path, log)
    else:
        log.write_text(text, encoding="utf-8", errors="replace")


SETUP_LOG = "setup.log"
CHECK_LOG = "check.log"
TRAJECTORY = "trajectory.json"


class PlannedAttempt(Struct, frozen=True):
    """An attempt that is to be made: the `sample`-th at a task."""

    task: Task
    sample: int
    identity: str

    def result(self, ending: Ending, detail: str, **more: Any) -> AttemptResult:
        """The result of this attempt."""
        return AttemptResult(
            id=self.task.id,
            identity=self.identity,
            sample=self.sample,
            ending=ending,
            detail=truncate(detail, 1_000),
            model=self.task.model,
            tags=self.task.tags,
            **{"started": time.time(), **more},
        )


class AttemptOptions(Struct, frozen=True, kw_only=True):
    """How attempts are made. `work` is where copies are made on this machine, `exclude` are files that are never copied."""

    work: str = ""
    isolate: Isolation = "auto"
    base_url: str = ""
    keep_copies: bool = False
    command_seconds: float = 1800.0
    patience: float = 3600.0
    exclude: tuple[str, ...] = ()


class Job(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """An attempt to be made. `folder` is where its files go, `relative_folder` its name in the result.

    `copy` is set where the copy has been made already, for a process that runs inside an overlay.
    """

    planned: PlannedAttempt
    attempt: int
    folder: str
    relative_folder: str
    options: AttemptOptions
    copy: WorkingCopy | None = None

    @property
    def task(self) -> Task:
        return self.planned.task

    @property
    def key(self) -> str:
        return f"{self.task.id}/{self.attempt}"


class AttemptProgress(Struct, frozen=True, omit_defaults=True):
    """What an attempt does now: a word, turns and cost so far."""

    doing: str
    turns: int = 0
    cost: float = 0.0


Report: TypeAlias = Callable[[AttemptProgress], None]


class AttemptFailure(WieldyError):
    """An attempt cannot be made; `verdict` says why."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.detail)
        self.verdict = verdict


class AttemptHost(Struct, frozen=True):
    """What an attempt needs of its process. `run_inside` runs a job in a process inside its overlay."""

    gate: RateGate
    commands: CommandRunner
    run_inside: Callable[[Job, Report], Any]


class Attempt:
    """Makes one attempt. When it is cancelled nothing is reported, and the attempt will be made again."""

    def __init__(self, job: Job, host: AttemptHost, report: Report) -> None:
        self._job = job
        self._host = host
        self._report = report
        self._clock = WorkClock()
        self._started = time.time()
        self._folder = Path(job.folder)
        self._scratch = Path(job.options.work) / "attempts" / f"{job.planned.identity}-{job.attempt}"
        self._totals = RunTotals()
        self._tools: Counter[str] = Counter()
        self._tool_errors = 0
        self._turns = 0
        self._cost = 0.0

    async def run(self) -> AttemptResult:
        """Make the attempt, and write its result to its folder before it is returned."""
        job = self._job
        try:
            try:
                copy = job.copy or await self._make_copy()
                if copy.overlay is not None and job.copy is None:
                    result: AttemptResult = await self._host.run_inside(replace(job, copy=copy), self._report)
                    return result
                result = await self._run_in(copy)
            except AttemptFailure as failure:
                result = self._result(failure.verdict)
            except OSError as error:
                where = f"{os.fsdecode(error.filename)}: " if isinstance(error.filename, str | bytes) else ""
                result = self._result(_infra("storage", f"{where}{error.strerror or error}"))
            except Exception as bug:
                result = self._result(Verdict("crashed", f"{type(bug).__name__}: {bug}"))
            with suppress(OSError):  # the result is reported all the same
                await in_thread(write_durably, self._folder / RESULT_NAME, msgspec.json.encode(result))
            return result
        finally:
            if not job.options.keep_copies and job.copy is None:
                await in_thread_uncancellable(remove_tree, self._scratch)

    async def _make_copy(self) -> WorkingCopy:
        job = self._job
        self._report(AttemptProgress("copying"))
        sources = SourceCache(Path(job.options.work) / "sources", job.options.exclude)
        try:
            await in_thread_uncancellable(remove_tree, self._scratch)  # left by a run that was killed
            return await in_thread_uncancellable(
                make_copy, job.task.source, job.options.isolate, self._scratch, sources
            )
        except IsolationError as error:
            raise AttemptFailure(_infra("isolation", str(error))) from None
        except SourceError as error:
            raise AttemptFailure(_infra("source", str(error))) from None

    async def _run_in(self, copy: WorkingCopy) -> AttemptResult:
        job, task = self._job, self._job.task
        env = dict(task.env)
        if copy.way != "none":
            env["GIT_CEILING_DIRECTORIES"] = str(copy.path.parent)  # git must not find a repository around the copy
        if task.setup:
            self._report(AttemptProgress("setup"))
            setup = await self._command(task.setup, copy, env, SETUP_LOG)
            if not setup.passed:
                how = "took too long" if setup.timed_out else f"ended with exit code {setup.exit_code}"
                raise AttemptFailure(
                    _infra("setup", f"the setup {how}; {SETUP_LOG} in {job.relative_folder} of --out has its output")
                )
        keeps_times = copy.way in ("copy", "reflink")  # of files: by these, copies of the same source are recognized
        shared = Path(job.options.work) / "sources" if keeps_times and not task.setup else None
        recorder = PatchRecorder(copy.path, self._scratch, shared)
        patch_note = ""
        try:
            self._scratch.mkdir(parents=True, exist_ok=True)
            if shared is not None:
                shared.mkdir(exist_ok=True)
            await in_thread(recorder.start)
        except (SourceError, OSError) as error:
            patch_note = f"there is no patch: {error}"
        end, limit = await self._run_session(copy, env)
        check: TaskCheck | None = None
        if task.check and needs_check(end, limit):
            self._report(AttemptProgress("checking", self._turns, self._cost))
            check = await self._command(task.check, copy, env, CHECK_LOG)
        patch_bytes = None
        if not patch_note:
            patch_bytes, patch_note = await in_thread(write_patch, recorder, self._folder / PATCH_NAME)
        verdict = judge(end, limit, check, denied=bool(self._totals.denials))
        result = self._result(verdict, end)
        return replace(
            result,
            check=check,
            isolation=copy.way,
            isolation_note=copy.note,
            patch_bytes=patch_bytes,
            patch_note=patch_note,
        )

    async def _run_session(self, copy: WorkingCopy, env: Mapping[str, str]) -> tuple[RunEnded, str]:
        """Run the session to its end; returns that, and the limit of time that was reached."""
        job, task = self._job, self._job.task
        env = {**without_location(os.environ), **env}
        provider: Any = None
        try:
            provider = pick(task.model, base_url=job.options.base_url or None, env=env)
            if (key := rate_key(task.model, job.options.base_url, env)) is not None:
                provider = GatedProvider(provider, key, self._host.gate, self._clock, patience=job.options.patience)
            session = Session(
                copy.path,
                model=provider,
                mode=task.mode or None,
                settings=session_settings(task),
                load_settings=True,
                max_turns=task.limits.max_turns,
                max_cost=task.limits.max_cost,
                env=env,
                session_dir=self._folder,
                state_dir=None if copy.way == "none" else self._scratch / "state",
            )
            session.box.settings.require_rules()
        except WieldyError as error:
            if provider is not None:
                await provider.aclose()
            kind = "authentication" if isinstance(error, MissingKey) else "settings"
            raise AttemptFailure(_infra(kind, str(error))) from None
        async with session:
            watchdog = Watchdog(session, self._clock, task.limits.seconds, task.limits.idle_seconds)
            watching = asyncio.get_running_loop().create_task(watchdog.run())
            end: RunEnded | None = None
            try:
                async for event in session.run(task.prompt, stream_deltas=False):
                    self._follow(event, watchdog)
                    if isinstance(event, RunEnded):
                        end = event
            finally:
                watching.cancel()
                watchdog.stop_waiting()
            await in_thread(self._write_trajectory, session)
        assert end is not None
        return end, watchdog.limit

    def _follow(self, event: Event, watchdog: Watchdog) -> None:
        watchdog.follow(event)
        self._totals.add(event)
        inner = event.event if isinstance(event, AgentEvent) else event
        if isinstance(inner, ToolEnded):
            self._tools[inner.name] += 1
            self._tool_errors += inner.result.is_error
        elif isinstance(inner, ModelAnswered):
            self._turns += inner is event
            self._cost += inner.cost or 0.0
            self._report(AttemptProgress("working", self._turns, self._cost))

    def _write_trajectory(self, session: Session) -> None:
        from wieldy.agent.export import build_trajectory

        trajectory = build_trajectory(self._folder, session.system_prompt, session.tool_specs)
        with open(self._folder / TRAJECTORY, "wb", opener=open_private) as file:
            file.write(msgspec.json.encode(trajectory))

    async def _command(self, command: str, copy: WorkingCopy, env: Mapping[str, str], log: str) -> TaskCheck:
        return await self._host.commands.run(
            command, cwd=str(copy.path), env=env, seconds=self._job.options.command_seconds, log=self._folder / log
        )

    def _result(self, verdict: Verdict, end: RunEnded | None = None) -> AttemptResult:
        from wieldy import __version__

        job, task = self._job, self._job.task
        return job.planned.result(
            verdict.ending,
            verdict.detail,
            attempt=job.attempt,
            limit=verdict.limit,
            error_class=verdict.error_class,
            harbor_class=verdict.harbor_class,
            folder=job.relative_folder,
            started=self._started,
            seconds=round(self._clock.working, 3),
            wall_seconds=round(self._clock.wall, 3),
            waited_seconds=round(self._clock.waited, 3),
            turns=end.turns if end is not None else self._turns,
            cost=round(end.cost if end is not None else self._cost, 6),
            unpriced=bool(end.unpriced if end is not None else unpriced(task.model)),
            usage={name: count for name, count in self._totals.usage.items() if count},
            tools=dict(self._tools),
            tool_errors=self._tool_errors,
            denials=self._totals.denied_calls(),
            text=truncate(end.text, MAX_TEXT_CHARS) if end is not None else "",
            worker=f"{socket.gethostname()}:{os.getpid()}",
            version=__version__,
        )


class Watchdog:
    """Aborts a session that works too long, or in which nothing happens. Waits for rate limits and retries do not count."""

    def __init__(self, session: Session, clock: WorkClock, seconds: float | None, idle_seconds: float | None) -> None:
        self.limit = ""
        self._session = session
        self._clock = clock
        self._seconds = seconds
        self._idle_seconds = idle_seconds
        self._begun = clock.working
        self._last_activity = clock.working
        self._requests = 0
        self._retrying = False
        self._last_progress = ""

    def follow(self, event: Event) -> None:
        """Note that something happened. Progress that says the same again is nothing."""
        if isinstance(event, ToolProgress):
            if event.text == self._last_progress:
                return
            self._last_progress = event.text
        elif isinstance(event, Retried):
            self._retrying = True
            self._clock.begin_wait()
        elif isinstance(event, ModelRequested):
            self.stop_waiting()
            self._requests += 1
        elif isinstance(event, ModelAnswered):
            self._requests = 0
        self._last_activity = self._clock.working

    def stop_waiting(self) -> None:
        if self._retrying:
            self._retrying = False
            self._clock.end_wait()

    async def run(self) -> None:
        while (left := self._seconds_left()) is not None:
            if left <= 0:
                unit = self._idle_seconds if self.limit == "idle_seconds" else self._seconds
                what = "nothing happened for" if self.limit == "idle_seconds" else "stopped after"
                self._session.abort(f"{what} {unit:g} s")
                return
            await asyncio.sleep(max(left, 0.01))

    def _seconds_left(self) -> float | None:
        """Until the next limit can be reached; `limit` is the one that comes first."""
        limits: list[tuple[float, str]] = []
        if self._seconds is not None:
            limits.append((self._seconds - (self._clock.working - self._begun), "seconds"))
        if self._idle_seconds is not None:
            idle = 0.0 if self._requests else self._clock.working - self._last_activity
            limits.append((self._idle_seconds - idle, "idle_seconds"))
        if not limits:
            return None
        left, limit = min(limits)
        self.limit = limit if left <= 0 else ""
        return left


def session_settings(task: Task) -> dict[str, Any]:
    """The settings of a task; tools that it does not list are denied, so that they are not offered."""
    settings = dict(task.settings)
    if task.tools is not None:
        permissions = dict(settings.get("permissions") or {})
        permissions["deny"] = [*permissions.get("deny", ()), *(name for name in MODULES if name not in task.tools)]
        settings["permissions"] = permissions
    return settings


def _infra(error_class: str, detail: str) -> Verdict:
    return Verdict("infra", detail, error_class=error_class)
