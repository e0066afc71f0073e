"""The log of a session: one JSON record a line, appended and fsynced, never rewritten. Everything else is a fold over it.

A record is written before `append` returns, so that nothing is done of which a crash would leave no trace. The disk is waited
for in a thread, and by whoever asks to: what a power cut could take is never older than `PAUSE`.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from wieldy.core.failure import SessionError
from wieldy.core.threads import in_thread
from wieldy.engine.clean import clean
from wieldy.schema.dense import dense
from wieldy.session.payload import Payloads, has_long_strings

VERSION = 1
NAME = "transcript.jsonl"
PAUSE = (
    0.1  # seconds between two waits for the disk, unless somebody asks: a file is not written while it is being synced
)

_sync = getattr(os, "fdatasync", os.fsync)


class Transcript:
    """Appends records to the log in a folder, which is made with the first of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / NAME
        self._payloads = Payloads(folder)
        self._file = -1
        self._syncer: Syncer | None = None

    def append(self, record: dict[str, Any]) -> None:
        """Write a record. Raises `SessionError` when it cannot be written: a run nobody can resume must not go on."""
        try:
            if self._file < 0:
                self._open()
            if has_long_strings(record):
                record = self._payloads.outside(record)
            _write_all(self._file, _line(record))
        except OSError as error:
            raise self._unwritable(error) from None
        if self._syncer is not None:
            self._syncer.wanted()

    async def flushed(self) -> None:
        """Wait until everything appended so far is on disk."""
        if self._syncer is not None:
            try:
                await self._syncer.synced()
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
        self._file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._syncer = Syncer(self._file)
        size = os.fstat(self._file).st_size
        if size and os.pread(self._file, 1, size - 1) != b"\n":
            _write_all(self._file, b"\n")  # a torn last line must not swallow the next record

    def _unwritable(self, error: OSError) -> SessionError:
        return SessionError(f"the transcript {self.path} cannot be written: {error.strerror or error}")


class Syncer:
    """Brings what was written to disk from a thread of its own: many records, one wait."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._wake = threading.Condition()
        self._written = 0
        self._on_disk = 0
        self._stopped = False
        self._error: OSError | None = None
        self._waiters: list[tuple[int, asyncio.AbstractEventLoop, asyncio.Future[None]]] = []
        self._thread: threading.Thread | None = None

    def wanted(self) -> None:
        """Something was written."""
        self._written += 1
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="wieldy-transcript", daemon=True)
            self._thread.start()
        elif self._written - self._on_disk == 1:
            with self._wake:
                self._wake.notify()

    async def synced(self) -> None:
        """Wait until everything written before now is on disk. Raises `OSError`."""
        loop = asyncio.get_running_loop()
        with self._wake:
            if self._error is None and self._on_disk >= self._written:
                return
            done: asyncio.Future[None] = loop.create_future()
            self._waiters.append((self._written, loop, done))
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
                _sync(self._file)
            except OSError as error:
                self._error = error
            with self._wake:
                self._on_disk = upto
                due = [waiter for waiter in self._waiters if waiter[0] <= upto]
                self._waiters = [waiter for waiter in self._waiters if waiter[0] > upto]
            for _, loop, done in due:
                loop.call_soon_threadsafe(_settle, done, self._error)


def _settle(done: asyncio.Future[None], error: OSError | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)


def records(folder: Path) -> Iterator[dict[str, Any]]:
    """Every readable record of a session, in order; torn and foreign lines are passed over. Streams: memory is one line."""
    import msgspec

    decode = msgspec.json.Decoder(dict[str, Any]).decode
    payloads = Payloads(folder)
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
        return dense(record) + b"\n"
    except UnicodeEncodeError:
        return dense(cleaned(record)) + b"\n"


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
