"""The driver: decides what is left to do, has it done, and stores each result before it is reported."""

from __future__ import annotations

import asyncio
import os
import platform
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from wieldy.core.errors import WieldyError
from wieldy.core.git import SourceError
from wieldy.faces.batch.attempt import AttemptOptions, AttemptProgress, Job, PlannedAttempt
from wieldy.faces.batch.isolation import attempt_identity, fingerprint
from wieldy.faces.batch.store import (
    FAILED,
    FINAL,
    HOPELESS,
    RETRIED,
    AttemptResult,
    ResultStore,
    Shard,
    latest_results,
)
from wieldy.faces.batch.tasks import Task, TaskFileError, digest, shard
from wieldy.faces.batch.workers import Engine, WorkerLost
from wieldy.models.catalog import pick

HOPELESS_IN_A_ROW = 3
RETRY_SECONDS = (2.0, 10.0, 30.0)


class RunOptions(AttemptOptions, frozen=True, kw_only=True):
    """How a run is made. `only` holds `failed`, `infra` or ids of tasks; `max_cost` is in US dollars for the whole run."""

    workers: int = 8
    samples: int = 1
    retries: int = 2
    only: tuple[str, ...] = ()
    max_cost: float | None = None
    retry_seconds: tuple[float, ...] = RETRY_SECONDS


class RunPlan(Struct, frozen=True):
    """What is left to do, what is done, and how many results belong to another configuration."""

    pending: tuple[PlannedAttempt, ...]
    finished: tuple[AttemptResult, ...]
    others: int = 0

    @property
    def total(self) -> int:
        return len(self.pending) + len(self.finished)


class RunState:
    """What a run does now. Shown as progress, and written for those who watch from elsewhere."""

    def __init__(self, plan: RunPlan) -> None:
        self.total = plan.total
        self.endings: Counter[str] = Counter(result.ending for result in plan.finished)
        self.errors: Counter[str] = Counter()
        self.error_details: dict[str, str] = {}
        self.running: dict[str, AttemptProgress] = {}
        self.cost = 0.0
        self.done = len(plan.finished)
        self.done_before = len(plan.finished)
        self.unpriced = 0
        self.started = time.time()
        self.stopping = ""
        self.over = False

    @property
    def left(self) -> int:
        return max(self.total - self.done - len(self.running), 0)

    @property
    def spent(self) -> float:
        """The cost of what has ended, and of what is under way."""
        return self.cost + sum(progress.cost for progress in self.running.values())

    def add(self, result: AttemptResult, *, is_last: bool) -> None:
        """Count a result; `is_last` unless the attempt is made again."""
        self.cost += result.cost
        self.unpriced += result.unpriced
        if result.ending in ("infra", "crashed"):
            name = result.error_class or result.ending
            self.errors[name] += 1
            self.error_details[name] = result.detail
        if is_last:
            self.done += 1
            self.endings[result.ending] += 1

    def as_dict(self) -> dict[str, Any]:
        return {
            "at": time.time(),
            "started": self.started,
            "pid": os.getpid(),
            "host": platform.node(),
            "total": self.total,
            "done": self.done,
            "done_before": self.done_before,
            "running": {key: {"doing": p.doing, "turns": p.turns, "cost": p.cost} for key, p in self.running.items()},
            "endings": dict(self.endings),
            "errors": dict(self.errors),
            "cost": self.spent,
            "unpriced": self.unpriced,
            "stopping": self.stopping,
            "over": self.over,
        }


