"""A run at a URL of an object store (S3, Google Cloud Storage, Azure, …), through fsspec.

Object stores can neither append nor lock, so nothing there is ever changed by two writers:

    URL/results/SPOOL/00000007.json   one object a result, written once
    URL/results-SPOOL.jsonl           all results of a spool in one object, written when a run ends
    URL/runs/ID/N-SPOOL/              the files of attempt N at a task
    URL/run.json, progress.json, preds.jsonl

A spool is a folder on the disk of a driver, with a random name of its own. A result is brought to that disk first, then the
files of the attempt are uploaded, then the result, and only then is it reported. What a killed driver had not uploaded is
uploaded when the next one starts on the same machine. A driver without that spool goes by what is listed at the URL.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import secrets
import shutil
import socket
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec

from wieldy.core.state_dirs import make_private_folder
from wieldy.core.threads import in_thread
from wieldy.faces.batch.store import (
    PATCH_NAME,
    RESULT_NAME,
    RUN_NAME,
    AttemptResult,
    ResultStore,
    RunFolder,
    Shard,
    StoredRun,
    StoreError,
    decode_result,
    write_durably,
)

SPOOL_NAME = "spool"
OTHER_DRIVER_SECONDS = 60.0
"""How long after its last sign of life another driver counts as alive."""
RETRY_SECONDS = (1.0, 3.0, 10.0, 30.0)
CLOSE_SECONDS = 10.0
"""How long an interrupted driver continues to upload; the next one uploads the rest."""
NOT_UPLOADED = frozenset({RESULT_NAME, "owner"})
"""What only the machine of an attempt needs: the result for a driver that died, and the lock of the session."""
OBJECT_STORES = frozenset({"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oci", "oss", "r2"})
"""File systems without folders, in which creating a folder may create a bucket."""

_OBJECT = re.compile(r"results/([0-9a-f]+)/(\d{8})\.json")
_BY_START = attrgetter("started", "id", "sample", "attempt")  # the same order in every listing
_WHOLE = re.compile(r"results-([0-9a-f]+)\.jsonl")


def is_url(location: str) -> bool:
    """Whether a place is not on a file system of this machine."""
    return "://" in location and location.partition("://")[0] not in ("file", "local")


def local_path(location: str) -> str:
    """The path of a `file:` or `local:` URL, which is an ordinary folder; anything else as it is."""
    scheme, separator, path = location.partition("://")
    return path if separator and scheme in ("file", "local") else location


def find_run(location: str) -> StoredRun:
    """The run in a folder or at a URL, for reading."""
    return RemoteRun(location) if is_url(location) else RunFolder(local_path(location))


class StoreUnreachable(StoreError):
    """A failure that may pass, as one of the network or of an overloaded server."""


class Bucket:
    """The objects below a URL. Every failure is a `StoreError` of one line.

    What may pass is tried again, and the thread sleeps meanwhile; without `retry`, that raises `StoreUnreachable`.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._fs, self._base = self._connect(url)

    def _connect(self, url: str) -> tuple[Any, str]:
        try:
            import fsspec
        except ImportError:
            raise StoreError(f"{url} is a URL, which needs the extra `fsspec`: pip install 'wieldy[fsspec]'") from None
        if url.startswith("memory://"):
            raise StoreError(f"{url} would be lost with this process; give --out a folder or an object store")
        try:
            fs, base = fsspec.core.url_to_fs(url, use_listings_cache=False)
        except Exception as error:  # a protocol whose package is missing, for one
            raise self._error(error) from None
        return fs, base.rstrip("/")

    def check(self) -> None:
        """Look at the place once, so that a wrong name, key or address is reported at once. Raises `StoreError`."""
        try:
            self._fs.ls(self._base, detail=False)
        except FileNotFoundError:
            pass  # nothing has been written there
        except Exception as error:
            raise self._error(error) from None

    def list_all(self, prefix: str) -> list[str]:
        """The names of all objects below a prefix."""
        names = self._call(lambda: self._fs.find(f"{self._base}/{prefix}"), default=())
        start = len(self._base) + 1
        return [name[start:] for name in names]

    def list_top(self) -> list[str]:
        """Names at the top, without what is below them."""
        names = self._call(lambda: self._fs.ls(self._base, detail=False), default=())
        return [os.path.basename(name.rstrip("/")) for name in names if name.rstrip("/") != self._base]

    def read(self, name: str) -> bytes | None:
        """The contents of an object; None if there is none."""
        data: bytes | None = self._call(lambda: self._fs.cat_file(f"{self._base}/{name}"), default=None)
        return data

    def read_many(self, names: Sequence[str]) -> dict[str, bytes]:
        """The contents of those objects that exist."""
        contents: dict[str, bytes] = {}
        self._call(partial(self._read_into, contents, list(names)))
        return contents

    def _read_into(self, contents: dict[str, bytes], names: list[str]) -> None:
        """Read objects, many at once where the file system can. Removes those from `names` that need no other try."""
        paths = [f"{self._base}/{name}" for name in names]
        failures: dict[str, Exception] = {}
        for name, data in zip(list(names), self._fs.cat_ranges(paths, None, None, on_error="return"), strict=True):
            if isinstance(data, bytes):
                contents[name] = data
            elif not isinstance(data, FileNotFoundError):
                failures[name] = data
        names[:] = failures
        if failures:
            raise next(iter(failures.values()))

    def write(self, name: str, data: bytes, *, retry: bool = True) -> None:
        path = f"{self._base}/{name}"
        self._call(partial(self._create, path, partial(self._fs.pipe_file, path, data)), retry=retry)

    def upload(self, folder: Path, prefix: str, *, retry: bool = True) -> None:
        """Upload the files of a folder, those of its subfolders too."""
        for file in sorted(folder.rglob("*")):
            if file.is_file() and file.name not in NOT_UPLOADED:
                path = f"{self._base}/{prefix}/{file.relative_to(folder).as_posix()}"
                self._call(partial(self._create, path, partial(self._fs.put_file, str(file), path)), retry=retry)

    def _create(self, path: str, write: Callable[[], object]) -> None:
        """Write an object, and the folders above it where the file system has any. A bucket is never created."""
        try:
            write()
        except FileNotFoundError as error:
            protocols = (self._fs.protocol,) if isinstance(self._fs.protocol, str) else self._fs.protocol
            if not OBJECT_STORES.isdisjoint(protocols):
                raise self._error(error) from None
            self._fs.makedirs(os.path.dirname(path), exist_ok=True)
            write()

    def _call(self, function: Callable[[], Any], default: Any = None, *, retry: bool = True) -> Any:
        """What a function returns; the default if there is no such object."""
        delays = iter(RETRY_SECONDS if retry else ())
        while True:
            try:
                return function()
            except FileNotFoundError:
                return default
            except StoreError:
                raise
            except Exception as error:
                if not _may_pass(error):
                    raise self._error(error) from None
                if (delay := next(delays, None)) is None:
                    raise StoreUnreachable(str(self._error(error))) from None
            time.sleep(delay)

    def _error(self, error: Exception) -> StoreError:
        return StoreError(
            f"{self.url} cannot be used: {' '.join(str(error).split())[:300] or type(error).__name__}. "
            "What is finished is kept; the same command continues"
        )


