"""The results of a run in a folder: how each attempt ended, its cost and its files.

    DIR/run.json                   configuration and versions
    DIR/results.jsonl              one line an attempt; a shard has its own: results-2-of-8.jsonl
    DIR/runs/ID/N/                 the files of attempt N at a task
    DIR/preds.jsonl                patches for the evaluator of SWE-bench

A result is appended and synced to disk before it is reported. One process writes to a results file at a time. A torn line,
left by a kill, is skipped by every reader. `remote.py` keeps a run at the URL of an object store instead, by the same interface.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import socket
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias
from urllib.parse import quote

import msgspec
from msgspec import Struct

from wieldy.core.errors import WieldyError
from wieldy.core.events import RunEnded
from wieldy.core.state_dirs import fsync_folder, make_folders, make_private_folder, open_private, write_private
from wieldy.core.threads import in_thread, in_thread_uncancellable
from wieldy.faces.batch.tasks import digest

Ending: TypeAlias = Literal["solved", "unsolved", "done", "limit", "denied", "refused", "infra", "crashed", "skipped"]

FINAL = frozenset({"solved", "unsolved", "done", "limit", "denied", "refused"})
"""Endings that say something about the task. The others say that it has not really been tried, and run again."""

FAILED = frozenset({"unsolved", "limit", "denied", "refused", "crashed"})

MAX_TEXT_CHARS = 4_000


class TaskCheck(Struct, frozen=True, omit_defaults=True):
    """What the check of a task said: its exit code, or why there is none."""

    exit_code: int | None = None
    seconds: float = 0.0
    timed_out: bool = False

    @property
    def passed(self) -> bool:
        return self.exit_code == 0


class AttemptResult(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One line of `results.jsonl`.

    `seconds` is working time, `wall_seconds` also counts `waited_seconds` for rate limits and retries. `limit` names the limit
    that was reached, `error_class` what kind of infrastructure failed, also in the name that Harbor has for it. `tools` counts
    calls by tool. `cost` is in US dollars; `unpriced` says that the price of the model is unknown.
    """

    id: str
    identity: str
    ending: Ending
    sample: int = 1
    attempt: int = 0
    detail: str = ""
    limit: str = ""
    error_class: str = ""
    harbor_class: str = ""
    check: TaskCheck | None = None
    model: str = ""
    isolation: str = ""
    isolation_note: str = ""
    folder: str = ""
    started: float = 0.0
    seconds: float = 0.0
    wall_seconds: float = 0.0
    waited_seconds: float = 0.0
    turns: int = 0
    cost: float = 0.0
    unpriced: bool = False
    usage: dict[str, int] = {}
    tools: dict[str, int] = {}
    tool_errors: int = 0
    denials: list[dict[str, Any]] = []
    text: str = ""
    patch_bytes: int | None = None
    patch_note: str = ""
    tags: tuple[str, ...] = ()
    worker: str = ""
    version: str = ""

    @property
    def is_final(self) -> bool:
        return self.ending in FINAL


LIMITS = frozenset({"max_turns", "max_cost", "max_tokens", "looping"})
# Kind of a provider's failure → our class, and the class that Harbor has for it.
ERROR_CLASSES: Mapping[str, tuple[str, str]] = {
    "rate": ("rate_limit", "ApiRateLimitError"),
    "overloaded": ("overloaded", "ApiOverloadedError"),
    "connection": ("connection", "ApiConnectionClosedError"),
    "refused": ("connection", "NetworkConnectionError"),
    "auth": ("authentication", "AgentAuthenticationError"),
    "model": ("model_not_found", "ModelNotFoundError"),
    "bad_request": ("bad_request", "UnsupportedModelParametersError"),
    "protocol": ("protocol", "UnknownApiError"),
}
CONTEXT_KINDS = ("overflow", "too_large")

RETRIED = frozenset({"rate_limit", "overloaded", "connection", "protocol"})
"""Classes that may pass by themselves: an attempt that ended so is made again."""

HOPELESS = frozenset({"authentication", "model_not_found", "storage", "settings"})
"""Classes that the next task would meet too: a few of them in a row end the run."""


class Verdict(Struct, frozen=True):
    """The part of a result that says how it ended."""

    ending: Ending
    detail: str = ""
    limit: str = ""
    error_class: str = ""
    harbor_class: str = ""


def needs_check(end: RunEnded, limit: str) -> bool:
    """Whether the check can say anything: also after a limit, when the work may be done already."""
    return bool(limit) or end.why == "done" or end.why in LIMITS or end.failure in CONTEXT_KINDS


