"""Transcripts in a store of the program's own, such as a database, in place of files."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Protocol

from wieldy.agent.records import QuestionDeferred, TranscriptRecord, decode_record
from wieldy.agent.store import find_session
from wieldy.agent.transcript import Transcript, encode_record, fold, records
from wieldy.core.errors import SessionError


class Store(Protocol):
    """Keeps the records of sessions, each one line of JSON. Give it to a session as `Session(store=…)`.

    Records of a session are appended in order, and never changed. One process at a time may append to a session.
    """

    async def append(self, session_id: str, records: list[bytes]) -> None:
        """Keep these records after those that are there. Return when they are safe."""
        ...

    def read(self, session_id: str) -> AsyncIterator[bytes]:
        """Yield the records of a session in order; none for a session that does not exist."""
        ...

    async def list(self) -> list[str]:
        """The ids of all sessions."""
        ...


class StoredTranscript(Transcript):
    """A transcript whose records go to a store. Records are appended in the background; `flush` waits until they are safe."""

    def __init__(self, store: Store, session_id: str) -> None:
        super().__init__(None)
        self._store = store
        self._session_id = session_id
        self._unwritten: list[bytes] = []
        self._lock: asyncio.Lock | None = None
        self._writer: asyncio.Task[None] | None = None
        self._failure: SessionError | None = None

    def append(self, record: TranscriptRecord) -> None:
        """Hand a record to the store. Raises `SessionError` where the store has failed: a run that is lost must not go on."""
        if self._failure is not None:
            raise self._failure
        self._unwritten.append(encode_record(record))
        self.conversation.apply(record)
        if self._writer is None or self._writer.done():
            self._writer = asyncio.get_running_loop().create_task(self._drain())

    async def load_session(self, session_id: str) -> None:
        """Replace the conversation by that of a session in the store. Raises `SessionError` where there is none."""
        found: list[TranscriptRecord] = []
        try:
            async for line in self._store.read(session_id):
                record = decode_record(bytes(line))
                if record is not None:
                    found.append(record)
        except Exception as error:
            raise self._describe("read", error) from error
        if not found:
            raise SessionError(f"there is no session {session_id} in the store")
        self.conversation = fold(found)

    async def flush(self, *, results: bool = False) -> None:
        """Wait until the store has all records. Raises `SessionError`."""
        await self._drain()
        if self._failure is not None:
            raise self._failure

    async def aclose(self) -> None:
        """Flush. Raises `SessionError` where that fails and no error was raised before."""
        was_reported = self._failure is not None
        try:
            await self.flush()
        except SessionError:
            if not was_reported:
                raise

    async def _drain(self) -> None:
        if self._lock is None:
            self._lock = asyncio.Lock()
        async with self._lock:
            while self._unwritten and self._failure is None:
                batch, self._unwritten = self._unwritten, []
                try:
                    await self._store.append(self._session_id, batch)
                except Exception as error:
                    self._failure = self._describe("written", error)

    def _describe(self, verb: str, error: Exception) -> SessionError:
        text = " ".join(str(error).split()) or type(error).__name__
        return SessionError(f"the transcript of session {self._session_id} cannot be {verb}: {text}")


def open_transcript(store: Store | None, folder: Path, session_id: str, *, persist: bool) -> Transcript:
    """The transcript of a session: in a store, in a folder, or only in memory."""
    if store is None:
        return Transcript(folder if persist else None)
    if not persist:
        raise ValueError("give `store` or `persist=False`, not both")
    for method in ("append", "read", "list"):
        if not callable(getattr(store, method, None)):
            raise TypeError(f"`store` needs a method `{method}`: see wieldy.Store")
    return StoredTranscript(store, session_id)


class EarlierSession:
    """A session to resume, from its folder or from a store, until its transcript is read. Raises `SessionError`."""

    def __init__(self, session_id: str, store: Store | None) -> None:
        self._folder = find_session(session_id) if store is None else None
        self.id = session_id if self._folder is None else self._folder.name

    async def load(self, transcript: Transcript) -> None:
        """Read its records into a transcript. Raises `SessionError`."""
        if isinstance(transcript, StoredTranscript):
            await transcript.load_session(self.id)
        else:
            assert self._folder is not None
            await transcript.load(self._folder)

    def pending(self) -> list[QuestionDeferred]:
        """Its open questions, as far as they can be read without waiting: from a folder."""
        return [] if self._folder is None else fold(records(self._folder)).open_questions()
