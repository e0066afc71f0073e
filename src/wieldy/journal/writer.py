"""One change from word to disk: verified under its locks, recorded, written, settled. A crash is put right."""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TypeAlias

from wieldy.core.failure import WieldyError
from wieldy.edit.commit import Written, commit
from wieldy.edit.disk import LOCAL, Disk
from wieldy.edit.failures import CannotWrite, Moved, NotRolledBack, explain
from wieldy.edit.landing import Landing, Step, locate, look, plan
from wieldy.edit.leftovers import drop_folders, recover
from wieldy.journal.change import Change
from wieldy.journal.frame import digest_of
from wieldy.journal.locks import Locks
from wieldy.journal.record import Entry, EntryKind, PathRecord, Settled, Settlement
from wieldy.journal.segment import Unreadable
from wieldy.journal.store import Store


@dataclass(frozen=True, slots=True)
class Origin:
    """Who makes a change, and why."""

    session: str
    call_id: str
    tool: str
    turn: str | None = None
    kind: EntryKind = "edit"
    reverses: tuple[str, ...] = ()
    covered: str = ""


Emptied: TypeAlias = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Receipt:
    """What was written. `entry` is None when nothing had to be, or when no journal is kept."""

    entry: str | None
    written: tuple[Written, ...]


class Writer:
    """Writes through a store, one file one writer. `store` is None where no journal is kept."""

    def __init__(
        self,
        store: Store | None,
        locks: Locks,
        *,
        disk: Disk = LOCAL,
        roots: Sequence[str] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._locks = locks
        self._disk = disk
        self._roots = roots
        self._clock = clock
        self._own: set[str] = set()
        self._mutex = threading.Lock()

    def apply(self, changes: Sequence[Change], origin: Origin, emptied: Emptied = MappingProxyType({})) -> Receipt:
        """Write all changes or none. `emptied` are folders, by real path of a deleted file, that go if left empty."""
        self.recover()
        while True:
            wanted = {name for change in changes for name in self._seen(locate, change).locks}
            with self._locks.holding(wanted):
                landings = [self._seen(look, change) for change in changes]
                if wanted.issuperset(name for landing in landings for name in landing.locks):
                    return self._write(changes, landings, origin, emptied)

    def record(self, changes: Sequence[Change], origin: Origin) -> Receipt:
        """Keep changes that have already happened, so that they can be taken back."""
        paths = [_happened(change) for change in changes if change.before != change.after]
        if self._store is None or not paths:
            return Receipt(None, ())
        entry = self._entry(origin, paths)
        self._append(self._store, entry, changes)
        return Receipt(entry.id, ())

    def recover(self) -> list[str]:
        """Finish or take back what dead writers left; one line for each that was put right."""
        if self._store is None:
            return []
        with self._mutex:
            abandoned = [entry for name, entry in self._store.refresh().items() if name not in self._own]
        lines = [self._put_right(self._store, entry) for entry in abandoned]
        return [line for line in lines if line]

    def _write(
        self, changes: Sequence[Change], landings: Sequence[Landing], origin: Origin, emptied: Emptied
    ) -> Receipt:
        steps: list[Step] = []
        for change, landing in zip(changes, landings, strict=True):
            _verify(change, landing)
            if change.before != change.after:
                steps.append(self._plan(change, landing, emptied))
        if len({step.real_path for step in steps}) < len(steps):
            raise WieldyError("the same file is named twice in one change")
        if not steps and not origin.reverses:
            return Receipt(None, tuple(map(_untouched, landings)))
        entry = None if self._store is None else self._entry(origin, map(_planned, steps))
        written = self._carry_out(entry, steps)
        # Files that came and went: nothing of them is left to delete but the folders made for them.
        absent = [landing.real_path for landing in landings if landing.stat is None]
        with suppress(OSError):
            drop_folders((folder for path in absent for folder in emptied.get(path, ())), self._disk)
        by_path = {one.path: one for one in written}
        unchanged = (by_path.get(landing.path) or _untouched(landing) for landing in landings)
        return Receipt(None if entry is None else entry.id, tuple(unchanged))

    def _carry_out(self, entry: Entry | None, steps: Sequence[Step]) -> tuple[Written, ...]:
        if entry is None or self._store is None:
            return commit(steps, disk=self._disk, roots=self._roots)
        self._own.add(entry.id)
        try:
            self._append(self._store, entry, steps)
            try:
                written = commit(steps, disk=self._disk, roots=self._roots)
            except NotRolledBack:
                raise
            except BaseException:
                self._settle(self._store, entry, "taken_back")
                raise
            self._settle(self._store, entry, "done")
            return written
        finally:
            self._own.discard(entry.id)

    def _append(self, store: Store, entry: Entry, files: Sequence[Change | Step]) -> None:
        contents = {digest_of(data): data for file in files for data in (file.before, file.after) if data is not None}
        try:
            store.append(entry, contents, durable=True)
        except OSError as error:
            needed = sum(map(len, contents.values()))
            path = files[0].path if files else str(store.folder)
            why = explain(error, str(store.folder), needed=needed, roots=self._roots)
            raise CannotWrite(path, f"{path} was not written, because its undo copy could not be: {why}") from error

    def _settle(self, store: Store, entry: Entry, how: Settlement) -> None:
        # Nothing is lost without this record: the next start finds out by looking at the files.
        with suppress(OSError):
            store.append(Settled(entry.id, how), durable=False)

    def _put_right(self, store: Store, entry: Entry) -> str | None:
        try:
            names = [name for path in entry.paths for name in locate(path.real_path).locks]
        except (CannotWrite, OSError):
            names = [path.real_path for path in entry.paths]
        with self._locks.holding(names, wait=False) as held:
            if not held or entry.id not in store.refresh():
                return None  # its writer lives, or has just finished
            listed = ", ".join(path.path for path in entry.paths)
            try:
                finished = recover([_step(path, store) for path in entry.paths], disk=self._disk)
            except Unreadable:
                self._settle(store, entry, "given_up")
                return f"an interrupted change could not be taken back, its copy is damaged: {listed}"
            except OSError as error:
                return f"an interrupted change could not be taken back yet ({error}): {listed}"
            self._settle(store, entry, "done" if finished else "taken_back")
            return f"an interrupted change was {'found complete' if finished else 'taken back'}: {listed}"

    def _plan(self, change: Change, landing: Landing, emptied: Emptied) -> Step:
        try:
            step = plan(landing, change.after, mode=change.mode)
        except OSError as error:
            raise explain(error, change.path, needed=len(change.after or b""), roots=self._roots) from error
        if step.manner != "delete":
            return step
        return replace(step, folders=emptied.get(landing.real_path, ()))

    def _seen(self, see: Callable[[str], Landing], change: Change) -> Landing:
        try:
            return see(change.path)
        except OSError as error:
            raise explain(error, change.path, needed=len(change.after or b"")) from error

    def _entry(self, origin: Origin, paths: Iterable[PathRecord]) -> Entry:
        now = self._clock()
        return Entry(
            id=f"{int(now * 1000):011x}{secrets.token_hex(3)}",
            kind=origin.kind,
            session=origin.session,
            call_id=origin.call_id,
            tool=origin.tool,
            at=now,
            paths=tuple(paths),
            turn=origin.turn,
            reverses=origin.reverses,
            covered=origin.covered,
        )


def _verify(change: Change, landing: Landing) -> None:
    if change.real_path is not None and change.real_path != landing.real_path:
        raise Moved(change.path, f"leads to {landing.real_path} now, not to {change.real_path}")
    if landing.content == change.before:
        return
    if landing.content is None:
        raise Moved(change.path, "is gone since it was read")
    if change.before is None:
        raise Moved(change.path, "exists already")
    raise Moved(change.path, "has changed on disk since it was read")


def _untouched(landing: Landing) -> Written:
    return Written(landing.path, landing.real_path, landing.stat, ("it already had this content",))


def _name(data: bytes | None) -> str | None:
    return None if data is None else digest_of(data).hex()


def _planned(step: Step) -> PathRecord:
    return PathRecord(
        path=step.path,
        real_path=step.real_path,
        before=_name(step.before),
        after=_name(step.after),
        mode=step.mode,
        manner=step.manner,
        temp=step.temp,
        aside=step.aside,
        folders=step.folders,
    )


def _happened(change: Change) -> PathRecord:
    real = change.real_path or os.path.realpath(change.path)
    return PathRecord(change.path, real, _name(change.before), _name(change.after), mode=change.mode)


def _step(path: PathRecord, store: Store) -> Step:
    return Step(
        path=path.path,
        real_path=path.real_path,
        manner=path.manner,
        before=None if path.before is None else store.content(path.before),
        after=None if path.after is None else store.content(path.after),
        temp=path.temp,
        aside=path.aside,
        folders=path.folders,
        mode=path.mode,
    )