def judge(end: RunEnded, limit: str, check: TaskCheck | None, *, denied: bool) -> Verdict:
    """The ending of a run. `limit` is the clock that stopped it, `denied` whether a call was not permitted."""
    limit = limit or (end.why if end.why in LIMITS else "") or ("context" if end.failure in CONTEXT_KINDS else "")
    if end.why == "refusal":
        return Verdict("refused", end.detail)
    if not limit and end.why != "done":
        return _judge_error(end)
    if check is not None and check.passed:
        return Verdict("solved", end.detail if limit else "", limit)
    if limit:
        harbor = "ContextWindowExceededError" if limit == "context" else ""
        return Verdict("limit", end.detail or f"stopped at the limit {limit}", limit, harbor_class=harbor)
    if denied:
        return Verdict("denied", "a call that the model made was not permitted")
    if check is None:
        return Verdict("done")
    if check.timed_out:
        return Verdict("unsolved", f"the check took longer than {check.seconds:.0f} s")
    return Verdict("unsolved", f"the check ended with exit code {check.exit_code}")


def _judge_error(end: RunEnded) -> Verdict:
    if end.why == "interrupted":
        return Verdict("limit", end.detail, "stopped")
    error_class, harbor = ERROR_CLASSES.get(end.failure, ("session", "UnknownApiError"))
    return Verdict("infra", end.detail or end.why, error_class=error_class, harbor_class=harbor)


RUN_NAME = "run.json"
RESULT_NAME = "result.json"
PREDS_NAME = "preds.jsonl"
PATCH_NAME = "patch.diff"
MAX_ID_CHARS = 100
_RESULTS = re.compile(r"results(-\d+-of-\d+)?\.jsonl")

_result_decoder = msgspec.json.Decoder(AttemptResult)


class StoreError(WieldyError):
    """The folder of a run cannot be used or written; the message is one line and says what to do."""


class Shard(Struct, frozen=True):
    """Part `index` of `count`, counted from 1."""

    index: int = 1
    count: int = 1

    @property
    def suffix(self) -> str:
        return "" if self.count == 1 else f"-{self.index}-of-{self.count}"


class StoredRun(Protocol):
    """A run that can be read, wherever it is kept."""

    @property
    def location(self) -> str:
        """The folder or the URL, as the user gave it."""

    def read_run(self) -> dict[str, Any]:
        """The contents of `run.json`. Raises `StoreError` if there is no run."""

    def results(self) -> Iterator[AttemptResult]:
        """Every result, the older ones first. Raises `StoreError`."""

    def read_progress(self) -> dict[str, dict[str, Any]]:
        """What the drivers said last about their progress, by the name of the file. Raises `StoreError`."""

    def write_file(self, name: str, data: bytes) -> str:
        """Write a file beside the results; returns where it is. Raises `StoreError`."""


