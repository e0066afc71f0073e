"""The log of a session: one JSON record a line, appended and fsynced, never rewritten. Everything else is a fold over it.

A record is written before `append` returns, so that nothing is done of which a killed process would leave no trace. The disk is
waited for in a thread, and by whoever asks to: before something is done that lasts, and before the model hears of it. What a
power cut could take beside that is never older than a moment, and can be asked for again without harm.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from wieldy.core.errors import SessionError
from wieldy.core.threads import in_thread
from wieldy.engine.results import clean
from wieldy.schema.strict_json import encode_json

PAUSE = (
    0.1  # seconds between two waits for the disk, unless somebody asks: a file is not written while it is being synced
)

_sync = getattr(os, "fdatasync", os.fsync)


class FsyncThread:
    """Waits for the disk where others may not. `first` is done before every wait: what the log speaks of must be there."""

    def __init__(self, file: int, folder: Path, first: Callable[[], None]) -> None:
        self._file = file
        self._folder: Path | None = folder
        self._first = first
        self._wake = threading.Condition()
        self._written = 0
        self._on_disk = 0
        self._stopped = False
        self._error: OSError | None = None
        self._waiters: list[tuple[int, asyncio.AbstractEventLoop, asyncio.Future[None]]] = []
        self._thread: threading.Thread | None = None

    def wanted(self) -> int:
        """Something was written. Returns how often that was said by now."""
        self._written += 1
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="wieldy-transcript", daemon=True)
            self._thread.start()
        elif self._written - self._on_disk == 1:
            with self._wake:
                self._wake.notify()
        return self._written

    async def synced(self, upto: int | None = None) -> None:
        """Wait until everything written before now is on disk, or so much of it. Raises `OSError`."""
        loop = asyncio.get_running_loop()
        with self._wake:
            wanted = self._written if upto is None else upto
            if self._error is None and self._on_disk >= wanted:
                return
            done: asyncio.Future[None] = loop.create_future()
            self._waiters.append((wanted, loop, done))
            self._wake.notify()
        await done

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
                self._wake.wait_for(lambda: self._waiters or self._stopped, PAUSE)
                if self._stopped:
                    return
                upto = self._written
            try:
                self._bring_to_disk()
            except OSError as error:
                self._error = error
            with self._wake:
                self._on_disk = upto
                due = [waiter for waiter in self._waiters if waiter[0] <= upto]
                self._waiters = [waiter for waiter in self._waiters if waiter[0] > upto]
            for _, loop, done in due:
                loop.call_soon_threadsafe(_settle, done, self._error)

    def _bring_to_disk(self) -> None:
        self._first()
        _sync(self._file)
        if self._folder is not None:  # a file that is on disk and in no folder is lost all the same
            sync_folder(self._folder)
            sync_folder(self._folder.parent)
            self._folder = None


def sync_folder(folder: Path) -> None:
    """Bring the names in a folder to disk, where a folder can be opened for that."""
    try:
        opened = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(opened)
    except OSError:
        return
    finally:
        os.close(opened)


def _settle(done: asyncio.Future[None], error: OSError | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)


NAME_CLAIM = "owner"


class TranscriptLocked(SessionError):
    """Another process has the session open."""


def claim(file: int, folder: Path) -> None:
    """Lock an open log for this process, until it is closed or the process ends. Raises `Taken`.

    Where the system or its file system knows no such locks, nothing is locked.
    """
    try:
        import fcntl
    except ImportError:
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise TranscriptLocked(
            f"the session {folder.name} is open in {_owner(folder)}; wait until that ends, "
            "or go on with a copy: --fork-session"
        ) from None
    except OSError:
        return
    try:
        (folder / NAME_CLAIM).write_text(f"{os.getpid()}\n", encoding="utf-8")
    except OSError:
        return


def _owner(folder: Path) -> str:
    try:
        pid = int((folder / NAME_CLAIM).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return "another process"
    return "this very process" if pid == os.getpid() else f"another process (pid {pid})"


LONG = 65_536  # characters
LOST = "(this part of the transcript is lost)"


class PayloadStore:
    """The long strings of one session's records."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "payloads"
        self._unsynced: list[Path] = []

    def outside(self, value: Any) -> Any:
        """A value with its long strings replaced by the names of the files that hold them."""
        if isinstance(value, str):
            return self._stored(value) if len(value) > LONG else value
        if isinstance(value, dict):
            return {key: self.outside(item) for key, item in value.items()}
        return [self.outside(item) for item in value] if isinstance(value, list | tuple) else value

    def inside(self, value: Any) -> Any:
        """The value as it was."""
        if isinstance(value, dict):
            if value.keys() == {"$payload"}:
                return self._fetched(str(value["$payload"]))
            return {key: self.inside(item) for key, item in value.items()}
        return [self.inside(item) for item in value] if isinstance(value, list) else value

    def sync(self) -> None:
        """Bring what was stored since the last time to disk. Blocking: the log's own thread does it."""
        if not self._unsynced:
            return
        while self._unsynced:
            opened = os.open(self._unsynced.pop(), os.O_RDONLY)
            try:
                os.fsync(opened)
            finally:
                os.close(opened)
        sync_folder(self.folder)

    def _stored(self, text: str) -> dict[str, str]:
        data = text.encode("utf-8", "surrogatepass")
        name = _name_of(data)
        path = self.folder / name
        if not path.exists():
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            temporary = self.folder / f".{name}.{os.getpid()}"
            temporary.write_bytes(data)
            temporary.replace(path)
            self._unsynced.append(path)
        return {"$payload": name}

    def _fetched(self, name: str) -> str:
        if not name.isalnum():
            return LOST
        try:
            data = (self.folder / name).read_bytes()
        except OSError:
            return LOST
        return data.decode("utf-8", "replace") if _name_of(data) == name else LOST


