"""The results of a run on disk. A result is appended and brought to disk before anybody hears of it.

    DIR/run.json                   configuration and versions
    DIR/results.jsonl              one line an attempt; a shard has its own: results-2-of-8.jsonl
    DIR/runs/ID/N/                 the files of attempt N at a task
    DIR/preds.jsonl                patches for the evaluator of SWE-bench

One process writes to a results file at a time. A torn line, left by a kill, is skipped by every reader.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import socket
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import Struct

from wieldy.agent.payloads import fsync_folder
from wieldy.batch.identity import digest
from wieldy.batch.results import AttemptResult
from wieldy.core.errors import WieldyError
from wieldy.core.threads import in_thread_uncancellable

RUN_NAME = "run.json"
RESULT_NAME = "result.json"
PREDS_NAME = "preds.jsonl"
PROGRESS_NAME = "progress.json"
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


class RunFolder:
    """The folder of a run, for reading."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def read_run(self) -> dict[str, Any]:
        """The contents of `run.json`. Raises `StoreError` if this is not the folder of a run."""
        try:
            run: dict[str, Any] = msgspec.json.decode((self.path / RUN_NAME).read_bytes(), type=dict)
        except FileNotFoundError:
            raise StoreError(f"{self.path} is not the folder of a batch run: it has no {RUN_NAME}") from None
        except (OSError, msgspec.DecodeError) as error:
            raise StoreError(f"{self.path / RUN_NAME} cannot be read: {error}") from None
        return run

    def results(self) -> Iterator[AttemptResult]:
        """Every result, in the order of its file; torn lines are skipped."""
        for file in self.result_files():
            with open(file, "rb") as lines:
                for line in lines:
                    if (result := decode_result(line)) is not None:
                        yield result

    def result_files(self) -> list[Path]:
        if not self.path.is_dir():
            return []
        return sorted(each for each in self.path.iterdir() if _RESULTS.fullmatch(each.name))

    def task_folder(self, task_id: str) -> Path:
        return self.path / "runs" / folder_name(task_id)

    def read_progress(self) -> list[dict[str, Any]]:
        """What the drivers said last about their progress, one for each shard."""
        found = []
        for file in sorted(self.path.glob("progress*.json")):
            with contextlib.suppress(OSError, msgspec.DecodeError):
                found.append(msgspec.json.decode(file.read_bytes(), type=dict[str, Any]))
        return found


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

    def __init__(self, path: str | os.PathLike[str], part: Shard = Shard()) -> None:  # noqa: B008 - frozen
        super().__init__(path)
        self.part = part
        self._file = -1
        self._lock = -1
        self._size = 0
        self._waiting: list[tuple[bytes, asyncio.Future[None]]] = []
        self._writer: asyncio.Task[None] | None = None

    def open(self) -> None:
        """Create the folder, or take over an existing one; lock it. Raises `StoreError`."""
        try:
            self._prepare_folder()
            self._lock = os.open(self.path / f".lock{self.part.suffix}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            self._take_lock()
            name = f"results{self.part.suffix}.jsonl"
            self._file = os.open(self.path / name, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
            self._size = os.fstat(self._file).st_size
            if self._size and os.pread(self._file, 1, self._size - 1) != b"\n":
                self._write(b"\n")  # a torn last line must not swallow the next result
            fsync_folder(self.path)
        except OSError as error:
            self.close()
            raise self._error(error) from None
        except StoreError:
            self.close()
            raise

    def _prepare_folder(self) -> None:
        if self.path.is_dir() and not (self.path / RUN_NAME).exists():
            strangers = [each.name for each in self.path.iterdir() if not _is_ours(each.name)]
            if strangers:
                raise StoreError(
                    f"{self.path} is not empty and holds no batch run (it has {sorted(strangers)[0]}); "
                    "give --out a new folder"
                )
        self.path.mkdir(parents=True, exist_ok=True)

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
        """Replace a JSON file in the folder. Raises `StoreError`."""
        try:
            write_durably(self.path / name, msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")
        except OSError as error:
            raise self._error(error) from None

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
            return make_attempt_folder(self.task_folder(task_id))
        except OSError as error:
            raise self._error(error) from None

    def finished_in_folders(self, task_id: str) -> Iterator[AttemptResult]:
        """The results that workers left in the folders of a task. A driver that died may not have heard of them."""
        folder = self.task_folder(task_id)
        for name in sorted(_attempt_numbers(folder)):
            with contextlib.suppress(OSError):
                if (result := decode_result((folder / str(name) / RESULT_NAME).read_bytes())) is not None:
                    yield result

    def write_predictions(self, results: Iterable[AttemptResult]) -> None:
        """Write `preds.jsonl` for the SWE-bench evaluator. Raises `StoreError`."""
        lines = []
        for result in results:
            if not result.is_final:
                continue
            try:
                patch = (self.path / result.folder / "patch.diff").read_bytes().decode("utf-8", "replace")
            except OSError:
                patch = ""
            lines.append({"instance_id": result.id, "model_name_or_path": result.model, "model_patch": patch})
        try:
            write_durably(self.path / PREDS_NAME, b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
        except OSError as error:
            raise self._error(error) from None

    def close(self) -> None:
        for name in ("_file", "_lock"):
            if (descriptor := getattr(self, name)) >= 0:
                os.close(descriptor)
                setattr(self, name, -1)

    def _error(self, error: OSError) -> StoreError:
        return StoreError(
            f"{self.path} cannot be written: {error.strerror or error}. What is finished is kept; "
            "when there is room again, the same command goes on"
        )


def decode_result(line: bytes) -> AttemptResult | None:
    """Decode a line; None for a torn one."""
    try:
        return _result_decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def make_attempt_folder(task_folder: Path) -> tuple[int, Path]:
    """Create the folder of the next attempt. Raises `OSError`."""
    task_folder.mkdir(parents=True, exist_ok=True)
    number = max(_attempt_numbers(task_folder), default=0)
    while True:
        number += 1
        with contextlib.suppress(FileExistsError):
            (task_folder / str(number)).mkdir()
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
        with open(temporary, "wb") as file:
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
