"""The one way in which tools change files: verified, kept for undo, written all or none, taken back on request."""

from __future__ import annotations

import asyncio
import errno
import os
import time
from collections import deque
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from wieldy.core.errors import WieldyError
from wieldy.core.events import Notice
from wieldy.core.state_dirs import state_home
from wieldy.core.threads import in_thread_uncancellable, run_in_background
from wieldy.core.workspace import Workspace
from wieldy.files.journal.entries import Change, Entry, EntryKind
from wieldy.files.journal.history import Chronicle, Event
from wieldy.files.journal.locks import Held, Locks
from wieldy.files.journal.recovery import Recovered, Recovery
from wieldy.files.journal.retention import Retention
from wieldy.files.journal.store import Account, Added, Names, Store, Unsettled, happened, journal_folder, planned
from wieldy.files.writing.commit import WrittenFile, commit_writes
from wieldy.files.writing.disk import LOCAL_DISK, Disk
from wieldy.files.writing.errors import RollbackError, StaleFileError, WriteError, explain_os_error
from wieldy.files.writing.recovery import remove_empty_folders
from wieldy.files.writing.target import (
    FileWrite,
    Target,
    in_place,
    lock_names_at,
    plan_write,
    read_target,
    resolve_target,
)

if TYPE_CHECKING:
    from wieldy.files.editing.revision import Revision
    from wieldy.files.journal.undo import Selector, UndoPlan


T = TypeVar("T")


class Origin(Struct, frozen=True):
    """Who makes a change, and why. `meanwhile` is called when the disk is about to be waited for."""

    session: str
    call_id: str
    tool: str
    turn: str | None = None
    kind: EntryKind = "edit"
    reverses: tuple[str, ...] = ()
    covered: str = ""
    meanwhile: Callable[[], object] | None = None


Emptied: TypeAlias = Mapping[str, tuple[str, ...]]


class Receipt(Struct, frozen=True):
    """What was written. `entry` is None when nothing had to be, or when no journal is kept."""

    entry: str | None
    written: tuple[WrittenFile, ...]