def _name_of(data: bytes) -> str:
    import base64
    import hashlib

    return base64.b32encode(hashlib.blake2b(data, digest_size=20).digest()).decode().lower()


def has_long_strings(value: Any) -> bool:
    """Whether anything in a record is too long to be kept in it."""
    if isinstance(value, str):
        return len(value) > LONG
    if isinstance(value, dict):
        return any(map(has_long_strings, value.values()))
    return any(map(has_long_strings, value)) if isinstance(value, list | tuple) else False


VERSION = 1
NAME = "transcript.jsonl"


class Transcript:
    """Appends records to the log in a folder, which is made with the first of them. Only one at a time can have it open."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / NAME
        self._payloads = PayloadStore(folder)
        self._file = -1
        self._syncer: FsyncThread | None = None
        self._last_result = 0

    def append(self, record: dict[str, Any]) -> None:
        """Write a record. Raises `SessionError` when it cannot be written: a run nobody can resume must not go on."""
        try:
            if self._file < 0:
                self._open()
            line = _line(record)
            if len(line) > LONG and has_long_strings(record):
                line = _line(self._payloads.outside(record))
            _write_all(self._file, line)
        except OSError as error:
            raise self._unwritable(error) from None
        if self._syncer is not None:
            written = self._syncer.wanted()
            if record.get("type") == "result":
                self._last_result = written

    def claim(self) -> None:
        """Open the log before anything is appended, so that nobody else can. Raises `SessionError`."""
        try:
            if self._file < 0:
                self._open()
        except OSError as error:
            raise self._unwritable(error) from None

    async def flushed(self, *, results: bool = False) -> None:
        """Wait until everything appended so far is on disk, or the `results` among it."""
        if self._syncer is not None:
            try:
                await self._syncer.synced(self._last_result if results else None)
            except OSError as error:
                raise self._unwritable(error) from None

    async def aclose(self) -> None:
        """Bring the rest to disk and stop."""
        if self._syncer is None:
            return
        try:
            await self.flushed()
        finally:
            await in_thread(self._syncer.stop)
            os.close(self._file)
            self._file, self._syncer = -1, None

    def _open(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            claim(file, self.folder)
            size = os.fstat(file).st_size
            if size and os.pread(file, 1, size - 1) != b"\n":
                _write_all(file, b"\n")  # a torn last line must not swallow the next record
        except BaseException:
            os.close(file)
            raise
        self._file, self._syncer = file, FsyncThread(file, self.folder, self._payloads.sync)

    def _unwritable(self, error: OSError) -> SessionError:
        return SessionError(
            f"the transcript {self.path} cannot be written: {error.strerror or error}; WIELDY_HOME moves it, "
            "--no-session-persistence does without"
        )


def records(folder: Path) -> Iterator[dict[str, Any]]:
    """Every readable record of a session, in order; torn and foreign lines are passed over. Streams: memory is one line."""
    import msgspec

    decode = msgspec.json.Decoder(dict[str, Any]).decode
    payloads = PayloadStore(folder)
    try:
        with (folder / NAME).open("rb") as file:
            for line in file:
                try:
                    record = decode(line)
                except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                    continue
                yield payloads.inside(record) if b'"$payload"' in line else record
    except FileNotFoundError:
        return


def _line(record: dict[str, Any]) -> bytes:
    try:
        return encode_json(record) + b"\n"
    except UnicodeEncodeError:
        return encode_json(cleaned(record)) + b"\n"


def cleaned(value: Any) -> Any:
    """A value whose every text can be written down and sent."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, Mapping):
        return {cleaned(key): cleaned(item) for key, item in value.items()}
    return [cleaned(item) for item in value] if isinstance(value, list | tuple) else value


def _write_all(file: int, data: bytes) -> None:
    written = os.write(file, data)
    while written < len(data):
        data = data[written:]
        written = os.write(file, data)