def make_plan(tasks: Sequence[Task], store: ResultStore, options: RunOptions) -> RunPlan:
    """Decide what is left to do, of the tasks in the store's shard.

    Raises `TaskFileError` for an unknown id in `only`, or a source that is not available.
    """
    latest = latest_results(store.results())
    ids = {task.id for task in tasks}
    if unknown := [name for name in options.only if name not in ("failed", "infra") and name not in ids]:
        raise TaskFileError(f"--only: there is no task {unknown[0]}")
    fingerprint_of = cache(partial(fingerprint, exclude=options.exclude, isolate=options.isolate))
    pending: list[PlannedAttempt] = []
    finished: list[AttemptResult] = []
    selected = _selection(options.only)
    identities: set[str] = set()
    own = list(shard(tasks, store.part.index, store.part.count))
    for task in own:
        try:
            files = fingerprint_of(task.source)
        except (SourceError, OSError) as error:
            raise TaskFileError(f"the task {task.id}: {error}") from None
        for sample in range(1, options.samples + 1):
            identity = attempt_identity(
                task, sample=sample, isolate=options.isolate, base_url=options.base_url, fingerprint=files
            )
            identities.add(identity)
            result = latest.get(identity)
            again = selected is not None and selected(task, result)
            if (selected is None or again) and (again or result is None or not result.is_final):
                pending.append(PlannedAttempt(task, sample, identity))
            elif result is not None:
                finished.append(result)
    of_other_shards = ids - {task.id for task in own}
    others = sum(key not in identities and result.id not in of_other_shards for key, result in latest.items())
    return RunPlan(tuple(pending), tuple(finished), others)


def check_models(plan: RunPlan, base_url: str) -> None:
    """Raise `TaskFileError` where the model of a pending attempt is not available: every such attempt would fail."""
    known: set[tuple[str, tuple[tuple[str, str], ...]]] = set()
    for planned in plan.pending:
        task = planned.task
        if (key := (task.model, tuple(sorted(task.env.items())))) not in known:
            known.add(key)
            try:
                pick(task.model, base_url=base_url or None, env={**os.environ, **task.env})
            except WieldyError as error:
                raise TaskFileError(f"the task {task.id}: {error}") from None


def _selection(only: tuple[str, ...]) -> Callable[[Task, AttemptResult | None], bool] | None:
    if not only:
        return None
    names = set(only)

    def selected(task: Task, result: AttemptResult | None) -> bool:
        ending = result.ending if result is not None else ""
        return (
            task.id in names
            or ("failed" in names and ending in FAILED)
            or ("infra" in names and ending in ("infra", "crashed"))
        )

    return selected


