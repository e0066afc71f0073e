"""Steps and changes as the journal records them, with the contents they name; and steps again from a record."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from wieldy.core.record import record
from wieldy.edit.landing import Step, parted
from wieldy.edit.splice import Splice, changed_bytes
from wieldy.journal.change import Change
from wieldy.journal.delta import Delta, delta_of
from wieldy.journal.names import Names
from wieldy.journal.record import PathRecord
from wieldy.journal.store import Store


@record
class Account:
    """What is recorded of some files; every content that the records name, by digest; and those told as changes of others."""

    paths: tuple[PathRecord, ...]
    contents: Mapping[bytes, bytes]
    deltas: Mapping[bytes, Delta]

    @property
    def size(self) -> int:
        """The bytes of all contents together."""
        return sum(map(len, self.contents.values()))


def planned(steps: Iterable[Step], names: Names) -> Account:
    """The account of what is about to be written."""
    ledger = _Ledger(names)
    paths: list[PathRecord] = []
    for step in steps:
        before, after = ledger.entered(step.real_path, step.before, step.after, step.splice)
        paths.append(
            PathRecord(
                path=step.path,
                real_path=step.real_path,
                before=before,
                after=after,
                mode=step.mode,
                manner=step.manner,
                temp=step.temp,
                aside=step.aside,
                folders=step.folders,
            )
        )
    return Account(tuple(paths), ledger.contents, ledger.deltas)


def happened(changes: Iterable[Change], names: Names) -> Account:
    """The account of what someone else has already done."""
    ledger = _Ledger(names)
    paths = tuple(
        PathRecord(path=change.path, real_path=real, before=before, after=after, mode=change.mode)
        for change in changes
        if change.before != change.after
        for real in (change.real_path or os.path.realpath(change.path),)
        for before, after in (ledger.entered(real, change.before, change.after, change.splice),)
    )
    return Account(paths, ledger.contents, ledger.deltas)


class _Ledger:
    """Gathers contents under their names."""

    def __init__(self, names: Names) -> None:
        self.contents: dict[bytes, bytes] = {}
        self.deltas: dict[bytes, Delta] = {}
        self._names = names

    def entered(
        self, path: str, before: bytes | None, after: bytes | None, change: Splice | None
    ) -> tuple[str | None, str | None]:
        """The names of a file's content before and after; `change` leads from one to the other, if it keeps its word."""
        if before is None or after is None:
            return self._named(path, before), self._named(path, after)
        if change is None or not _leads(change, before, after):
            change = changed_bytes(before, after)
        old = self._names.of(path, before)
        new = self._names.of_next(path, after, old, change.start)
        self.contents[old.name], self.contents[new.name] = before, after
        delta = delta_of(old.name, change, len(after))
        if delta is not None:
            self.deltas.setdefault(new.name, delta)
        return old.name.hex(), new.name.hex()

    def _named(self, path: str, data: bytes | None) -> str | None:
        if data is None:
            return None
        name = self._names.of(path, data).name
        self.contents[name] = data
        return name.hex()


def _leads(change: Splice, before: bytes, after: bytes) -> bool:
    """Whether a splice turns one content into the other, and lies within it."""
    start, end, view = change.start, change.end, memoryview(after)
    if not 0 <= start <= end <= len(before) or len(after) != len(before) + change.growth:
        return False
    rest = start + len(change.new)
    return (
        before.startswith(view[:start]) and after.startswith(change.new, start) and before.startswith(view[rest:], end)
    )


def step_of(record: PathRecord, store: Store) -> Step:
    """The step that a record tells of."""
    folder, name = parted(record.real_path)
    return Step(
        path=record.path,
        real_path=record.real_path,
        folder=folder,
        name=name,
        manner=record.manner,
        before=None if record.before is None else store.content(record.before),
        after=None if record.after is None else store.content(record.after),
        temp=record.temp,
        aside=record.aside,
        folders=record.folders,
        mode=record.mode,
    )
