"""The transcript of a session: an append-only log of records, one JSON object a line, and the conversation they make.

A record is written before `append` returns, so that a killed process loses nothing that it did. A thread brings it to disk;
`flush` waits for that, before something lasting is done and before the model is told of it.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from wieldy.agent.conversation import Conversation, fold
from wieldy.agent.records import ToolResultRecord, TranscriptRecord, convert_record, decode_record
from wieldy.core.errors import SessionError
from wieldy.core.threads import in_thread
from wieldy.engine.results import clean

NAME = "transcript.jsonl"
OWNER_NAME = "owner"
PAYLOAD_CHARS = 65_536  # longer strings are kept in files of their own
PAYLOAD_LOST = "(this part of the transcript is lost)"
FSYNC_SECONDS = 0.1  # between two fsyncs that nobody waits for

_fdatasync = getattr(os, "fdatasync", os.fsync)


class TranscriptLocked(SessionError):
    """Another process has the session open."""


class Transcript:
    """Writes records to a log and folds them into `conversation`.

    The log and its folder are made with the first record, and one process at a time can open it. Without a folder,
    nothing is written.
    """

    def __init__(self, folder: Path | None, conversation: Conversation | None = None) -> None:
        self.conversation = Conversation() if conversation is None else conversation
        self.path = None if folder is None else folder / NAME
        self._payloads = None if folder is None else PayloadStore(folder)
        self._file = -1
        self._fsyncs: FsyncThread | None = None
        self._last_result = 0

    def append(self, record: TranscriptRecord) -> None:
        """Write a record. Raises `SessionError` when that fails: a run that cannot be resumed must not go on."""
        if self._payloads is not None:
            self._write(record, self._payloads)
        self.conversation.apply(record)

    def _write(self, record: TranscriptRecord, payloads: PayloadStore) -> None:
        if self._fsyncs is None:
            self.open()
        assert self._fsyncs is not None
        try:
            line = _encode(record)
            if len(line) > PAYLOAD_CHARS:
                line = _encode(payloads.extract(msgspec.to_builtins(record)))
            _write_all(self._file, line)
        except OSError as error:
            raise self._write_error(error) from None
        count = self._fsyncs.note_write()
        if isinstance(record, ToolResultRecord):
            self._last_result = count

    async def load(self, folder: Path) -> None:
        """Replace the conversation by that of the log in a folder."""
        if self.path == folder / NAME:
            self.open()  # before it is read, so that no other process can add to it meanwhile
        self.conversation = await in_thread(lambda: fold(records(folder)))

    def open(self) -> None:
        """Open and lock the log. Raises `SessionError`."""
        if self._fsyncs is not None or self.path is None or self._payloads is None:
            return
        folder = self.path.parent
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                _lock(file, folder)
                size = os.fstat(file).st_size
                if size and os.pread(file, 1, size - 1) != b"\n":
                    _write_all(file, b"\n")  # a torn last line must not swallow the next record
            except BaseException:
                os.close(file)
                raise
        except OSError as error:
            raise self._write_error(error) from None
        self._file, self._fsyncs = file, FsyncThread(file, folder, self._payloads.fsync)

    async def flush(self, *, results: bool = False) -> None:
        """Wait until all records are on disk, or the last tool result and those before it. Raises `SessionError`."""
        if self._fsyncs is not None:
            try:
                await self._fsyncs.wait(self._last_result if results else None)
            except OSError as error:
                raise self._write_error(error) from None

    async def aclose(self) -> None:
        """Flush and close."""
        if self._fsyncs is None:
            return
        try:
            await self.flush()
        finally:
            await in_thread(self._fsyncs.stop)
            os.close(self._file)
            self._file, self._fsyncs = -1, None

    def _write_error(self, error: OSError) -> SessionError:
        return SessionError(
            f"the transcript {self.path} cannot be written: {error.strerror or error}; WIELDY_HOME moves it, "
            "--no-session-persistence does without"
        )


def records(folder: Path) -> Iterator[TranscriptRecord]:
    """The records of a session in order. Torn lines and records of unknown type are skipped."""
    payloads = PayloadStore(folder)
    for line in _lines(folder):
        if b'"$payload"' in line:
            record = next((convert_record(payloads.restore(data)) for data in _decode((line,))), None)
        else:
            record = decode_record(line)
        if record is not None:
            yield record


def raw_records(folder: Path) -> Iterator[dict[str, Any]]:
    """The records of a session as JSON objects, those of unknown type too."""
    payloads = PayloadStore(folder)
    for record in _decode(_lines(folder)):
        yield payloads.restore(record)


def _decode(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    decoder = msgspec.json.Decoder(dict[str, Any])
    for line in lines:
        try:
            yield decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue


def _lines(folder: Path) -> Iterator[bytes]:
    try:
        with (folder / NAME).open("rb") as file:
            yield from file
    except FileNotFoundError:
        return


def _encode(record: Any) -> bytes:
    try:
        return msgspec.json.encode(record) + b"\n"
    except UnicodeEncodeError:
        return msgspec.json.encode(clean_texts(msgspec.to_builtins(record))) + b"\n"


def clean_texts(value: Any) -> Any:
    """A JSON value whose strings can all be encoded and sent."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, Mapping):
        return {clean_texts(key): clean_texts(item) for key, item in value.items()}
    return [clean_texts(item) for item in value] if isinstance(value, list | tuple) else value


