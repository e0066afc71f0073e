"""The transcript of a session: an append-only log of records, one JSON object a line, in files or in a store of the program.

A record is written before `append` returns, so that a killed process loses nothing that it did. `flush` brings the records to
disk, before something lasting is done and before the model reads of it.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import msgspec

from wieldy.agent.conversation import Conversation, fold
from wieldy.agent.records import ToolResultRecord, TranscriptRecord, clean_texts, convert_record, decode_record
from wieldy.core.errors import SessionError
from wieldy.core.session_files import TRANSCRIPT_NAME, lock_transcript
from wieldy.core.state_dirs import fsync_folder, make_private_folder, open_private
from wieldy.core.threads import in_thread, in_thread_uncancellable

SUBAGENT_FOLDER = "agents"
LOCK_NAME = "lock"  # of a session whose transcript is in a store
PAYLOAD_CHARS = 65_536  # longer strings are kept in files of their own
PAYLOAD_LOST = "(this part of the transcript is lost)"
REFERENCE = "$payload"

_ESCAPED = re.compile(r"\$+payload")

OnAppend: TypeAlias = Callable[[TranscriptRecord], None]

_fdatasync = getattr(os, "fdatasync", os.fsync)


class Transcript:
    """Writes records to a log and folds them into `conversation`.

    The log and its folder are made with the first record, and one process at a time can open it. Without a folder,
    nothing is written. `on_append` is called with each record when it is written, before it changes the conversation.
    """

    def __init__(
        self, folder: Path | None, conversation: Conversation | None = None, *, on_append: OnAppend | None = None
    ) -> None:
        self._on_append = on_append
        self.conversation = Conversation() if conversation is None else conversation
        self.path = None if folder is None else folder / TRANSCRIPT_NAME
        self._payloads = None if folder is None else PayloadStore(folder)
        self._file = -1
        self._written = 0  # records, since the log was opened
        self._last_result = 0
        self._on_disk = 0
        self._fsync_lock = threading.Lock()
        self._fsync_error: OSError | None = None  # the system reports it once, and may have dropped what was written
        self._is_new = True
        self._is_torn = False  # whether a write failed, and may have left half a line
        self._has_failed = False

    def append(self, record: TranscriptRecord) -> None:
        """Write a record. Raises `SessionError` when that fails: a run that cannot be resumed must not continue."""
        if self._payloads is not None:
            self._write(record, self._payloads)
        self._apply(record)

    def _apply(self, record: TranscriptRecord) -> None:
        if self._on_append is not None:
            self._on_append(record)
        self.conversation.apply(record)

    def for_subagent(self, agent_id: str, folder: Path, conversation: Conversation, on_append: OnAppend) -> Transcript:
        """The transcript of a subagent, kept where this one is."""
        return Transcript(None if self.path is None else folder, conversation, on_append=on_append)

    async def read_subagent(self, agent_id: str, folder: Path) -> Conversation | None:
        """The conversation of an earlier subagent; None where there is none. Raises `SessionError`."""
        if self.path is None:
            return None
        conversation = await in_thread(lambda: fold(records(folder), keep_lost=True))
        return None if conversation.header is None else conversation

    def _write(self, record: TranscriptRecord, payloads: PayloadStore) -> None:
        self.open()
        try:
            line = encode_record(record) + b"\n"
            if len(line) > PAYLOAD_CHARS or may_hold_reference(line):
                line = encode_record(payloads.extract(msgspec.to_builtins(record))) + b"\n"
            _write_all(self._file, b"\n" + line if self._is_torn else line)
        except OSError as error:
            self._is_torn = True
            raise self._write_error(error) from None
        self._is_torn = False
        self._written += 1
        if isinstance(record, ToolResultRecord):
            self._last_result = self._written

    async def load(self, folder: Path) -> None:
        """Replace the conversation by that of the log in a folder."""
        if self.path == folder / TRANSCRIPT_NAME:
            self.open()  # before it is read, so that no other process can add to it meanwhile
        self.conversation = await in_thread(lambda: fold(records(folder), keep_lost=True))
        if self.conversation.agents and self.path is not None and self.path.parent != folder:
            # A fork: its subagents continue in copies of their own.
            import shutil

            copy = self.path.parent / SUBAGENT_FOLDER
            try:
                await in_thread(shutil.copytree, folder / SUBAGENT_FOLDER, copy, dirs_exist_ok=True)
            except FileNotFoundError:
                pass  # a subagent whose transcript is gone cannot continue, and says so when it is to
            except OSError as error:
                raise self._write_error(error) from None

    def open(self) -> None:
        """Open and lock the log, unless it is open. Raises `SessionError`."""
        if self._file >= 0 or self.path is None:
            return
        folder = self.path.parent
        try:
            make_private_folder(folder)
            file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                lock_transcript(file, folder)
                size = os.fstat(file).st_size
                if size and os.pread(file, 1, size - 1) != b"\n":
                    _write_all(file, b"\n")  # a torn last line must not swallow the next record
            except BaseException:
                os.close(file)
                raise
        except OSError as error:
            raise self._write_error(error) from None
        self._file = file

    async def flush(self, *, results: bool = False) -> None:
        """Wait until all records are on disk, or the last tool result and those before it. Raises `SessionError`."""
        needed = self._last_result if results else self._written
        if self._file < 0 or self._on_disk >= needed:
            return
        try:
            await in_thread_uncancellable(self._fsync, needed)
        except RuntimeError as error:
            raise self._write_error(OSError(f"no thread can be started ({error})")) from None
        except OSError as error:
            raise self._write_error(error) from None

    def _fsync(self, needed: int) -> None:
        with self._fsync_lock:
            if self._fsync_error is not None:
                raise self._fsync_error
            if self._on_disk >= needed or self.path is None or self._payloads is None:
                return  # a flush before this one did it
            count = self._written
            try:
                self._payloads.fsync()  # before the records that refer to them
                _fdatasync(self._file)
                if os.fstat(self._file).st_nlink == 0:
                    raise FileNotFoundError(errno.ENOENT, "it was deleted while the session ran")
                if self._is_new:
                    fsync_folder(self.path.parent)
                    fsync_folder(self.path.parent.parent)
                    self._is_new = False
            except OSError as error:
                self._fsync_error = error
                raise
            self._on_disk = count

    async def aclose(self) -> None:
        """Flush and close. Raises `SessionError` where that fails and no error was raised before."""
        if self._file < 0:
            return
        was_reported = self._has_failed
        try:
            await self.flush()
        except SessionError:
            if not was_reported:
                raise
        finally:
            os.close(self._file)
            self._file, self._written, self._on_disk, self._last_result = -1, 0, 0, 0

    def _write_error(self, error: OSError) -> SessionError:
        self._has_failed = True
        return SessionError(
            f"the transcript {self.path} cannot be written: {error.strerror or error}; this session cannot be resumed from "
            "here on. Set WIELDY_HOME to a folder that can be written, or use --no-session-persistence"
        )


def records(folder: Path) -> Iterator[TranscriptRecord]:
    """The records of a session in order. Torn lines and records of unknown type are skipped. Raises `SessionError`."""
    payloads = PayloadStore(folder)
    for line in _lines(folder):
        if may_hold_reference(line):
            record = next((convert_record(payloads.restore(data)) for data in _decode((line,))), None)
        else:
            record = decode_record(line)
        if record is not None:
            yield record


def raw_records(folder: Path) -> Iterator[dict[str, Any]]:
    """The records of a session as JSON objects, those of unknown type too. Raises `SessionError`."""
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
        with (folder / TRANSCRIPT_NAME).open("rb") as file:
            yield from file
    except FileNotFoundError:
        return
    except OSError as error:
        raise SessionError(
            f"the transcript {folder / TRANSCRIPT_NAME} cannot be read: {error.strerror or error}"
        ) from None


def encode_record(record: Any) -> bytes:
    """Encode a record, or one as JSON, as a line without its end."""
    try:
        return msgspec.json.encode(record)
    except UnicodeEncodeError:
        return msgspec.json.encode(clean_texts(msgspec.to_builtins(record)))


def _write_all(file: int, data: bytes) -> None:
    written = os.write(file, data)
    while written < len(data):
        data = data[written:]
        written = os.write(file, data)


class PayloadStore:
    """Keeps the long strings of a session's records in files named by their hash.

    A reference is an object with the one key `$payload`. Data of that form gets another `$` in its key.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "payloads"
        self._unsynced: list[Path] = []

    def extract(self, value: Any) -> Any:
        """Replace long strings in a JSON value by references to files, and escape what looks like a reference."""
        if isinstance(value, str):
            return self._store(value) if len(value) > PAYLOAD_CHARS else value
        if isinstance(value, dict):
            if (key := _reference_key(value)) is not None:
                return {f"${key}": self.extract(value[key])}
            return {key: self.extract(item) for key, item in value.items()}
        return [self.extract(item) for item in value] if isinstance(value, list | tuple) else value

    def restore(self, value: Any) -> Any:
        if isinstance(value, dict):
            if (key := _reference_key(value)) is not None:
                return self._load(str(value[key])) if key == REFERENCE else {key[1:]: self.restore(value[key])}
            return {key: self.restore(item) for key, item in value.items()}
        return [self.restore(item) for item in value] if isinstance(value, list) else value

    def fsync(self) -> None:
        if not self._unsynced:
            return
        while self._unsynced:
            file = os.open(self._unsynced.pop(), os.O_RDONLY)
            try:
                os.fsync(file)
            finally:
                os.close(file)
        fsync_folder(self.folder)

    def _store(self, text: str) -> dict[str, str]:
        data = text.encode("utf-8", "surrogatepass")
        name = _hash_name(data)
        path = self.folder / name
        if not path.exists():
            make_private_folder(self.folder)
            temporary = self.folder / f".{name}.{os.getpid()}"
            with open(temporary, "wb", opener=open_private) as file:
                file.write(data)
            temporary.replace(path)
            self._unsynced.append(path)
        return {REFERENCE: name}

    def _load(self, name: str) -> str:
        if not name.isalnum():
            return PAYLOAD_LOST
        try:
            data = (self.folder / name).read_bytes()
        except OSError:
            return PAYLOAD_LOST
        return data.decode("utf-8", "replace") if _hash_name(data) == name else PAYLOAD_LOST


