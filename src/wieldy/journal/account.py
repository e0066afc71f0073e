"""Steps and changes as the journal records them, with the contents they name; and steps again from a record."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from wieldy.core.record import record
from wieldy.edit.landing import Step
from wieldy.journal.change import Change
from wieldy.journal.frame import digest_of
from wieldy.journal.record import PathRecord
from wieldy.journal.store import Store


@record
class Account:
    """What is recorded of some files, and every content that the records name, by digest."""

    paths: tuple[PathRecord, ...]
    contents: Mapping[bytes, bytes]

    @property
    def size(self) -> int:
        """The bytes of all contents together."""
        return sum(map(len, self.contents.values()))


def planned(steps: Iterable[Step]) -> Account:
    """The account of what is about to be written."""
    contents: dict[bytes, bytes] = {}
    paths = tuple(
        PathRecord(
            path=step.path,
            real_path=step.real_path,
            before=_named(step.before, contents),
            after=_named(step.after, contents),
            mode=step.mode,
            manner=step.manner,
            temp=step.temp,
            aside=step.aside,
            folders=step.folders,
        )
        for step in steps
    )
    return Account(paths, contents)


def happened(changes: Iterable[Change]) -> Account:
    """The account of what someone else has already done."""
    contents: dict[bytes, bytes] = {}
    paths = tuple(
        PathRecord(
            path=change.path,
            real_path=change.real_path or os.path.realpath(change.path),
            before=_named(change.before, contents),
            after=_named(change.after, contents),
            mode=change.mode,
        )
        for change in changes
        if change.before != change.after
    )
    return Account(paths, contents)


def step_of(record: PathRecord, store: Store) -> Step:
    """The step that a record tells of."""
    return Step(
        path=record.path,
        real_path=record.real_path,
        manner=record.manner,
        before=None if record.before is None else store.content(record.before),
        after=None if record.after is None else store.content(record.after),
        temp=record.temp,
        aside=record.aside,
        folders=record.folders,
        mode=record.mode,
    )


def _named(data: bytes | None, contents: dict[bytes, bytes]) -> str | None:
    if data is None:
        return None
    digest = digest_of(data)
    contents[digest] = data
    return digest.hex()