def _write_all(file: int, data: bytes) -> None:
    written = os.write(file, data)
    while written < len(data):
        data = data[written:]
        written = os.write(file, data)


def _lock(file: int, folder: Path) -> None:
    """Lock an open log until it is closed. Raises `TranscriptLocked`; does nothing where there are no such locks."""
    try:
        import fcntl
    except ImportError:
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise TranscriptLocked(
            f"the session {folder.name} is open in {_lock_owner(folder)}; wait until that ends, "
            "or go on with a copy: --fork-session"
        ) from None
    except OSError:
        return
    try:
        (folder / OWNER_NAME).write_text(f"{os.getpid()}\n", encoding="utf-8")
    except OSError:
        return


def _lock_owner(folder: Path) -> str:
    try:
        pid = int((folder / OWNER_NAME).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return "another process"
    return "this process" if pid == os.getpid() else f"another process (pid {pid})"


class PayloadStore:
    """Keeps the long strings of a session's records in files named by their hash."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "payloads"
        self._unsynced: list[Path] = []

    def extract(self, value: Any) -> Any:
        """Replace long strings in a JSON value by references to files."""
        if isinstance(value, str):
            return self._store(value) if len(value) > PAYLOAD_CHARS else value
        if isinstance(value, dict):
            return {key: self.extract(item) for key, item in value.items()}
        return [self.extract(item) for item in value] if isinstance(value, list | tuple) else value

    def restore(self, value: Any) -> Any:
        """Replace references by the strings."""
        if isinstance(value, dict):
            if value.keys() == {"$payload"}:
                return self._load(str(value["$payload"]))
            return {key: self.restore(item) for key, item in value.items()}
        return [self.restore(item) for item in value] if isinstance(value, list) else value

    def fsync(self) -> None:
        """Bring new files to disk."""
        if not self._unsynced:
            return
        while self._unsynced:
            file = os.open(self._unsynced.pop(), os.O_RDONLY)
            try:
                os.fsync(file)
            finally:
                os.close(file)
        _fsync_folder(self.folder)

    def _store(self, text: str) -> dict[str, str]:
        data = text.encode("utf-8", "surrogatepass")
        name = _hash_name(data)
        path = self.folder / name
        if not path.exists():
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            temporary = self.folder / f".{name}.{os.getpid()}"
            temporary.write_bytes(data)
            temporary.replace(path)
            self._unsynced.append(path)
        return {"$payload": name}

    def _load(self, name: str) -> str:
        if not name.isalnum():
            return PAYLOAD_LOST
        try:
            data = (self.folder / name).read_bytes()
        except OSError:
            return PAYLOAD_LOST
        return data.decode("utf-8", "replace") if _hash_name(data) == name else PAYLOAD_LOST


def _hash_name(data: bytes) -> str:
    import base64
    import hashlib

    return base64.b32encode(hashlib.blake2b(data, digest_size=20).digest()).decode().lower()


class FsyncThread:
    """Brings a file to disk in a thread. `before` runs before each fsync: payloads must be on disk before their record."""

    def __init__(self, file: int, folder: Path, before: Callable[[], None]) -> None:
        self._file = file
        self._new_folder: Path | None = folder
        self._before = before
        self._wake = threading.Condition()
        self._written = 0
        self._on_disk = 0
        self._stopped = False
        self._error: OSError | None = None
        self._waiters: list[tuple[int, asyncio.AbstractEventLoop, asyncio.Future[None]]] = []
        self._thread: threading.Thread | None = None

    def note_write(self) -> int:
        """Count a write, to be brought to disk soon; returns the count."""
        self._written += 1
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="wieldy-transcript", daemon=True)
            self._thread.start()
        elif self._written - self._on_disk == 1:
            with self._wake:
                self._wake.notify()
        return self._written

    async def wait(self, count: int | None = None) -> None:
        """Wait until all writes, or so many of them, are on disk. Raises `OSError`."""
        loop = asyncio.get_running_loop()
        with self._wake:
            needed = self._written if count is None else count
            if self._error is None and self._on_disk >= needed:
                return
            future: asyncio.Future[None] = loop.create_future()
            self._waiters.append((needed, loop, future))
            self._wake.notify()
        await future

    def stop(self) -> None:
        """End the thread."""
        with self._wake:
            self._stopped = True
            self._wake.notify()
        if self._thread is not None:
            self._thread.join()

    def _work(self) -> None:
        while True:
            with self._wake:
                while self._on_disk >= self._written and not self._waiters and not self._stopped:
                    self._wake.wait()
                self._wake.wait_for(lambda: self._waiters or self._stopped, FSYNC_SECONDS)
                if self._stopped:
                    return
                count = self._written
            try:
                self._fsync()
            except OSError as error:
                self._error = error
            with self._wake:
                self._on_disk = count
                due = [waiter for waiter in self._waiters if waiter[0] <= count]
                self._waiters = [waiter for waiter in self._waiters if waiter[0] > count]
            for _, loop, future in due:
                loop.call_soon_threadsafe(_resolve, future, self._error)

    def _fsync(self) -> None:
        self._before()
        _fdatasync(self._file)
        if self._new_folder is not None:
            _fsync_folder(self._new_folder)
            _fsync_folder(self._new_folder.parent)
            self._new_folder = None


def _resolve(future: asyncio.Future[None], error: OSError | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)


def _fsync_folder(folder: Path) -> None:
    """Bring the names in a folder to disk, where the system can do that."""
    try:
        file = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(file)
    except OSError:
        return
    finally:
        os.close(file)
