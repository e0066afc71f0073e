"""The log of a session: one JSON record a line, appended and fsynced, never rewritten. Everything else is a fold over it.

A record is written before `append` returns, so that nothing is done of which a killed process would leave no trace. The disk is
waited for in a thread, and by whoever asks to: before something is done that lasts, and before the model hears of it. What a
power cut could take beside that is never older than a moment, and can be asked for again without harm.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from wieldy.core.failure import SessionError
from wieldy.core.threads import in_thread
from wieldy.engine.clean import clean
from wieldy.schema.dense import dense
from wieldy.session.claim import claim
from wieldy.session.payload import LONG, Payloads, has_long_strings
from wieldy.session.syncer import Syncer

VERSION = 1
NAME = "transcript.jsonl"


class Transcript:
    """Appends records to the log in a folder, which is made with the first of them. Only one at a time can have it open."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / NAME
        self._payloads = Payloads(folder)
        self._file = -1
        self._syncer: Syncer | None = None
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
        self._file, self._syncer = file, Syncer(file, self.folder, self._payloads.sync)

    def _unwritable(self, error: OSError) -> SessionError:
        return SessionError(
            f"the transcript {self.path} cannot be written: {error.strerror or error}; WIELDY_HOME moves it, "
            "--no-session-persistence does without"
        )


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
