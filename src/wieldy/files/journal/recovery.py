"""Finish or roll back what dead writers left: pending entries whose locks are free."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from wieldy.files.journal.entries import EntryState, JournalEntry
from wieldy.files.journal.locks import FileLocks
from wieldy.files.journal.store import ContentUnavailable, JournalStore
from wieldy.files.writing.errors import WriteError
from wieldy.files.writing.writers import LocalWriter


def recover_pending(store: JournalStore, locks: FileLocks, writer: LocalWriter, notify: Callable[[str], None]) -> None:
    """Bring the files of each pending entry to all new or all old. Entries of living writers are left alone."""
    for entry in store.pending():
        try:
            outcome = _recover(entry, store, locks, writer)
        except OSError as error:
            outcome = f"could not be rolled back yet ({error})"
        if outcome:
            notify(f"an interrupted edit {outcome}: {_file_names(entry)}")


def _recover(entry: JournalEntry, store: JournalStore, locks: FileLocks, writer: LocalWriter) -> str | None:
    with locks.hold(_lock_names(entry, writer), wait=False) as held:
        if not held.acquired or not store.is_pending(entry.id):
            return None  # its writer lives, or has just finished
        state: EntryState
        try:
            finished = writer.recover_tree([store.file_write(file) for file in entry.files], entry.nodes)
            state, outcome = ("done", "was found complete") if finished else ("rolled_back", "was rolled back")
        except ContentUnavailable:
            state, outcome = "abandoned", "could not be rolled back, its copy is damaged"
        with suppress(OSError):  # then the next start tries again
            store.settle(entry.id, state)
        return outcome


def _lock_names(entry: JournalEntry, writer: LocalWriter) -> list[str]:
    nodes = [node.path for node in entry.nodes]
    try:
        return nodes + [name for file in entry.files for name in writer.resolve_target(file.real_path).lock_names]
    except (WriteError, OSError):
        return nodes + [file.real_path for file in entry.files]


def _file_names(entry: JournalEntry) -> str:
    from wieldy.files.search.format import display_path, escape_controls

    return ", ".join(escape_controls(display_path(path)) for path in entry.paths)
