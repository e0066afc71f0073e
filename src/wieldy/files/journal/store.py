"""Entries and contents in the journal's database."""

from __future__ import annotations

import json
import sqlite3
import time
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from msgspec.structs import astuple

from wieldy.core.errors import WieldyError
from wieldy.core.realpath import realpath
from wieldy.files.journal.database import JournalDatabase
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
from wieldy.files.writing.nodes import Node, NodeChange
from wieldy.files.writing.target import FileWrite, WriteMethod, split_path


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
        self.uncompressed_bytes = 0  # stored by this object, which nobody has compressed yet

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
        return self.database.read_one("SELECT 1 FROM entries WHERE id=? AND state='pending'", entry_id) is not None

    def is_undecided(self, session: str, call: str) -> bool:
        """Whether a call has an entry that is neither done nor rolled back."""
        if not self.database.exists:
            return False
        condition = "session=? AND call_id=? AND state IN ('pending', 'abandoned') LIMIT 1"
        values = _to_column(session), _to_column(call)
        return self.database.read_one(f"SELECT 1 FROM entries WHERE {condition}", *values) is not None

    def has_pending(self) -> bool:
        """Whether any entry is pending."""
        if not self.database.exists:
            return False
        return self.database.read_one("SELECT 1 FROM entries WHERE state='pending' LIMIT 1") is not None

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

        `known_only` leaves out commands of which no change is known, only that nobody watched.
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
        folder, name = split_path(file.real_path)
        return FileWrite(
            path=file.path,
            real_path=file.real_path,
            folder=folder,
            name=name,
            method=file.method,
            before=None if file.before_hash is None else self.content(file.before_hash),
            after=None if file.after_hash is None else self.content(file.after_hash),
            temp=file.temp,
            backup=file.backup,
            folders=file.folders,
            mode=file.mode,
        )

    def compress_contents(self, is_stopped: Callable[[], bool] = lambda: False) -> None:
        """Compress the contents that were stored as they are, because an edit does not wait for compression."""
        next_content = "SELECT hash, data FROM contents WHERE NOT compressed LIMIT 1"
        while not is_stopped() and (row := self.database.read_one(next_content)):
            hash, data = row
            change = "UPDATE contents SET data=?, compressed=1 WHERE hash=? AND NOT compressed"
            self.database.write(partial(_execute, change, (zlib.compress(data), hash)), durable=False)

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
            self._insert_contents(db, contents)
            entry_id = db.execute(
                "INSERT INTO entries (kind, session, call_id, tool, turn, time, coverage, state, active, known) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    origin.kind,
                    _to_column(origin.session),
                    _to_column(origin.call_id),
                    _to_column(origin.tool),
                    _to_column(origin.turn),
                    self._clock(),
                    json.dumps([astuple(each) for each in origin.uncovered]),
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
            db.executemany(
                "INSERT INTO entry_nodes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [(entry_id, position, *_node_columns(node)) for position, node in enumerate(nodes)],
            )
            db.executemany("INSERT INTO reversals VALUES (?, ?)", [(entry_id, id) for id in origin.reverses])
            return entry_id

        return self.database.write(insert, durable=True)

    def _insert_contents(self, db: sqlite3.Connection, contents: Mapping[str, bytes]) -> None:
        for hash, data in contents.items():
            if db.execute("SELECT 1 FROM contents WHERE hash=?", (hash,)).fetchone() is None:
                db.execute(
                    "INSERT INTO contents (hash, size, data, compressed) VALUES (?, ?, ?, 0)", (hash, len(data), data)
                )
                self.uncompressed_bytes += len(data)


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


def _execute(statement: str, values: Sequence[Any], db: sqlite3.Connection) -> None:
    db.execute(statement, values)


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
        "SELECT id, kind, session, call_id, tool, turn, time, coverage, active FROM entries "
        f"WHERE {condition} ORDER BY id DESC LIMIT ?",
        (*values, -1 if limit is None else limit),
    ).fetchall()
    return [_entry(db, row) for row in reversed(rows)]


def _entry(db: sqlite3.Connection, row: tuple[Any, ...]) -> JournalEntry:
    entry_id, kind, session, call_id, tool, turn, at, coverage, active = row
    files = db.execute("SELECT * FROM entry_files WHERE entry_id=? ORDER BY position", (entry_id,))
    nodes = db.execute("SELECT * FROM entry_nodes WHERE entry_id=? ORDER BY position", (entry_id,))
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
        uncovered=tuple(Uncovered(*fields) for fields in json.loads(coverage)),
        active=bool(active),
        nodes=tuple(_node_change(node[2:]) for node in nodes),
    )


def _file_columns(file: EntryFile) -> tuple[Any, ...]:
    return (
        _to_column(file.path),
        _to_column(file.real_path),
        file.before_hash,
        file.after_hash,
        file.mode,
        file.method,
        file.temp,
        file.backup,
        json.dumps(file.folders),
    )


def _file(columns: tuple[Any, ...]) -> EntryFile:
    path, real_path, before_hash, after_hash, mode, method, temp, backup, folders = columns
    return EntryFile(
        _from_column(path),
        _from_column(real_path),
        before_hash,
        after_hash,
        mode,
        method,
        temp,
        backup,
        tuple(json.loads(folders)),
    )


def _node_columns(change: NodeChange) -> tuple[Any, ...]:
    columns: list[Any] = [_to_column(change.path)]
    for node in (change.before, change.after):
        columns += (None, None, None) if node is None else (node.kind, node.mode, _to_column(node.target))
    return tuple(columns)


def _node_change(columns: tuple[Any, ...]) -> NodeChange:
    path, *rest = columns
    before, after = (
        None if kind is None else Node(kind, mode, _from_column(target)) for kind, mode, target in (rest[:3], rest[3:])
    )
    return NodeChange(_from_column(path), before, after)


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