class RunFolder:
    """The folder of a run, for reading."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    @property
    def location(self) -> str:
        return str(self.path)

    def read_run(self) -> dict[str, Any]:
        try:
            run: dict[str, Any] = msgspec.json.decode((self.path / RUN_NAME).read_bytes(), type=dict)
        except FileNotFoundError:
            raise StoreError(f"{self.path} is not the folder of a batch run: it has no {RUN_NAME}") from None
        except (OSError, msgspec.DecodeError) as error:
            raise StoreError(f"{self.path / RUN_NAME} cannot be read: {error}") from None
        return run

    def results(self) -> Iterator[AttemptResult]:
        """Every result, the older ones first; torn lines are skipped."""
        files = self.result_files()
        each = (result for file in files for result in _read_results(file))
        return each if len(files) <= 1 else iter(sorted(each, key=attrgetter("started", "id", "sample", "attempt")))

    def result_files(self) -> list[Path]:
        if not self.path.is_dir():
            return []
        return sorted(each for each in self.path.iterdir() if _RESULTS.fullmatch(each.name))

    def task_folder(self, task_id: str) -> Path:
        return self.path / "runs" / folder_name(task_id)

    def read_progress(self) -> dict[str, dict[str, Any]]:
        found = {}
        for file in sorted(self.path.glob("progress*.json")):
            with contextlib.suppress(OSError, msgspec.DecodeError):
                found[file.name] = msgspec.json.decode(file.read_bytes(), type=dict[str, Any])
        return found

    def write_file(self, name: str, data: bytes) -> str:
        try:
            write_durably(self.path / name, data)
        except OSError as error:
            raise self._error(error) from None
        return str(self.path / name)

    def _error(self, error: OSError) -> StoreError:
        return StoreError(f"{self.path} cannot be written: {error.strerror or error}")


def _read_results(file: Path) -> Iterator[AttemptResult]:
    with open(file, "rb") as lines:
        for line in lines:
            if (result := decode_result(line)) is not None:
                yield result


def latest_results(results: Iterable[AttemptResult]) -> dict[str, AttemptResult]:
    """The result that counts for each identity: the last final one, else the last."""
    latest: dict[str, AttemptResult] = {}
    for result in results:
        known = latest.get(result.identity)
        if known is None or result.is_final or not known.is_final:
            latest[result.identity] = result
    return latest


class ResultStore(RunFolder):
    """The folder of a run, for its one writer. Results that arrive together share an fsync."""

    progress_seconds = 1.0
    """How often the state of the run is written for those who watch."""

    def __init__(self, path: str | os.PathLike[str], part: Shard = Shard()) -> None:  # noqa: B008 - frozen
        super().__init__(path)
        self.part = part
        self._file = -1
        self._lock = -1
        self._size = 0
        self._waiting: list[tuple[bytes, asyncio.Future[None]]] = []
        self._writer: asyncio.Task[None] | None = None
        self._progress_lock = threading.Lock()
        self._is_over = False

    def open(self) -> None:
        """Create the folder, or take over an existing one; lock it. Raises `StoreError`."""
        try:
            self._prepare_folder()
            self._lock = os.open(self.path / f".lock{self.part.suffix}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._take_lock()
            name = f"results{self.part.suffix}.jsonl"
            self._file = os.open(self.path / name, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._size = os.fstat(self._file).st_size
            if self._size and os.pread(self._file, 1, self._size - 1) != b"\n":
                self._write(b"\n")  # a torn last line must not swallow the next result
            fsync_folder(self.path)
            self._load()
        except OSError as error:
            self.close()
            raise self._error(error) from None
        except StoreError:
            self.close()
            raise

    def _load(self) -> None:
        """Complete an opened store. Raises `OSError` or `StoreError`."""

    def _prepare_folder(self) -> None:
        if self.path.is_dir() and not (self.path / RUN_NAME).exists():
            strangers = [each.name for each in self.path.iterdir() if not _is_ours(each.name)]
            if strangers:
                raise StoreError(
                    f"{self.path} is not empty and holds no batch run (it has {sorted(strangers)[0]}); "
                    "give --out a new folder"
                )
        make_folders(self.path, 0o700)

    def _take_lock(self) -> None:
        import fcntl

        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(self._lock, 200, 0).decode("utf-8", "replace").strip()
            raise StoreError(
                f"another `wieldy batch` writes to {self.path}{f' ({owner})' if owner else ''}; "
                "wait for it, or follow it with `wieldy batch watch`"
            ) from None
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, f"pid {os.getpid()} on {socket.gethostname()}\n".encode(), 0)

    def write_run(self, run: Mapping[str, Any]) -> None:
        """Write `run.json`; the moment of the first start is kept. Raises `StoreError`."""
        created = time.time()
        with contextlib.suppress(StoreError):
            created = self.read_run().get("created", created)
        self.write_json(RUN_NAME, {**run, "created": created})

    def write_json(self, name: str, value: Any) -> None:
        """Replace a JSON file. Raises `StoreError`."""
        self.write_file(name, msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")

    def write_progress(self, state: Mapping[str, Any]) -> None:
        """Write the state of the run for those who watch; nothing after the last one, should a thread be late.

        A failure is ignored: the next one may be written.
        """
        with self._progress_lock:
            if not self._is_over:
                self._is_over = bool(state.get("over"))
                self._write_progress(state)

    def _write_progress(self, state: Mapping[str, Any]) -> None:
        temporary = self.path / f".{self.progress_name}.tmp"
        with contextlib.suppress(OSError):
            write_private(temporary, msgspec.json.encode(state))
            temporary.replace(self.path / self.progress_name)

    @property
    def progress_name(self) -> str:
        return f"progress{self.part.suffix}.json"

    async def append(self, result: AttemptResult) -> None:
        """Append a result; returns when it is on disk. Raises `StoreError`."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((msgspec.json.encode(result) + b"\n", future))
        if self._writer is None:
            self._writer = asyncio.get_running_loop().create_task(self._write_waiting())
        await future

    async def _write_waiting(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting, []
            try:
                await in_thread_uncancellable(self._write_durably, b"".join(line for line, _ in batch))
            except OSError as error:
                failure = self._error(error)
                for _, future in batch:
                    if not future.done():
                        future.set_exception(failure)
            else:
                for _, future in batch:
                    if not future.done():
                        future.set_result(None)
        self._writer = None

    def _write_durably(self, data: bytes) -> None:
        self._write(data)
        os.fsync(self._file)

    def _write(self, data: bytes) -> None:
        """Write all or nothing: what a full disk took of a line is cut off again."""
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(self._file, view) :]
        except OSError:
            os.ftruncate(self._file, self._size)
            raise
        self._size += len(data)

    def new_attempt_folder(self, task_id: str) -> tuple[int, Path]:
        """Create the folder of the next attempt at a task; returns its number too. Raises `StoreError`."""
        try:
            return make_attempt_folder(self.task_folder(task_id), self._last_attempt(task_id))
        except OSError as error:
            raise self._error(error) from None

    def _last_attempt(self, task_id: str) -> int:
        """The number of an attempt whose folder may be gone; 0 where folders stay."""
        return 0

    def result_folder(self, folder: Path) -> str:
        """The name that a result has for the folder of its attempt."""
        return os.path.relpath(folder, self.path)

    def finished_in_folders(self, task_id: str) -> Iterator[AttemptResult]:
        """The results that workers left in the folders of a task. A driver that died may not have recorded them."""
        folder = self.task_folder(task_id)
        for name in sorted(_attempt_numbers(folder)):
            with contextlib.suppress(OSError):
                if (result := decode_result((folder / str(name) / RESULT_NAME).read_bytes())) is not None:
                    yield result

    def write_predictions(self, identities: Collection[str]) -> None:
        """Write `preds.jsonl` for the SWE-bench evaluator: the last final result of each task, of these identities if it has any.

        Further samples of a task have files of their own. Raises `StoreError`.
        """
        known = frozenset[str]()
        while True:
            results = predicted(self.results(), identities)
            if (now := frozenset(f"{each.identity}/{each.attempt}" for each in results)) == known:
                return  # nothing came from another shard meanwhile, whose file this one may have replaced
            known = now
            patches = self.read_patches(results)
            for sample in sorted({result.sample for result in results}):
                lines = [
                    {"instance_id": result.id, "model_name_or_path": result.model, "model_patch": patch}
                    for result, patch in zip(results, patches, strict=True)
                    if result.sample == sample
                ]
                name = PREDS_NAME if sample == 1 else f"preds-{sample}.jsonl"
                self.write_file(name, b"".join(msgspec.json.encode(line) + b"\n" for line in lines))

    def read_patches(self, results: Sequence[AttemptResult]) -> list[str]:
        """The patch of each result, empty where it has none. Raises `StoreError`."""
        patches = []
        for result in results:
            try:
                patch = (self.path / result.folder / PATCH_NAME).read_bytes().decode("utf-8", "replace")
            except OSError:
                patch = ""
            patches.append(patch)
        return patches

    async def aclose(self, state: Mapping[str, Any], *, complete: bool) -> None:
        """Bring what is under way to its end, and write the last state; `complete` says that every attempt has a result."""
        await in_thread(self.write_progress, state)

    def close(self) -> None:
        for name in ("_file", "_lock"):
            if (descriptor := getattr(self, name)) >= 0:
                os.close(descriptor)
                setattr(self, name, -1)

    def _error(self, error: OSError) -> StoreError:
        return StoreError(
            f"{super()._error(error)}. What is finished is kept; when there is room again, the same command continues"
        )


