"""The SQLite database of one project's journal: opening, schema, transactions, damage; and the entries and contents in it.

A transaction that records an intent is committed with synchronous=FULL, so that it is on the medium before the file is
touched. Settling an entry needs no sync: after a crash the files themselves show how far the write came. In WAL mode
a commit costs one sync, or none; on network file systems, where WAL's shared memory does not work, SQLite's rollback
journal is used and every commit is synced.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import sqlite3
import threading
import time
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from operator import methodcaller
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from msgspec.structs import astuple

from wieldy.core.descriptors import add_idle_descriptors
from wieldy.core.errors import WieldyError
from wieldy.core.realpath import realpath
from wieldy.core.schema.strict_json import from_json, to_json
from wieldy.core.state_dirs import open_lock_file
from wieldy.files.journal.entries import (
    ChangeOrigin,
    EntryFile,
    EntryKind,
    EntryState,
    FileChange,
    JournalEntry,
    Uncovered,
    content_hash,
)
from wieldy.files.writing.disk import LOCAL_DISK, FileWrite, WriteMethod, is_local, sync_folder
from wieldy.files.writing.tree_commit import NodeChange

T = TypeVar("T")

APPLICATION_ID = 0x77696C64  # "wild"
BUSY_SECONDS = 20.0
# A WAL file that a large transaction has enlarged is truncated to this size.
WAL_BYTES = 16 << 20

# One script for each version of the schema; a database of version n is brought up to date by those after the first n.
MIGRATIONS = (
    """
    CREATE TABLE contents (
        hash TEXT PRIMARY KEY,
        size INTEGER NOT NULL,
        data BLOB NOT NULL,
        compressed INTEGER NOT NULL  -- by zlib; 0: data is the content itself
    );
    CREATE INDEX uncompressed_contents ON contents (hash) WHERE NOT compressed;
    CREATE TABLE entries (
        id INTEGER PRIMARY KEY,
        kind TEXT NOT NULL,
        session TEXT NOT NULL,
        call_id TEXT NOT NULL,
        tool TEXT NOT NULL,
        turn TEXT,
        time REAL NOT NULL,
        uncovered TEXT NOT NULL,  -- a JSON array, as are nodes
        nodes TEXT NOT NULL,
        state TEXT NOT NULL,
        active INTEGER NOT NULL,
        known INTEGER NOT NULL  -- 0: no change is known, only that the command was not watched
    );
    CREATE INDEX pending_entries ON entries (id) WHERE state = 'pending';
    CREATE TABLE entry_files (
        entry_id INTEGER NOT NULL REFERENCES entries (id) ON DELETE CASCADE,
        position INTEGER NOT NULL,
        path TEXT NOT NULL,  -- a BLOB where the name is not valid UTF-8
        real_path TEXT NOT NULL,
        before_hash TEXT,
        after_hash TEXT,
        mode INTEGER,
        method TEXT NOT NULL,
        temp TEXT NOT NULL,
        backup TEXT NOT NULL,
        folders TEXT NOT NULL,  -- a JSON array
        PRIMARY KEY (entry_id, position)
    ) WITHOUT ROWID;
    CREATE INDEX entry_files_by_path ON entry_files (real_path, entry_id);
    CREATE TABLE reversals (
        entry_id INTEGER NOT NULL REFERENCES entries (id) ON DELETE CASCADE,
        reversed_id INTEGER NOT NULL,
        PRIMARY KEY (entry_id, reversed_id)
    ) WITHOUT ROWID;
    """,
)


class _UnusableDatabase(Exception):
    """The file is damaged, belongs to another program or was written by a newer version."""


class JournalDatabase:
    """One connection, shared by the threads of a process. Every failure is raised as an `OSError`."""

    def __init__(self, path: Path, *, notify: Callable[[str], None], replace_unusable: bool = True) -> None:
        self.path = str(path)
        self._folder = str(path.parent)
        self._notify = notify
        self._replace_unusable = replace_unusable
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._identity: tuple[int, int] | None = None
        self._pid = 0
        self._wal = False
        add_idle_descriptors(self)

    @property
    def exists(self) -> bool:
        return os.path.exists(self.path)

    def read(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """Run queries that see one consistent state."""
        return self._read(query, "BEGIN")

    def read_one(self, statement: str, *values: object) -> Any:
        """The first row of a query, or None."""
        return self._read(lambda db: db.execute(statement, values).fetchone(), "")

    def write(self, change: Callable[[sqlite3.Connection], T], *, durable: bool) -> T:
        """Run a change and commit it; `durable` waits until it is on the medium."""
        return self._run(change, "BEGIN IMMEDIATE", durable=durable)

    def reclaim_space(self) -> None:
        """Give free pages back to the file system."""

        def vacuum(connection: sqlite3.Connection) -> None:
            connection.executescript("PRAGMA incremental_vacuum")  # `execute` would free a single page
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

        self._run(vacuum, "", durable=False)

    def close(self) -> None:
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None and self._pid == os.getpid():
                with suppress(sqlite3.Error):
                    connection.close()

    def release_if_idle(self) -> None:
        """Close the connection unless a thread uses it; it is opened again at the next use."""
        if self._lock.acquire(blocking=False):
            try:
                self.close()
            finally:
                self._lock.release()

    def _read(self, query: Callable[[sqlite3.Connection], T], begin: str) -> T:
        try:
            return self._run(query, begin, durable=False)
        except OSError as error:
            if error.errno not in (errno.EROFS, errno.EACCES) or not self.exists:
                raise
        # SQLite needs to write to its companions even to read, unless it is told that the file does not change.
        try:
            with closing(sqlite3.connect(f"file:{quote(self.path)}?immutable=1", uri=True)) as connection:
                return query(connection)
        except sqlite3.Error as error:
            raise _as_os_error(error, self.path) from error

    def _run(self, work: Callable[[sqlite3.Connection], T], begin: str, *, durable: bool) -> T:
        with self._lock:
            try:
                return self._transact(work, begin, durable)
            except (_UnusableDatabase, sqlite3.Error) as error:
                if not self._replace_unusable or not _is_unusable(error):
                    raise _as_os_error(error, self.path) from error
                self._set_aside(error)
            try:
                return self._transact(work, begin, durable)
            except (_UnusableDatabase, sqlite3.Error) as error:
                raise _as_os_error(error, self.path) from error

    def _transact(self, work: Callable[[sqlite3.Connection], T], begin: str, durable: bool) -> T:
        connection = self._open()
        if not begin:
            return work(connection)
        if begin == "BEGIN IMMEDIATE":
            connection.execute("PRAGMA synchronous=FULL" if durable or not self._wal else "PRAGMA synchronous=NORMAL")
        connection.execute(begin)
        try:
            result = work(connection)
            connection.execute("COMMIT")
            return result
        except BaseException:
            if connection.in_transaction:
                with suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
            raise

    def _open(self) -> sqlite3.Connection:
        """The connection to the file that is at the path now: another program may have removed or replaced the open one."""
        if self._connection is not None:
            if self._pid != os.getpid():
                raise OSError(errno.EINVAL, "an SQLite connection cannot be used after fork", self.path)
            if self._file_identity() == self._identity:
                return self._connection
            self.close()
        with self._exclusive_opening():
            self._create()
            self._identity = self._file_identity()
            connection = sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
            try:
                version = _own_version(connection)
                self._configure(connection, new=version == 0)
                _migrate(connection, version)
            except BaseException:
                connection.close()
                raise
        self._connection, self._pid = connection, os.getpid()
        return connection

    def _create(self) -> None:
        """Create the file where there is none, with its mode. The system's errors say more than SQLite's.

        A file that exists is opened by SQLite alone: to close it here would drop the locks that other connections of this
        process have on it, and other processes would remove the write-ahead log that they use.
        """
        try:
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        except FileExistsError:
            if os.path.isdir(self.path):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), self.path) from None
            if not os.access(self.path, os.R_OK | os.W_OK, effective_ids=os.access in os.supports_effective_ids):
                is_read_only = os.statvfs(self.path).f_flag & os.ST_RDONLY
                number = errno.EROFS if is_read_only else errno.EACCES
                raise OSError(number, os.strerror(number), self.path) from None
        else:
            self._sync_folder()

    def _configure(self, connection: sqlite3.Connection, *, new: bool) -> None:
        connection.execute("PRAGMA foreign_keys=ON")
        connection.execute(f"PRAGMA journal_size_limit={WAL_BYTES}")
        if new:
            connection.execute("PRAGMA auto_vacuum=INCREMENTAL")  # has an effect only before the first table
        wanted = "DELETE" if _may_be_on_network(self._folder) else "WAL"
        [mode] = connection.execute("PRAGMA journal_mode").fetchone()
        if mode != wanted.lower():
            [mode] = connection.execute(f"PRAGMA journal_mode={wanted}").fetchone()
        self._wal = mode == "wal"

    def _set_aside(self, error: Exception) -> None:
        """Rename an unusable database, unless another process has done so already."""
        identity = self._identity
        self.close()
        with self._exclusive_opening():
            if self._file_identity() != identity:
                return
            aside = f"{self.path}.unusable-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
            os.rename(self.path, aside)
            for suffix in ("-wal", "-shm", "-journal"):
                with suppress(FileNotFoundError):
                    os.rename(self.path + suffix, aside + suffix)
        self._notify(
            f"the undo journal cannot be used ({error}); it was set aside as {aside} and a new one was begun: "
            "earlier changes can no longer be undone"
        )

    @contextmanager
    def _exclusive_opening(self) -> Iterator[None]:
        """Keep other processes from opening, creating or replacing the database."""
        fd = open_lock_file(f"{self._folder}/lock")
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)

    def _sync_folder(self) -> None:
        fd = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            sync_folder(LOCAL_DISK, fd)
        finally:
            os.close(fd)

    def _file_identity(self) -> tuple[int, int] | None:
        try:
            stat = os.stat(self.path)
        except OSError:
            return None
        return stat.st_dev, stat.st_ino


def _own_version(connection: sqlite3.Connection) -> int:
    """The schema version, 0 for a new database; raises where the database is not ours to use."""
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    [application] = connection.execute("PRAGMA application_id").fetchone()
    [tables] = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application != APPLICATION_ID and (application or version or tables):
        raise _UnusableDatabase("it belongs to another program")
    if version > len(MIGRATIONS):
        raise _UnusableDatabase(f"another version of wieldy wrote it, with schema version {version}")
    return version


def _migrate(connection: sqlite3.Connection, version: int) -> None:
    for number in range(version, len(MIGRATIONS)):
        connection.executescript(
            f"BEGIN IMMEDIATE; {MIGRATIONS[number]} "
            f"PRAGMA application_id={APPLICATION_ID}; PRAGMA user_version={number + 1}; COMMIT;"
        )


def _is_unusable(error: Exception) -> bool:
    if isinstance(error, _UnusableDatabase):
        return True
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB) or str(error).startswith("no such")


def _as_os_error(error: Exception, path: str) -> OSError:
    """SQLite's failure as the system's, which the caller knows how to explain."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    number = {
        sqlite3.SQLITE_FULL: errno.ENOSPC,
        sqlite3.SQLITE_READONLY: errno.EROFS,
        sqlite3.SQLITE_PERM: errno.EACCES,
        sqlite3.SQLITE_BUSY: errno.EAGAIN,
        sqlite3.SQLITE_LOCKED: errno.EAGAIN,
        sqlite3.SQLITE_TOOBIG: errno.EFBIG,
    }.get(code, errno.EIO)
    if number == errno.EIO and _is_full(path):
        number = errno.ENOSPC
    return OSError(number, str(error), path)


