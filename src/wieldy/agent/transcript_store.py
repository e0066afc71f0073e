"""Transcripts in a store of the program's own, such as a database, in place of files."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Protocol

from wieldy.agent.records import QuestionDeferred, TranscriptRecord, decode_record
from wieldy.agent.store import find_session
from wieldy.agent.transcript import Conversation, OnAppend, Transcript, encode_record, fold, records
from wieldy.core.errors import SessionError


class Store(Protocol):
    """Keeps the records of sessions, each one line of JSON. Give it to a session as `Session(store=…)`.

    Records of a session are appended in order, and never changed. One process at a time may append to a session. The
    transcript of a subagent has an id of its own: that of the session, a dot, and that of the subagent.
    """

    async def append(self, session_id: str, records: list[bytes]) -> None:
        """Keep these records after those that are there. Return when they are safe."""
        ...

    def read(self, session_id: str) -> AsyncIterator[bytes] | Awaitable[AsyncIterator[bytes]]:
        """Yield the records of a session in order; none for a session that does not exist."""
        ...

    async def list(self) -> list[str]:
        """The ids of all sessions."""
        ...


class StoredTranscript(Transcript):
    """A transcript whose records go to a store. Records are appended in the background; `flush` waits until they are safe."""

    def __init__(
        self,
        store: Store,
        session_id: str,
        agent_id: str = "",
        conversation: Conversation | None = None,
        *,
        on_append: OnAppend | None = None,
    ) -> None:
        super().__init__(None, conversation, on_append=on_append)
        self._store = store
        self._session_id = session_id
        self._id = _stored_id(session_id, agent_id)
        self._unwritten: list[bytes] = []
        self._lock: asyncio.Lock | None = None
        self._writer: asyncio.Task[None] | None = None
        self._failure: SessionError | None = None

    def append(self, record: TranscriptRecord) -> None:
        """Hand a record to the store. Raises `SessionError` where the store has failed: a run that is lost must not go on."""
        if self._failure is not None:
            raise self._failure
        self._unwritten.append(encode_record(record))
        if self._on_append is not None:
            self._on_append(record)
        self.conversation.apply(record)
        if self._writer is None or self._writer.done():
            self._writer = asyncio.get_running_loop().create_task(self._drain())

    async def load_session(self, session_id: str) -> None:
        """Replace the conversation by that of a session in the store. Raises `SessionError` where there is none."""
        found = [record for line in await self._read(session_id) if (record := decode_record(line)) is not None]
        if not found:
            raise SessionError(f"there is no session {session_id} in the store")
        self.conversation = fold(found, keep_lost=True)
        if session_id != self._session_id:
            await self._copy_subagents(session_id)

    def for_subagent(self, agent_id: str, folder: Path, conversation: Conversation, on_append: OnAppend) -> Transcript:
        return StoredTranscript(self._store, self._session_id, agent_id, conversation, on_append=on_append)

    async def read_subagent(self, agent_id: str, folder: Path) -> Conversation | None:
        lines = await self._read(_stored_id(self._session_id, agent_id))
        found = [record for line in lines if (record := decode_record(line)) is not None]
        return fold(found, keep_lost=True) if found else None

    async def _copy_subagents(self, session_id: str) -> None:
        """Copy the transcripts of the subagents that are not over in another session, of which this one is a fork."""
        copied, agents = set(), [started.id for started in self.conversation.agents.values()]
        while agents:
            agent_id = agents.pop()
            lines = await self._read(_stored_id(session_id, agent_id))
            if not lines or agent_id in copied:
                continue
            copied.add(agent_id)
            try:
                await self._store.append(_stored_id(self._session_id, agent_id), lines)
            except Exception as error:
                raise self._describe("written", error) from error
            found = [record for line in lines if (record := decode_record(line)) is not None]
            agents += [started.id for started in fold(found).agents.values()]

    async def _read(self, id: str) -> list[bytes]:
        try:
            lines = self._store.read(id)
            if isinstance(lines, Awaitable):  # not a generator, but a coroutine that returns one
                lines = await lines
            return [bytes(line) async for line in lines]
        except Exception as error:
            raise self._describe("read", error) from error

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
                    appending = self._store.append(self._id, batch)
                    if not isinstance(appending, Awaitable):
                        raise TypeError("`append` of the store must be an async function")
                    await appending
                except Exception as error:
                    self._failure = self._describe("written", error)

    def _describe(self, verb: str, error: Exception) -> SessionError:
        text = " ".join(str(error).split()) or type(error).__name__
        return SessionError(f"the transcript of session {self._id} cannot be {verb}: {text}")


def _stored_id(session_id: str, agent_id: str) -> str:
    return f"{session_id}.{agent_id}" if agent_id else session_id


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
