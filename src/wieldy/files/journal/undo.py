"""Taking changes back, and bringing them back again: first a plan to look at, then the deed, itself a change.

Only files that the chosen changes touched are touched. A file that has moved on since is refused, or merged on request.
"""

from __future__ import annotations

import os
import secrets
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from wieldy.core.errors import WieldyError
from wieldy.files.journal.entries import Change, Entry, PathRecord
from wieldy.files.journal.history import Chronicle, Event
from wieldy.files.journal.journal import Origin
from wieldy.files.journal.store import Unreadable, digest_of
from wieldy.files.writing.errors import format_size
from wieldy.files.writing.target import read_target
from wieldy.search.format import display_path, escape_controls

if TYPE_CHECKING:
    from wieldy.files.journal.journal import Journal


class Last(Struct, frozen=True):
    """The latest change that stands; of one session, or of any."""

    session: str | None = None


class Call(Struct, frozen=True):
    """All changes of one call, named by its id or by the id of its entry."""

    call_id: str


class Turn(Struct, frozen=True):
    """All changes of one turn: the latest, unless it is named."""

    turn: str | None = None
    session: str | None = None


class All(Struct, frozen=True):
    """All changes of a session (the latest, unless it is named), or only those at or after a point in time."""

    session: str | None = None
    since: float | None = None


Selector: TypeAlias = Last | Call | Turn | All


class CannotUndo(WieldyError):
    """Nothing was touched; the message says which files stand in the way, or that there is nothing to do."""


class Restored(Struct, frozen=True):
    """One file of a plan: what it holds now and what it will hold. `problem` says why it cannot be."""

    path: str
    real_path: str
    now: bytes | None
    then: bytes | None
    mode: int | None = None
    folders: tuple[str, ...] = ()
    merged: bool = False
    problem: str | None = None


class UndoPlan(Struct, frozen=True):
    """The changes that will be taken back or brought back, and each file touched. `entry` is set once it is done."""

    action: Literal["undo", "redo"]
    changes: tuple[Entry, ...]
    files: tuple[Restored, ...]
    reverses: tuple[str, ...]
    entry: str | None = None

    @property
    def problems(self) -> tuple[str, ...]:
        """What stands in the way; empty when the plan can be carried out."""
        return tuple(file.problem for file in self.files if file.problem is not None)


def plan_undo(journal: Journal, selector: Selector | None = None, *, merge: bool = False) -> UndoPlan:
    """What taking back the selected changes (the last one by default) would do to each file."""
    journal.writer.recover()
    chronicle = journal.chronicle()
    chosen = _chosen(chronicle, selector or Last())
    return UndoPlan("undo", tuple(chosen), _files(journal, chronicle, chosen, merge), tuple(e.id for e in chosen))


def plan_redo(journal: Journal, *, merge: bool = False, session: str | None = None) -> UndoPlan:
    """What bringing back the last change taken away (by one session, or by any) would do to each file."""
    journal.writer.recover()
    chronicle = journal.chronicle()
    undone = [entry for entry in chronicle.standing("undo") if session in (None, entry.session)]
    if not undone:
        raise CannotUndo("There is nothing to redo.")
    last = undone[-1]
    changes = tuple(event.entry for event in chronicle.events if event.entry.id in last.reverses)
    return UndoPlan("redo", changes or (last,), _files(journal, chronicle, [last], merge), (last.id,))


def undo(journal: Journal, selector: Selector | None = None, *, merge: bool = False) -> UndoPlan:
    """Take changes back."""
    return carry_out(journal, plan_undo(journal, selector, merge=merge))


def redo(journal: Journal, *, merge: bool = False, session: str | None = None) -> UndoPlan:
    """Bring back what the last undo (of one session, or of any) took away."""
    return carry_out(journal, plan_redo(journal, merge=merge, session=session))


def carry_out(journal: Journal, plan: UndoPlan) -> UndoPlan:
    """Do what a plan says. A file that changed since the plan was made raises `Moved`, and nothing is touched."""
    if plan.problems:
        raise CannotUndo(f"Cannot {plan.action}, nothing was touched: {'; '.join(plan.problems)}.")
    changes = [Change(file.real_path, file.now, file.then, file.real_path, file.mode) for file in plan.files]
    emptied = {file.real_path: file.folders for file in plan.files if file.then is None}
    origin = Origin(
        session=journal.session,
        call_id=f"{plan.action}-{secrets.token_hex(4)}",
        tool=plan.action,
        kind=plan.action,
        reverses=plan.reverses,
    )
    receipt = journal.writer.apply(changes, origin, emptied)
    return replace(plan, entry=receipt.entry)


def history(journal: Journal, limit: int = 50) -> tuple[Event, ...]:
    """The latest changes, newest first."""
    journal.writer.recover()
    return journal.chronicle().events[::-1][:limit]


def _chosen(chronicle: Chronicle, selector: Selector) -> list[Entry]:
    standing = chronicle.standing("edit", "snapshot")
    if isinstance(selector, Call):
        named = [entry for entry in standing if selector.call_id in (entry.call_id, entry.id)]
        if not named:
            raise CannotUndo(
                f"No change of the call {selector.call_id} stands: it is unknown or was taken back already."
            )
        return named
    if selector.session is not None:
        standing = [entry for entry in standing if entry.session == selector.session]
    if isinstance(selector, All) and selector.since is not None:
        standing = [entry for entry in standing if entry.at >= selector.since]
    elif isinstance(selector, Turn) and selector.turn is not None:
        standing = [entry for entry in standing if entry.turn == selector.turn]
    if not standing:
        raise CannotUndo("There is nothing to undo.")
    last = standing[-1]
    if isinstance(selector, Last) or (isinstance(selector, Turn) and last.turn is None):
        return [last]
    if isinstance(selector, Turn):
        return [entry for entry in standing if (entry.session, entry.turn) == (last.session, last.turn)]
    if selector.since is not None:
        return standing
    return [entry for entry in standing if entry.session == last.session]