def _is_full(path: str) -> bool:
    try:
        volume = os.statvfs(os.path.dirname(path))
    except OSError:
        return False
    return volume.f_bavail * volume.f_frsize < WAL_PAGE_MARGIN


# SQLite needs this much for the shared memory of a WAL, and reports an I/O error where it cannot have it.
WAL_PAGE_MARGIN = 1 << 16


def _may_be_on_network(folder: str) -> bool:
    """Whether a folder is not on a file system of which it is known that other machines have no part in it."""
    try:
        return not is_local([folder])
    except OSError:
        return False  # another system, without a list of mounts


class ContentUnavailable(WieldyError):
    """A content that the journal no longer has, or has only damaged."""


class JournalStore:
    """Record, settle and look up entries. Safe for any number of threads and processes; failures are `OSError`s."""

    def __init__(
        self,
        path: Path,
        *,
        notify: Callable[[str], None] = lambda notice: None,
        clock: Callable[[], float] = time.time,
        replace_unusable: bool = True,
    ) -> None:
        self.database = JournalDatabase(path, notify=notify, replace_unusable=replace_unusable)
        self._clock = clock
        self.uncompressed_bytes = 0  # stored by this object and not compressed since

    def begin(self, writes: Iterable[FileWrite], origin: ChangeOrigin, nodes: Sequence[NodeChange] = ()) -> int:
        """Record writes that are about to happen, with old and new contents; on the medium when this returns."""
        contents: dict[str, bytes] = {}
        files = [
            EntryFile(
                path=write.path,
                real_path=write.real_path,
                before_hash=_add(contents, write.before),
                after_hash=_add(contents, write.after),
                mode=write.mode,
                method=write.method,
                temp=write.temp,
                backup=write.backup,
                folders=write.folders,
            )
            for write in writes
        ]
        return self._insert(origin, files, contents, "pending", nodes)

    def record(self, changes: Iterable[FileChange], origin: ChangeOrigin, nodes: Sequence[NodeChange] = ()) -> int:
        """Record changes that have already happened."""
        contents: dict[str, bytes] = {}
        files = [
            EntryFile(
                path=change.path,
                real_path=change.real_path or realpath(change.path),
                before_hash=_add(contents, change.before),
                after_hash=_add(contents, change.after),
                mode=change.mode,
                method=_method(change),
                folders=change.folders,
            )
            for change in changes
        ]
        return self._insert(origin, files, contents, "done", nodes)

    def settle(self, entry_id: int, state: EntryState) -> None:
        """Write down how a pending entry ended. Not synced: recovery can find out again by looking at the files."""

        def update(db: sqlite3.Connection) -> None:
            statement = "UPDATE entries SET state=?, active=? WHERE id=? AND state='pending'"
            changed = db.execute(statement, (state, state == "done", entry_id)).rowcount
            if changed and state == "done":
                _set_reversed(db, entry_id, active=False)

        self.database.write(update, durable=False)

    def pending(self) -> list[JournalEntry]:
        """Entries that were begun and never settled, oldest first."""
        if not self.database.exists:
            return []
        return self.database.read(lambda db: _load(db, "state='pending'"))

    def is_pending(self, entry_id: int) -> bool:
        return self._has("id=? AND state='pending'", entry_id)

    def is_undecided(self, session: str, call: str) -> bool:
        """Whether a call has an entry that is neither done nor rolled back."""
        condition = "session=? AND call_id=? AND state IN ('pending', 'abandoned')"
        return self._has(condition, _to_column(session), _to_column(call))

    def has_pending(self) -> bool:
        """Whether any entry is pending."""
        return self._has("state='pending'")

    def _has(self, condition: str, *values: object) -> bool:
        if not self.database.exists:
            return False
        return self.database.read_one(f"SELECT 1 FROM entries WHERE {condition} LIMIT 1", *values) is not None

    def find(
        self,
        *kinds: EntryKind,
        active_only: bool = True,
        session: str | None = None,
        call: str | None = None,
        turn: str | None = None,
        since: float | None = None,
        ids: Collection[int] | None = None,
        known_only: bool = False,
        limit: int | None = None,
    ) -> list[JournalEntry]:
        """The newest `limit` completed entries that fit, oldest first. `call` is the id of a call or of an entry.

        `known_only` leaves out commands of which no change is known, only that they were not watched.
        """
        if not self.database.exists:
            return []
        conditions, values = ["state='done'"], list[Any]()

        def require(condition: str, *parameters: Any) -> None:
            conditions.append(condition)
            values.extend(parameters)

        if kinds:
            require(f"kind IN ({_marks(kinds)})", *kinds)
        if active_only:
            require("active")
        if session is not None:
            require("session=?", _to_column(session))
        if call is not None:
            require("(call_id=? OR CAST(id AS TEXT)=?)", _to_column(call), _to_column(call))
        if turn is not None:
            require("turn=?", _to_column(turn))
        if since is not None:
            require("time>=?", since)
        if known_only:
            require("known")
        if ids is not None:
            require(f"id IN ({_marks(ids)})", *ids)
        return self.database.read(lambda db: _load(db, " AND ".join(conditions), values, limit))

    def last_edit_after(self, entry_id: int, real_path: str) -> JournalEntry | None:
        """The last active change of a file after an entry."""
        condition = """id = (
            SELECT max(entry_id) FROM entry_files JOIN entries ON entries.id = entry_id
            WHERE real_path=? AND entry_id>? AND state='done' AND active AND kind IN ('edit', 'command'))"""
        entries = self.database.read(lambda db: _load(db, condition, (_to_column(real_path), entry_id)))
        return entries[0] if entries else None

    def content(self, hash: str) -> bytes:
        """The content with this hash, verified."""
        row = self.database.read_one("SELECT data, compressed FROM contents WHERE hash=?", hash)
        if row is None:
            raise ContentUnavailable("the journal no longer keeps this content: it was too old or too large")
        try:
            data = zlib.decompress(row[0]) if row[1] else bytes(row[0])
        except (zlib.error, TypeError):
            data = b""
        if content_hash(data) != hash:
            # Removed, so that it is stored again when it comes up again.
            self.database.write(lambda db: db.execute("DELETE FROM contents WHERE hash=?", (hash,)), durable=False)
            raise ContentUnavailable(f"the journal's copy {hash[:12]} in {self.database.path} is damaged")
        return data

    def file_write(self, file: EntryFile) -> FileWrite:
        """The write that a record describes, with its contents."""
        return FileWrite(
            path=file.path,
            real_path=file.real_path,
            method=file.method,
            before=None if file.before_hash is None else self.content(file.before_hash),
            after=None if file.after_hash is None else self.content(file.after_hash),
            temp=file.temp,
            backup=file.backup,
            folders=file.folders,
            mode=file.mode,
        )

    def compress_contents(self) -> None:
        """Compress the contents that were stored as they are, because an edit does not wait for compression."""
        change = "UPDATE contents SET data=?, compressed=1 WHERE hash=? AND NOT compressed"
        while row := self.database.read_one("SELECT hash, data FROM contents WHERE NOT compressed LIMIT 1"):
            values = zlib.compress(row[1]), row[0]
            self.database.write(methodcaller("execute", change, values), durable=False)

    def used_bytes(self) -> int:
        """The size of the database without its free pages."""

        def measure(db: sqlite3.Connection) -> int:
            pages, free, size = (
                int(db.execute(f"PRAGMA {name}").fetchone()[0])
                for name in ("page_count", "freelist_count", "page_size")
            )
            return (pages - free) * size

        return self.database.read(measure)

    def delete_entries(self, condition: str, *values: float) -> int:
        """Delete entries, unless they are pending, and the contents that nothing needs any more; returns how many went."""

        def delete(db: sqlite3.Connection) -> int:
            count = db.execute(f"DELETE FROM entries WHERE state!='pending' AND {condition}", values).rowcount
            if count:
                _delete_unreferenced(db)
            return count

        return self.database.write(delete, durable=False)

    def close(self) -> None:
        self.database.close()

    def _insert(
        self,
        origin: ChangeOrigin,
        files: Sequence[EntryFile],
        contents: Mapping[str, bytes],
        state: EntryState,
        nodes: Sequence[NodeChange] = (),
    ) -> int:
        def insert(db: sqlite3.Connection) -> int:
            new_contents = [(hash, len(data), data) for hash, data in contents.items()]
            db.executemany("INSERT OR IGNORE INTO contents VALUES (?, ?, ?, 0)", new_contents)
            self.uncompressed_bytes += sum(map(len, contents.values()))
            entry_id = db.execute(
                "INSERT INTO entries (kind, session, call_id, tool, turn, time, uncovered, nodes, state, active, known) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    origin.kind,
                    _to_column(origin.session),
                    _to_column(origin.call_id),
                    _to_column(origin.tool),
                    _to_column(origin.turn),
                    self._clock(),
                    to_json(origin.uncovered),
                    to_json(nodes),
                    state,
                    state == "done",
                    not origin.uncovered or bool(files or nodes) or any(each.changed for each in origin.uncovered),
                ),
            ).lastrowid
            assert entry_id is not None
            db.executemany(
                "INSERT INTO entry_files VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [(entry_id, position, *_file_columns(file)) for position, file in enumerate(files)],
            )
            db.executemany("INSERT INTO reversals VALUES (?, ?)", [(entry_id, id) for id in origin.reverses])
            return entry_id

        return self.database.write(insert, durable=True)