def _may_pass(error: Exception) -> bool:
    """Whether a failure looks like one of the network or of an overloaded server, not like a wrong key or name."""
    if isinstance(error, PermissionError | ValueError | TypeError | NotImplementedError):
        return False
    return not any("Credential" in cls.__name__ or "Authentication" in cls.__name__ for cls in type(error).__mro__)


class RemoteRun:
    """The run at a URL, for reading."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.bucket = Bucket(url)

    @property
    def location(self) -> str:
        return self._url

    def read_run(self) -> dict[str, Any]:
        self.bucket.check()
        if (data := self.bucket.read(RUN_NAME)) is None:
            raise StoreError(f"{self.location} holds no batch run: it has no {RUN_NAME}")
        try:
            run: dict[str, Any] = msgspec.json.decode(data, type=dict)
        except msgspec.DecodeError as error:
            raise StoreError(f"{self.location}/{RUN_NAME} cannot be read: {error}") from None
        return run

    def results(self) -> Iterator[AttemptResult]:
        spools = read_spools(self.bucket)
        return iter(sorted((result for each in spools.values() for result in each.values()), key=_BY_START))

    def read_progress(self) -> dict[str, dict[str, Any]]:
        names = [name for name in self.bucket.list_top() if re.fullmatch(r"progress.*\.json", name)]
        found = {}
        for name, data in sorted(self.bucket.read_many(names).items()):
            with contextlib.suppress(msgspec.DecodeError):
                found[name] = msgspec.json.decode(data, type=dict[str, Any])
        return found

    def write_file(self, name: str, data: bytes) -> str:
        self.bucket.write(name, data)
        return f"{self.location}/{name}"


def read_spools(bucket: Bucket) -> dict[str, dict[int, AttemptResult]]:
    """The results of every spool by their numbers. Raises `StoreError`."""
    whole = [name for name in bucket.list_top() if _WHOLE.fullmatch(name)]
    spools: dict[str, dict[int, AttemptResult]] = {}
    for name, data in bucket.read_many(whole).items():
        numbered = spools[name.removeprefix("results-").removesuffix(".jsonl")] = {}
        for number, line in enumerate(data.splitlines(), 1):
            if (result := decode_result(line)) is None:
                break  # torn: what follows is read one by one
            numbered[number] = result
    single = []
    for name in bucket.list_all("results"):
        match = _OBJECT.fullmatch(name)
        if match is not None and int(match[2]) not in spools.get(match[1], ()):
            single.append(name)
    for name, data in bucket.read_many(single).items():
        match = _OBJECT.fullmatch(name)
        if match is not None and (result := decode_result(data)) is not None:
            spools.setdefault(match[1], {})[int(match[2])] = result
    return spools


class RemoteStore(RemoteRun, ResultStore):
    """The run at a URL, for a driver. `path` is the spool: a store of its own, on the disk of this machine."""

    progress_seconds = 10.0

    def __init__(self, url: str, spool: Path, part: Shard = Shard()) -> None:  # noqa: B008 - frozen
        RemoteRun.__init__(self, url)
        ResultStore.__init__(self, spool, part)
        self._spool_id = ""
        self._known: dict[str, dict[int, AttemptResult]] | None = None
        self._attempts: dict[str, int] = {}
        self._next = 1
        self._uploads: set[asyncio.Task[None]] = set()
        self._closing = asyncio.Event()

    def _load(self) -> None:
        """Upload what a killed driver left in the spool."""
        self._check_bucket()
        spools = self._known = read_spools(self.bucket)
        spooled = list(RunFolder(self.path).results())
        self._spool_id = self._read_spool_id()
        if len(spooled) < max(spools.get(self._spool_id, ()), default=0):  # it has lost some: their numbers are taken
            self._spool_id = self._make_spool_id()
        own = spools.setdefault(self._spool_id, {})
        for number, result in enumerate(spooled, 1):
            if number not in own:
                self._upload(number, result)
            own[number] = result
        self._next = len(spooled) + 1
        if spooled:
            self._write_whole()
        for result in self.results():
            self._note_attempt(result)

    def _prepare_folder(self) -> None:
        make_private_folder(self.path)  # below the folder for copies, where nothing else is

    def _check_bucket(self) -> None:
        self.bucket.check()
        names = self.bucket.list_top()
        strangers = [name for name in names if not _is_of_a_run(name)]
        if strangers and RUN_NAME not in names:
            raise StoreError(
                f"{self.location} is not empty and holds no batch run (it has {min(strangers)}); give --out a new place"
            )
        if (state := self.read_progress().get(self.progress_name)) is not None:
            age = time.time() - state.get("at", 0.0)
            is_elsewhere = state.get("host") != socket.gethostname()
            if is_elsewhere and not state.get("over") and abs(age) < OTHER_DRIVER_SECONDS:  # clocks differ
                raise StoreError(
                    f"another `wieldy batch` writes to {self.location} (pid {state.get('pid')} on {state.get('host')}); "
                    f"follow it with `wieldy batch watch`, or if it has died try again in {OTHER_DRIVER_SECONDS:g} s"
                )

    def _read_spool_id(self) -> str:
        """The name of this spool, which no other has; made once."""
        with contextlib.suppress(FileNotFoundError):
            name = (self.path / SPOOL_NAME).read_text(encoding="ascii", errors="replace").strip()
            if re.fullmatch(r"[0-9a-f]+", name):
                return name
        return self._make_spool_id()

    def _make_spool_id(self) -> str:
        name = secrets.token_hex(4)
        write_durably(self.path / SPOOL_NAME, name.encode())
        return name

    def results(self) -> Iterator[AttemptResult]:
        if self._known is None:
            return super().results()
        return iter(sorted((each for spool in self._known.values() for each in spool.values()), key=_BY_START))

    def _write_progress(self, state: Mapping[str, Any]) -> None:
        with contextlib.suppress(StoreError):
            self.bucket.write(self.progress_name, msgspec.json.encode(state), retry=False)

    def _last_attempt(self, task_id: str) -> int:
        return self._attempts.get(task_id, 0)

    def result_folder(self, folder: Path) -> str:
        return f"runs/{folder.parent.name}/{folder.name}-{self._spool_id}"

    async def append(self, result: AttemptResult) -> None:
        """Append a result; returns when it is on the disk and at the URL. Raises `StoreError`."""
        number, self._next = self._next, self._next + 1
        await super().append(result)
        upload = asyncio.get_running_loop().create_task(self._keep_uploading(number, result))
        self._uploads.add(upload)
        upload.add_done_callback(self._forget_upload)
        await asyncio.shield(upload)
        assert self._known is not None
        self._known[self._spool_id][number] = result
        self._note_attempt(result)

    async def _keep_uploading(self, number: int, result: AttemptResult) -> None:
        """Upload an attempt, again while that fails in a way that may pass and the store is not being closed."""
        delays = iter(RETRY_SECONDS)
        while True:
            try:
                await in_thread(self._upload, number, result, retry=False)
                return
            except StoreUnreachable:
                if (delay := next(delays, None)) is None:
                    raise
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._closing.wait(), delay)
                if self._closing.is_set():
                    raise

    def _forget_upload(self, upload: asyncio.Task[None]) -> None:
        self._uploads.discard(upload)
        if not upload.cancelled():
            upload.exception()  # retrieved: the task that awaited it may be cancelled

    def _note_attempt(self, result: AttemptResult) -> None:
        self._attempts[result.id] = max(self._attempts.get(result.id, 0), result.attempt)

    def _upload(self, number: int, result: AttemptResult, *, retry: bool = True) -> None:
        """Upload the files of an attempt, then its result; then the spool needs the files no longer."""
        folder = self.task_folder(result.id) / str(result.attempt)
        if result.folder and folder.is_dir():
            self.bucket.upload(folder, result.folder, retry=retry)
        self.bucket.write(f"results/{self._spool_id}/{number:08d}.json", msgspec.json.encode(result), retry=retry)
        if result.folder:
            shutil.rmtree(folder, ignore_errors=True)

    def _write_whole(self) -> None:
        """Write the results of this spool as one object, so that they need not be fetched one by one."""
        assert self._known is not None
        own = self._known[self._spool_id]
        if own and sorted(own) == list(range(1, len(own) + 1)):
            lines = [msgspec.json.encode(own[number]) + b"\n" for number in range(1, len(own) + 1)]
            self.bucket.write(f"results-{self._spool_id}.jsonl", b"".join(lines), retry=False)

    def write_predictions(self, identities: Collection[str]) -> None:
        own = self._known
        try:
            self._known = None  # other shards have added to the run
            super().write_predictions(identities)
        finally:
            self._known = own

    def read_patches(self, results: Sequence[AttemptResult]) -> list[str]:
        names = [f"{result.folder}/{PATCH_NAME}" for result in results]
        found = self.bucket.read_many(names)
        return [found.get(name, b"").decode("utf-8", "replace") for name in names]

    async def aclose(self, state: Mapping[str, Any], *, complete: bool, seconds: float = CLOSE_SECONDS) -> None:
        """Let uploads end, and write the results as one object. What cannot be uploaded stays in the spool.

        Unless the run is complete, this takes `seconds` at most.
        """
        self._closing.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None if complete else seconds):
                if self._uploads:
                    await asyncio.wait(self._uploads)
                with contextlib.suppress(StoreError):
                    await in_thread(self._write_whole)
                    if complete:
                        await in_thread(shutil.rmtree, self.path / "runs", ignore_errors=True)
                await super().aclose(state, complete=complete)


def _is_of_a_run(name: str) -> bool:
    return (
        name in (RUN_NAME, "results", "runs") or bool(_WHOLE.fullmatch(name)) or name.startswith(("progress", "preds"))
    )


def open_location(location: str, spool: Path, part: Shard) -> ResultStore:
    """The store of a folder or a URL, for a driver; it has yet to be opened."""
    return RemoteStore(location, spool, part) if is_url(location) else ResultStore(local_path(location), part)
