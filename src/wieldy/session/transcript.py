"""The log of a session: one JSON record a line, appended and fsynced, never rewritten. Everything else is a fold over it."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import queue
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import msgspec

from wieldy.core.failure import SessionError

BIG = 16_384  # characters of a string kept beside the log instead of in it
VERSION = 1


class Transcript:
    """Appends records from a thread of its own, so that nobody waits for the disk but who asks to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "transcript.jsonl"
        self._inbox: queue.SimpleQueue[tuple[dict[str, Any] | None, Future[None]]] | None = None
        self._last: Future[None] | None = None
        self._thread: threading.Thread | None = None

    def append(self, record: dict[str, Any]) -> Future[None]:
        """Queue a record. The future is done when it is on disk."""
        if self._inbox is None:
            self._inbox = queue.SimpleQueue()
            self._thread = threading.Thread(
                target=self._write, args=(self._inbox,), name="wieldy-transcript", daemon=True
            )
            self._thread.start()
        self._last = Future()
        self._inbox.put((record, self._last))
        return self._last

    async def flushed(self) -> None:
        """Wait until everything appended so far is on disk."""
        if self._last is not None:
            try:
                await asyncio.wrap_future(self._last)
            except OSError as error:
                raise SessionError(f"the transcript {self.path} cannot be written: {error.strerror}") from None

    async def aclose(self) -> None:
        """Write the rest and stop."""
        if self._inbox is None or self._thread is None:
            return
        done: Future[None] = Future()
        self._inbox.put((None, done))
        await asyncio.wrap_future(done)
        await asyncio.to_thread(self._thread.join)
        self._inbox = self._thread = None

    def _write(self, inbox: queue.SimpleQueue[tuple[dict[str, Any] | None, Future[None]]]) -> None:
        file = -1
        while True:
            batch = [inbox.get()]
            while not inbox.empty():
                batch.append(inbox.get())
            try:
                if file < 0 and any(record is not None for record, _ in batch):
                    file = self._open()
                lines = [self._line(record) for record, _ in batch if record is not None]
                if lines:
                    os.write(file, b"".join(lines))
                    os.fsync(file)
            except OSError as error:
                for _, written in batch:
                    written.set_exception(error)
            else:
                for _, written in batch:
                    written.set_result(None)
            if any(record is None for record, _ in batch):
                if file >= 0:
                    os.close(file)
                return

    def _open(self) -> int:
        self.folder.mkdir(parents=True, exist_ok=True)
        file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        size = os.fstat(file).st_size
        if size and os.pread(file, 1, size - 1) != b"\n":
            os.write(file, b"\n")  # a torn last line must not swallow the next record
        return file

    def _line(self, record: dict[str, Any]) -> bytes:
        return msgspec.json.encode(_outside(record, self.folder / "payloads")) + b"\n"


def records(folder: Path) -> Iterator[dict[str, Any]]:
    """Every readable record of a session, in order; torn and foreign lines are passed over. Streams: memory is one line."""
    path = folder / "transcript.jsonl"
    decode = msgspec.json.Decoder(dict[str, Any]).decode
    try:
        with path.open("rb") as file:
            for line in file:
                try:
                    record = decode(line)
                except msgspec.DecodeError:
                    continue
                yield _inside(record, folder / "payloads")
    except FileNotFoundError:
        return


def _outside(value: Any, payloads: Path) -> Any:
    """The value with its long strings written to files of their own, each once."""
    if isinstance(value, str):
        return _stored(value, payloads) if len(value) > BIG else value
    if isinstance(value, dict):
        return {key: _outside(item, payloads) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_outside(item, payloads) for item in value]
    return value


def _stored(text: str, payloads: Path) -> dict[str, str]:
    data = text.encode("utf-8", "surrogatepass")
    name = base64.b32encode(hashlib.blake2b(data, digest_size=20).digest()).decode().lower()
    path = payloads / name
    if not path.exists():
        payloads.mkdir(parents=True, exist_ok=True)
        temporary = payloads / f".{name}.{os.getpid()}"
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    return {"$payload": name}


def _inside(value: Any, payloads: Path) -> Any:
    if isinstance(value, dict):
        if value.keys() == {"$payload"}:
            return _fetched(payloads / str(value["$payload"]))
        return {key: _inside(item, payloads) for key, item in value.items()}
    if isinstance(value, list):
        return [_inside(item, payloads) for item in value]
    return value


def _fetched(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8", "replace")
    except OSError:
        return "(this part of the transcript is lost)"