def _method(change: FileChange) -> WriteMethod:
    if change.before is None or change.after is None:
        return "create" if change.before is None else "delete"
    return "in_place" if change.in_place else "replace"


def _add(contents: dict[str, bytes], data: bytes | None) -> str | None:
    if data is None:
        return None
    hash = content_hash(data)
    contents[hash] = data
    return hash


def _delete_unreferenced(db: sqlite3.Connection) -> None:
    db.execute(
        """DELETE FROM contents WHERE hash NOT IN (
            SELECT before_hash FROM entry_files WHERE before_hash IS NOT NULL
            UNION SELECT after_hash FROM entry_files WHERE after_hash IS NOT NULL)"""
    )


def _set_reversed(db: sqlite3.Connection, entry_id: int, *, active: bool) -> None:
    """Mark what an entry reverses, and the opposite on what that reverses: undoing an undo makes the edit active again."""
    for [reversed_id] in db.execute("SELECT reversed_id FROM reversals WHERE entry_id=?", (entry_id,)).fetchall():
        db.execute("UPDATE entries SET active=? WHERE id=?", (active, reversed_id))
        _set_reversed(db, reversed_id, active=not active)


def _load(
    db: sqlite3.Connection, condition: str, values: Sequence[Any] = (), limit: int | None = None
) -> list[JournalEntry]:
    rows = db.execute(
        "SELECT id, kind, session, call_id, tool, turn, time, uncovered, nodes, active FROM entries "
        f"WHERE {condition} ORDER BY id DESC LIMIT ?",
        (*values, -1 if limit is None else limit),
    ).fetchall()
    return [_entry(db, row) for row in reversed(rows)]