def predicted(results: Iterable[AttemptResult], identities: Collection[str]) -> list[AttemptResult]:
    """The last final result of each task and sample; a changed task counts as it is now."""
    final = [result for result in results if result.is_final]
    current = {(result.id, result.sample) for result in final if result.identity in identities}
    last = {
        (result.id, result.sample): result
        for result in final
        if (result.id, result.sample) not in current or result.identity in identities
    }
    return list(last.values())


def decode_result(line: bytes) -> AttemptResult | None:
    """Decode a line; None for a torn one."""
    try:
        return _result_decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def make_attempt_folder(task_folder: Path, after: int = 0) -> tuple[int, Path]:
    """Create the folder of the next attempt, with a number above `after`. Raises `OSError`."""
    make_private_folder(task_folder)
    number = max(after, *_attempt_numbers(task_folder), 0)
    while True:
        number += 1
        with contextlib.suppress(FileExistsError):
            (task_folder / str(number)).mkdir(mode=0o700)
            return number, task_folder / str(number)


def _attempt_numbers(task_folder: Path) -> Sequence[int]:
    try:
        return [int(name) for name in os.listdir(task_folder) if name.isdecimal()]
    except OSError:
        return ()


def folder_name(task_id: str) -> str:
    """A name for the folder of a task: readable, safe on any file system, and different for different ids."""
    name = quote(task_id, safe=" +=@,()[]{}~^!'#")
    if len(name) <= MAX_ID_CHARS and name == name.strip(". "):
        return name
    return f"{name[:MAX_ID_CHARS].strip('. ')}%~{digest(task_id)}"


def write_durably(path: Path, data: bytes) -> None:
    """Replace a file by one that is on disk. Raises `OSError`."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb", opener=open_private) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    fsync_folder(path.parent)


def _is_ours(name: str) -> bool:
    return name.startswith((".lock", ".run.json")) or bool(_RESULTS.fullmatch(name)) or name == "runs"