class Driver:
    """Makes the pending attempts of a plan, so many at a time."""

    def __init__(self, plan: RunPlan, store: ResultStore, engine: Engine, options: RunOptions) -> None:
        self.state = RunState(plan)
        self._plan = plan
        self._store = store
        self._engine = engine
        self._options = options
        self._pending = deque(plan.pending)
        self._hopeless: list[AttemptResult] = []
        self.state.cost = sum(result.cost for result in store.results())

    @property
    def identities(self) -> frozenset[str]:
        """The identities of all attempts of the plan, finished or not."""
        pending = (planned.identity for planned in self._plan.pending)
        return frozenset((*pending, *(result.identity for result in self._plan.finished)))

    @property
    def is_complete(self) -> bool:
        """Whether every attempt of the plan has a final result."""
        return sum(self.state.endings[name] for name in FINAL) == self.state.total

    def stop(self, reason: str) -> None:
        """Start nothing more; what is running continues."""
        self.state.stopping = self.state.stopping or reason

    async def run(self) -> None:
        """Make every attempt. Raises `StoreError`. When this is cancelled, what is under way is given up, to be made again."""
        self.state.started = time.time()
        running: set[asyncio.Task[None]] = set()
        loop = asyncio.get_running_loop()
        try:
            while self._pending or running:
                while self._pending and len(running) < self._options.workers and self._may_start():
                    running.add(loop.create_task(self._attempt(self._pending.popleft())))
                if not running:
                    break
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
        finally:
            for task in running:
                task.cancel()
            if running:
                await asyncio.wait(running)
        await self._skip_rest()

    def _may_start(self) -> bool:
        limit = self._options.max_cost
        if limit is not None and self.state.spent >= limit:
            self.stop(f"the budget of ${limit:g} is spent")
        elif limit is not None and self.state.unpriced:
            self.stop("the price of a model is unknown, so no budget can be kept; give it as `prices` in your settings")
        return not self.state.stopping

    async def _skip_rest(self) -> None:
        """Record that attempts were skipped. They run when the same command is given again."""
        skipped = [planned.result("skipped", self.state.stopping) for planned in self._pending]
        self._pending.clear()
        await asyncio.gather(*(self._record(result, is_last=True) for result in skipped))

    async def _attempt(self, planned: PlannedAttempt) -> None:
        """Make an attempt, again where that may help, until it has a result that stays."""
        if (adopted := self._adopt(planned)) is not None:
            await self._record(adopted, is_last=True)
            return
        tries, alone = 0, False
        while True:
            try:
                result = await self._try(planned, alone=alone)
            except WorkerLost as lost:
                alone = alone or not lost.with_machine  # if that worker dies too, it is the fault of this task
                continue
            again = result.error_class in RETRIED and tries < self._options.retries and not self.state.stopping
            if not again:
                break
            await self._record(result, is_last=False)
            delays = self._options.retry_seconds
            await asyncio.sleep(delays[min(tries, len(delays) - 1)])
            tries += 1
        self._note_hopeless(result)
        await self._record(result, is_last=True)

    async def _try(self, planned: PlannedAttempt, *, alone: bool) -> AttemptResult:
        """The result of one try. Raises `WorkerLost` where a worker died, perhaps for another reason than this task."""
        number, folder = self._store.new_attempt_folder(planned.task.id)
        job = Job(
            planned=planned,
            attempt=number,
            folder=str(folder.resolve()),
            relative_folder=self._store.result_folder(folder),
            options=self._options,
        )
        running = self.state.running
        running[job.key] = AttemptProgress("starting")

        def report(progress: AttemptProgress) -> None:
            if job.key in running:
                running[job.key] = progress

        try:
            return await self._engine.run(job, report, alone=alone)
        except WorkerLost as lost:
            if not alone or lost.with_machine:
                raise
            detail = f"{lost}, twice while this task ran"
            return planned.result("crashed", detail, attempt=number, folder=job.relative_folder)
        finally:
            del running[job.key]

    def _adopt(self, planned: PlannedAttempt) -> AttemptResult | None:
        """A final result that a worker left behind when its driver died."""
        if self._options.only:
            return None
        found = self._store.finished_in_folders(planned.task.id)
        return next((each for each in found if each.identity == planned.identity and each.is_final), None)

    def _note_hopeless(self, result: AttemptResult) -> None:
        """Stop the run where the next task would fail in the same way."""
        if result.error_class not in HOPELESS:
            self._hopeless.clear()
            return
        self._hopeless.append(result)
        if len(self._hopeless) >= HOPELESS_IN_A_ROW:
            self.stop(f"{len(self._hopeless)} attempts in a row ended with {result.error_class}: {result.detail}")

    async def _record(self, result: AttemptResult, *, is_last: bool) -> None:
        await self._store.append(result)
        self.state.add(result, is_last=is_last)


def describe_run(tasks_name: str, tasks_digest: str, options: RunOptions, more: Mapping[str, Any]) -> dict[str, Any]:
    """The contents of `run.json`."""
    from wieldy import __version__

    return {
        "v": 1,
        "wieldy": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "tasks": tasks_name,
        "tasks_digest": tasks_digest,
        "options": msgspec.to_builtins(options),
        **more,
    }


def work_folder(chosen: str, out: str, part: Shard) -> Path:
    """The folder for copies, of this run alone: below the chosen one, else in the user's cache, outside of any project."""
    cache = os.environ.get("XDG_CACHE_HOME") or ""
    base = Path(cache) if os.path.isabs(cache) else Path.home() / ".cache"
    top = Path(chosen).absolute() if chosen else base / "wieldy" / "batch"
    return top / f"{digest(out)}{part.suffix}"