def _entry(db: sqlite3.Connection, row: tuple[Any, ...]) -> JournalEntry:
    entry_id, kind, session, call_id, tool, turn, at, uncovered, nodes, active = row
    files = db.execute("SELECT * FROM entry_files WHERE entry_id=? ORDER BY position", (entry_id,))
    reverses = db.execute("SELECT reversed_id FROM reversals WHERE entry_id=? ORDER BY reversed_id", (entry_id,))
    return JournalEntry(
        id=entry_id,
        kind=kind,
        session=_from_column(session),
        call_id=_from_column(call_id),
        tool=_from_column(tool),
        time=at,
        files=tuple(_file(file[2:]) for file in files),
        turn=_from_column(turn),
        reverses=tuple(id for [id] in reverses),
        uncovered=from_json(uncovered, tuple[Uncovered, ...]),
        active=bool(active),
        nodes=from_json(nodes, tuple[NodeChange, ...]),
    )


def _file_columns(file: EntryFile) -> tuple[Any, ...]:
    path, real_path, *others, folders = astuple(file)
    return _to_column(path), _to_column(real_path), *others, json.dumps(folders)


def _file(columns: Sequence[Any]) -> EntryFile:
    path, real_path, *others, folders = columns
    fields: list[Any] = [_from_column(path), _from_column(real_path), *others, tuple(json.loads(folders))]
    return EntryFile(*fields)


def _to_column(text: str | None) -> str | bytes | None:
    """TEXT where it is valid Unicode, else a BLOB: file names may hold any bytes."""
    if text is None or text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")
    return text


def _from_column(value: Any) -> Any:
    return value.decode("utf-8", "surrogatepass") if isinstance(value, bytes) else value


def _marks(values: Collection[object]) -> str:
    return ", ".join("?" * len(values))