def _files(journal: Journal, chronicle: Chronicle, entries: Sequence[Entry], merge: bool) -> tuple[Restored, ...]:
    by_file: dict[object, list[tuple[Entry, PathRecord]]] = {}
    for entry in entries:
        for path in entry.paths:
            by_file.setdefault(_file(path.real_path), []).append((entry, path))
    restored = (_restored(journal, chronicle, steps, merge) for steps in by_file.values())
    return tuple(file for file in restored if file is not None)


def _restored(
    journal: Journal, chronicle: Chronicle, steps: list[tuple[Entry, PathRecord]], merge: bool
) -> Restored | None:
    """Walk one file back through its changes, newest first."""
    first, last = steps[0][1], steps[-1][1]
    name, real = last.path, last.real_path
    try:
        now = read_target(real).content
    except (WieldyError, OSError) as error:
        return Restored(name, real, None, None, problem=f"{name} cannot be read: {error}")
    then, merged = now, False
    try:
        for entry, path in reversed(steps):
            before = None if path.before is None else journal.store.content(path.before)
            if (None if then is None else digest_of(then).hex()) == path.after:
                then = before
                continue
            if then == before:
                continue  # someone took it back by hand
            if not merge:
                return Restored(name, real, now, None, problem=_moved_on(path, now, chronicle.after(entry, real)))
            base = None if path.after is None else journal.store.content(path.after)
            then, merged = _merged(base, before, then), True
    except (Unreadable, _NoMerge) as error:
        return Restored(name, real, now, None, problem=f"{name}: {error}")
    folders = tuple(dict.fromkeys(f for _, path in steps if path.method == "create" for f in path.folders))
    return Restored(name, real, now, then, mode=first.mode, folders=folders, merged=merged)


def _file(real_path: str) -> object:
    """What tells files apart: the path or, for a file of several names, the file itself, whichever name was used."""
    try:
        stat = os.lstat(real_path)
    except OSError:
        return real_path
    return real_path if stat.st_nlink == 1 else (stat.st_dev, stat.st_ino)


class _NoMerge(WieldyError):
    """Two changes to the same lines, or to whether there is a file at all."""


def _merged(base: bytes | None, ours: bytes | None, theirs: bytes | None) -> bytes:
    if ours is None:
        raise _NoMerge("it would be deleted, and with it what was changed since")
    if theirs is None:
        raise _NoMerge("it was deleted since, so there is nothing to merge with")
    if base is None:
        raise _NoMerge("it was made anew since, which cannot be merged")
    from wieldy.files.editing.merging import merge_bytes

    merged = merge_bytes(base, ours, theirs)
    if merged is None:
        raise _NoMerge("the later changes touch the same lines, which cannot be merged")
    return merged


def _moved_on(path: PathRecord, now: bytes | None, later: Entry | None) -> str:
    if later is not None:
        return f"{path.path} was changed later by {later.tool} (call {later.call_id}); undo that first, or merge"
    if now is None:
        return f"{path.path} was deleted since, by something other than wieldy"
    way_out = "merge to keep both" if path.before is not None else "taking it back would delete it"
    return f"{path.path} was changed since, by something other than wieldy; {way_out}"


def plan_lines(plan: UndoPlan) -> list[str]:
    """What an undo or redo would do, or has done once it has an entry."""
    verb = {"undo": ("take back", "took back"), "redo": ("bring back", "brought back")}[plan.action][
        plan.entry is not None
    ]
    calls = ", ".join(dict.fromkeys(f"{entry.tool} ({entry.call_id})" for entry in plan.changes))
    return [f"{verb} {calls}:", *(f"  {_file_line(file)}" for file in plan.files)]


def history_lines(events: Iterable[Event]) -> list[str]:
    """One line for each change: when, who, which call, which files, and whether it still stands."""
    return [_event_line(event) for event in events]


def _file_line(file: Restored) -> str:
    if file.problem is not None:
        return f"! {escape_controls(display_path(file.problem))}"
    path = _named(file.path)
    merged = ", merged with later changes" if file.merged else ""
    if file.now == file.then:
        return f"= {path} (already so{merged})"
    if file.now is None:
        return f"+ {path} (comes back, {format_size(len(file.then or b''))})"
    if file.then is None:
        return f"- {path} (goes, {format_size(len(file.now))})"
    return f"~ {path} ({_difference(file.now, file.then)}{merged})"


def _named(path: str) -> str:
    """A path as it can be shown: what a name holds must not command the terminal."""
    return escape_controls(display_path(path))


def _difference(now: bytes, then: bytes) -> str:
    if b"\0" in now or b"\0" in then:
        return f"{format_size(len(now))} → {format_size(len(then))}"
    old, new = Counter(now.splitlines()), Counter(then.splitlines())
    return f"+{(new - old).total()} −{(old - new).total()} lines"


def _event_line(event: Event) -> str:
    entry = event.entry
    when = datetime.fromtimestamp(entry.at).strftime("%Y-%m-%d %H:%M:%S")
    files = entry.paths
    shown = ", ".join(_named(path.path) for path in files[:3]) + (
        f" and {len(files) - 3} more" if len(files) > 3 else ""
    )
    state = "" if event.stands else "  [taken back]"
    return f"{when}  {entry.tool:<10} {entry.call_id}  {shown}{state}"