def may_hold_reference(line: bytes) -> bool:
    """Whether an encoded record may hold a reference, or data that looks like one."""
    return b'$payload"' in line


def _reference_key(value: dict[str, Any]) -> str | None:
    """The key of an object that is a reference, or looks like one."""
    if len(value) != 1:
        return None
    [key] = value
    return key if isinstance(key, str) and _ESCAPED.fullmatch(key) else None


def _hash_name(data: bytes) -> str:
    import base64
    import hashlib

    return base64.b32encode(hashlib.blake2b(data, digest_size=20).digest()).decode().lower()


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
        lock_folder: Path | None = None,
    ) -> None:
        super().__init__(None, conversation, on_append=on_append)
        self._lock_folder = lock_folder
        self._store = store
        self._session_id = session_id
        self._id = _stored_id(session_id, agent_id)
        self._unwritten: list[bytes] = []
        self._lock: asyncio.Lock | None = None
        self._writer: asyncio.Task[None] | None = None
        self._failure: SessionError | None = None

    def append(self, record: TranscriptRecord) -> None:
        """Hand a record to the store. Raises `SessionError` where the store has failed: a run that is lost must not continue."""
        if self._failure is not None:
            raise self._failure
        self._unwritten.append(encode_record(record))
        self._apply(record)
        if self._writer is None or self._writer.done():
            self._writer = asyncio.get_running_loop().create_task(self._drain())

    async def load_session(self, session_id: str) -> None:
        """Replace the conversation by that of a session in the store. Raises `SessionError` where there is none."""
        if session_id == self._session_id:
            self.open()
        found = _decode_lines(await self._read(session_id))
        if not found:
            raise SessionError(f"there is no session {session_id} in the store")
        self.conversation = fold(found, keep_lost=True)
        if session_id != self._session_id:
            await self._copy_subagents(session_id)

    def open(self) -> None:
        """Lock the session on this machine. Raises `TranscriptLocked`."""
        if self._file < 0 and self._lock_folder is not None:
            try:
                make_private_folder(self._lock_folder)
                self._file = os.open(self._lock_folder / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                lock_transcript(self._file, self._lock_folder)
            except BaseException as error:
                self._unlock()
                if not isinstance(error, OSError):
                    raise

    def _unlock(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def for_subagent(self, agent_id: str, folder: Path, conversation: Conversation, on_append: OnAppend) -> Transcript:
        return StoredTranscript(self._store, self._session_id, agent_id, conversation, on_append=on_append)

    async def read_subagent(self, agent_id: str, folder: Path) -> Conversation | None:
        found = _decode_lines(await self._read(_stored_id(self._session_id, agent_id)))
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
            agents += [started.id for started in fold(_decode_lines(lines)).agents.values()]

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
        finally:
            self._unlock()

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


def _decode_lines(lines: Iterable[bytes]) -> list[TranscriptRecord]:
    return [record for line in lines if (record := decode_record(line)) is not None]


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
    return StoredTranscript(store, session_id, lock_folder=folder)
