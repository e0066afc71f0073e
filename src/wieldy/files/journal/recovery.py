"""What dead writers left: entries that never ended and whose locks are free. They are finished, or taken back."""

from __future__ import annotations

from collections import deque
from collections.abc import Container
from contextlib import suppress

from msgspec import Struct

from wieldy.files.journal.entries import Entry, Settlement
from wieldy.files.journal.locks import Locks
from wieldy.files.journal.store import Store, Unreadable, step_of
from wieldy.files.writing.disk import Disk
from wieldy.files.writing.errors import WriteError
from wieldy.files.writing.recovery import recover_writes
from wieldy.files.writing.target import resolve_target


class Recovered(Struct, frozen=True):
    """How many changes were put right, and which entries are left to writers that may be alive."""

    settled: int = 0
    alive: frozenset[str] = frozenset()


class Recovery:
    """Puts right what is left in a store. `news` gathers what a person should hear of."""

    def __init__(self, store: Store, locks: Locks, disk: Disk, news: deque[str]) -> None:
        self._store = store
        self._locks = locks
        self._disk = disk
        self._news = news

    def run(self, own: Container[str]) -> Recovered:
        """Finish or take back what others than our own entries left."""
        settled, alive = 0, set()
        for entry in [entry for name, entry in self._store.refresh().items() if name not in own]:
            try:
                line = self._put_right(entry)
                settled += line is not None
            except OSError as error:
                line = f"an interrupted change could not be taken back yet ({error}): {_listed(entry)}"
                alive.add(entry.id)
            if line is None:
                alive.add(entry.id)
            elif line not in self._news:
                self._news.append(line)
        return Recovered(settled, frozenset(alive))

    def _put_right(self, entry: Entry) -> str | None:
        try:
            names = [name for path in entry.paths for name in resolve_target(path.real_path).lock_names]
        except (WriteError, OSError):
            names = [path.real_path for path in entry.paths]
        with self._locks.hold(names, wait=False) as held:
            if not held.all or entry.id not in self._store.refresh():
                return None  # its writer lives, or has just finished
            try:
                finished = recover_writes([step_of(path, self._store) for path in entry.paths], disk=self._disk)
            except Unreadable:
                self._settle(entry, "given_up")
                return f"an interrupted change could not be taken back, its copy is damaged: {_listed(entry)}"
            self._settle(entry, "done" if finished else "taken_back")
            return f"an interrupted change was {'found complete' if finished else 'taken back'}: {_listed(entry)}"

    def _settle(self, entry: Entry, how: Settlement) -> None:
        with suppress(OSError):  # then the next start tries again
            self._store.settle_last(entry.id, how)


def _listed(entry: Entry) -> str:
    from wieldy.search.format import display_path, escape_controls

    return ", ".join(escape_controls(display_path(path.path)) for path in entry.paths)