class Writer:
    """Writes through a store, one file one writer. `store` is None where no journal is kept.

    `news` gathers what a person should hear of: crashes of others that were put right.
    """

    def __init__(
        self,
        store: Store | None,
        locks: Locks,
        *,
        disk: Disk = LOCAL_DISK,
        roots: Sequence[str] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._locks = locks
        self._disk = disk
        self._roots = roots
        self._clock = clock
        self._own: set[str] = set()
        self._names = Names()
        self.news: deque[str] = deque(maxlen=100)
        self._recovery = None if store is None else Recovery(store, locks, disk, self.news)

    def apply(
        self,
        changes: Sequence[Change],
        origin: Origin,
        emptied: Emptied = MappingProxyType({}),
    ) -> Receipt:
        """Write all changes or none. `emptied` are folders, by real path of a deleted file, that go if left empty."""
        self.recover()
        while True:
            wanted = {name for change in changes for name in self._locks_of(change)}
            with self._hold(wanted, changes[0].path if changes else ""):
                targets = [self._landing(change) for change in changes]
                if wanted.issuperset(name for target in targets for name in target.lock_names):
                    return self._write(changes, targets, origin, emptied)

    def revise(self, path: str, prepare: Callable[[], Revision], origin: Origin) -> tuple[Revision, Receipt]:
        """Write one file, whose path no link leads away, as it is prepared under its locks: nobody else writes between
        the look and the writing. Raises what `prepare` raises.

        Whether dead writers left something is seen when the change is recorded, or looked for when it cannot be made."""
        wanted: tuple[str, ...] = (path,)
        alive: frozenset[str] = frozenset()
        while True:
            recording = False
            try:
                with self._hold(wanted, path):
                    revision = prepare()
                    change = Change(path, revision.before, revision.after, path, splice=revision.change)
                    # Where there was no file to open, a link may have come to lie on the way to it.
                    target = self._landing(change) if revision.before is None else revision.target
                    if target.lock_names == wanted:
                        recording = True
                        return revision, self._write((change,), (target,), origin, beside=self._own | alive)
                    wanted = target.lock_names
            except Unsettled:
                alive = self.recover().alive
            except Exception:
                if recording or not self.recover().settled:
                    raise

    def _hold(self, names: Iterable[str], path: str) -> Held:
        try:
            return self._locks.hold(names)
        except OSError as error:
            if self._store is not None:
                raise self._unkept(path, error) from error
            return Held()

    def _unkept(self, path: str, error: OSError, needed: int = 0) -> WriteError:
        folder = "" if self._store is None else str(self._store.folder)
        why = explain_os_error(error, folder, needed=needed, roots=self._roots)
        return WriteError(
            path,
            f"{path} was not written, because its undo copy could not be kept: {why} "
            "WIELDY_HOME moves the folder; the setting journal.enabled=false does without.",
            number=error.errno or 0,
        )

    def record(self, changes: Sequence[Change], origin: Origin) -> Receipt:
        """Keep changes that have already happened, so that they can be taken back."""
        account = happened(changes, self._names)
        if self._store is None or not account.paths:
            return Receipt(None, ())
        entry = self._entry(origin, account)
        self._kept(account, partial(self._store.append, entry, account.contents, account.deltas))
        return Receipt(entry.id, ())

    def recover(self) -> Recovered:
        """Finish or take back what dead writers left."""
        return Recovered() if self._recovery is None else self._recovery.run(self._own)

    def _steps(self, changes: Sequence[Change], targets: Sequence[Target], emptied: Emptied) -> list[FileWrite]:
        moving: list[tuple[Change, Target]] = []
        for change, target in zip(changes, targets, strict=True):
            _verify(change, target)
            if change.before != change.after:
                moving.append((change, target))
        steps = [self._plan(change, target, emptied, alone=len(moving) == 1) for change, target in moving]
        if len(steps) > 1 and len({step.real_path for step in steps}) < len(steps):
            raise WieldyError("the same file is named twice in one change")
        return steps

    def _write(
        self,
        changes: Sequence[Change],
        targets: Sequence[Target],
        origin: Origin,
        emptied: Emptied = MappingProxyType({}),
        beside: Container[str] | None = None,
    ) -> Receipt:
        steps = self._steps(changes, targets, emptied)
        if not steps and not origin.reverses:
            return Receipt(None, tuple(map(_untouched, targets)))
        entry, written = self._carried_out(steps, origin, beside)
        if emptied:
            # Of files that came and went nothing is left but the folders made for them, which may lie in those of others.
            made = {folder for target in targets for folder in emptied.get(target.real_path, ())}
            with suppress(OSError):
                remove_empty_folders(made, self._disk)
        by_path = {one.path: one for one in written}
        all_of_them = [by_path.get(target.path) or _untouched(target) for target in targets]
        return Receipt(None if entry is None else entry.id, tuple(all_of_them))

    def _carried_out(
        self, steps: Sequence[FileWrite], origin: Origin, beside: Container[str] | None
    ) -> tuple[Entry | None, tuple[WrittenFile, ...]]:
        """Carry out the steps; a file that turns out to be a mount point cannot be replaced, so it is written in place."""
        while True:
            try:
                return self._carry_out(steps, origin, beside)
            except WriteError as error:
                busy = [step for step in steps if step.path == error.path and step.method == "replace"]
                if error.number != errno.EBUSY or not busy:
                    raise
                steps = [in_place(step, "it is a mount point") if step in busy else step for step in steps]

    def _carry_out(
        self, steps: Sequence[FileWrite], origin: Origin, beside: Container[str] | None
    ) -> tuple[Entry | None, tuple[WrittenFile, ...]]:
        if self._store is None:
            return None, commit_writes(steps, disk=self._disk, roots=self._roots)
        account = planned(steps, self._names)
        entry = self._entry(origin, account)
        self._own.add(entry.id)
        try:
            added = self._kept(account, partial(self._store.begin, entry, account.contents, account.deltas, beside))
            try:
                written = self._recorded(account, added, steps, origin)
            finally:
                added.close()
            return entry, written
        finally:
            self._own.discard(entry.id)

    def _recorded(
        self, account: Account, added: Added, steps: Sequence[FileWrite], origin: Origin
    ) -> tuple[WrittenFile, ...]:
        """Carry out steps that are recorded, and record how that ended. Nothing is lost where the latter fails: the next
        start finds out by looking at the files."""
        try:
            self._kept(account, added.sync)
            written = commit_writes(steps, disk=self._disk, roots=self._roots)
        except RollbackError:
            raise
        except BaseException:
            with suppress(OSError):
                added.settle("taken_back")
            raise
        with suppress(OSError):
            added.settle("done")
        return written

    def _kept(self, account: Account, keep: Callable[[], T]) -> T:
        try:
            return keep()
        except OSError as error:
            path = account.paths[0].path if account.paths else "the file"
            raise self._unkept(path, error, account.size) from error

    def _plan(self, change: Change, target: Target, emptied: Emptied, *, alone: bool) -> FileWrite:
        try:
            step = plan_write(target, change.after, mode=change.mode, splice=change.splice, alone=alone)
        except OSError as error:
            raise explain_os_error(error, change.path, needed=len(change.after or b""), roots=self._roots) from error
        if step.method != "delete":
            return step
        return replace(step, folders=emptied.get(target.real_path, ()))

    def _locks_of(self, change: Change) -> tuple[str, ...]:
        return _seen(resolve_target, change).lock_names if change.real_path is None else lock_names_at(change.real_path)

    def _landing(self, change: Change) -> Target:
        """Where a change lands now, and what is there."""
        if change.real_path == change.path:
            # It was judged to be free of links. If it can be opened without following any, it still is.
            try:
                target = read_target(change.path, change.path)
                if target.stat is not None:
                    return target
            except (OSError, WieldyError):
                pass  # it will be told why
        target = _seen(read_target, change)
        _require_same_place(change, target)
        return target

    def _entry(self, origin: Origin, account: Account) -> Entry:
        now = self._clock()
        return Entry(
            id=f"{int(now * 1000):011x}{os.urandom(3).hex()}",
            kind=origin.kind,
            session=origin.session,
            call_id=origin.call_id,
            tool=origin.tool,
            at=now,
            paths=account.paths,
            turn=origin.turn,
            reverses=origin.reverses,
            covered=origin.covered,
        )


def _seen(see: Callable[[str], Target], change: Change) -> Target:
    try:
        return see(change.path)
    except OSError as error:
        raise explain_os_error(error, change.path, needed=len(change.after or b"")) from error


def _require_same_place(change: Change, target: Target) -> None:
    if change.real_path is not None and change.real_path != target.real_path:
        raise StaleFileError(change.path, f"leads to {target.real_path} now, not to {change.real_path}")


def _verify(change: Change, target: Target) -> None:
    if target.content == change.before:
        return
    if target.content is None:
        raise StaleFileError(change.path, "is gone since it was read")
    if change.before is None:
        raise StaleFileError(change.path, "exists already")
    raise StaleFileError(change.path, "has changed on disk since it was read")


def _untouched(target: Target) -> WrittenFile:
    return WrittenFile(target.path, target.real_path, target.stat, ("it already had this content",))


class Journal:
    """A workspace's record of changes, made at first use: `workspace.service(Journal)`.

    Every async method has a sync twin in `writer`, `retention` or `files/journal/undo.py` for callers without a loop.
    Settings: `journal.enabled`, `journal.maxAgeDays`, `journal.maxBytes`.
    """

    def __init__(self, workspace: Workspace, *, disk: Disk = LOCAL_DISK) -> None:
        home = state_home(workspace.env)
        self.workspace = workspace
        self.session = workspace.session_dir.name
        self.store = Store(journal_folder(workspace), disk=disk)
        kept = self.store if workspace.setting("journal.enabled") else None
        self.writer = Writer(kept, Locks(home / "locks"), disk=disk, roots=workspace.roots)
        self.retention = Retention(
            home / "journal",
            max_age_days=workspace.setting("journal.maxAgeDays"),
            max_bytes=workspace.setting("journal.maxBytes"),
        )

    async def start(self) -> None:
        """Put right what a crash left, and drop what is too old. Cheap, and meant for every start of a program."""
        await self._settled(self._start)

    def start_now(self) -> tuple[str, ...]:
        """The same, for callers without a loop; what a person should hear of it."""
        self._start()
        return self._news()

    def _start(self) -> None:
        self.writer.recover()
        self.retention.daily()

    async def apply(
        self,
        changes: Sequence[Change],
        *,
        call_id: str,
        tool: str,
        turn: str | None = None,
        meanwhile: Callable[[], None] | None = None,
    ) -> Receipt:
        """Write all changes or none. `meanwhile` is called on the loop, if at all, while the disk is waited for.

        Raises `Moved` when a file is not as its `before` says, `CannotWrite` when the system does not let it be.
        """
        origin = Origin(self.session, call_id, tool, turn, meanwhile=_on_loop(meanwhile))
        return await self._settled(self._apply, tuple(changes), origin)

    def _apply(self, changes: Sequence[Change], origin: Origin) -> Receipt:
        run_in_background(self.retention.daily)
        return self.writer.apply(changes, origin)

    async def revise(
        self,
        path: str,
        prepare: Callable[[], Revision],
        *,
        call_id: str,
        tool: str,
        turn: str | None = None,
        meanwhile: Callable[[], None] | None = None,
    ) -> tuple[Revision, WrittenFile]:
        """Look at a file, whose path no link leads away, and change it in one go: `prepare` is called in a thread when
        nobody else may write the file. Raises what that raises, and what `apply` does."""
        origin = Origin(self.session, call_id, tool, turn, meanwhile=_on_loop(meanwhile))
        return await self._settled(self._revise, path, prepare, origin)

    def _revise(self, path: str, prepare: Callable[[], Revision], origin: Origin) -> tuple[Revision, WrittenFile]:
        run_in_background(self.retention.daily)
        revision, receipt = self.writer.revise(path, prepare, origin)
        return revision, receipt.written[0]

    async def record_snapshot(
        self, changes: Sequence[Change], *, call_id: str, tool: str, turn: str | None = None, covered: str = ""
    ) -> Receipt:
        """Keep changes that something else made, a shell command for one; `covered` says what was watched."""
        origin = Origin(self.session, call_id, tool, turn, kind="snapshot", covered=covered)
        return await self._settled(self.writer.record, tuple(changes), origin)

    async def plan_undo(self, selector: Selector | None = None, *, merge: bool = False) -> UndoPlan:
        """What an undo would do, without doing it."""
        from wieldy.files.journal.undo import plan_undo

        return await self._settled(plan_undo, self, selector, merge=merge)

    async def undo(self, selector: Selector | None = None, *, merge: bool = False) -> UndoPlan:
        """Take changes back: the last one, or those selected. Raises `CannotUndo` when a file has moved on since."""
        from wieldy.files.journal.undo import undo

        return await self._settled(undo, self, selector, merge=merge)

    async def redo(self, *, merge: bool = False, session: str | None = None) -> UndoPlan:
        """Bring back what the last undo (of one session, or of any) took away."""
        from wieldy.files.journal.undo import redo

        return await self._settled(redo, self, merge=merge, session=session)

    async def history(self, limit: int = 50) -> tuple[Event, ...]:
        """The latest changes, newest first."""
        from wieldy.files.journal.undo import history

        return await self._settled(history, self, limit)

    async def _settled(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Run off the loop, to the end even when cancelled, and pass on the news."""
        try:
            return await in_thread_uncancellable(function, *args, **kwargs)
        finally:
            for line in self._news():
                self.workspace.emit(Notice(text=line))

    def _news(self) -> tuple[str, ...]:
        news = tuple(self.writer.news)
        self.writer.news.clear()
        return news

    def chronicle(self) -> Chronicle:
        """Everything that is kept, read anew."""
        return Chronicle(self.store.entries())


def _on_loop(call: Callable[[], None] | None) -> Callable[[], object] | None:
    """What has a function called on the loop, from any thread."""
    return None if call is None else partial(asyncio.get_running_loop().call_soon_threadsafe, call)
