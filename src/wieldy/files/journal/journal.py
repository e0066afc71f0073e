"""A workspace's journal: locks files, records changes, recovers from crashes, undoes, and drops what is old."""

from __future__ import annotations

import fcntl
import os
import re
import time
import unicodedata
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, suppress
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from wieldy.core.events import Notice
from wieldy.core.filesystem import RemoteFileSystem
from wieldy.core.session_files import remove_old_sessions
from wieldy.core.state_dirs import JOURNAL_FOLDER, open_lock_file
from wieldy.core.threads import in_thread_uncancellable, run_in_background
from wieldy.core.workspace import Workspace
from wieldy.files.journal.entries import ChangeOrigin, EntryState, FileChange, JournalEntry
from wieldy.files.journal.store import ContentUnavailable, JournalStore
from wieldy.files.writing.disk import LOCAL_DISK, Disk, FileWrite, WriteError, explain_os_error
from wieldy.files.writing.tree_commit import NodeChange
from wieldy.files.writing.writers import LocalWriter, RemoteWriter

if TYPE_CHECKING:
    from wieldy.files.journal.undo import UndoPlan, UndoSelector

DATABASE_NAME = "journal.sqlite3"


def journal_path(workspace: Workspace) -> Path:
    """The database of a workspace's journal; it exists once something was changed."""
    return workspace.state_dir / JOURNAL_FOLDER / project_key(workspace.root, workspace.files.place) / DATABASE_NAME


def project_key(root: str, place: str = "") -> str:
    """A folder name for a project: readable, and unique by a hash of its path. `place` is the id of its backend."""
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", os.path.basename(root)).strip("-.")[:40] or "root"
    place_key = b"\0" + os.fsencode(place) if place else b""
    return f"{readable}-{blake2b(os.fsencode(Path(root)) + place_key, digest_size=6).hexdigest()}"


def snapshot_folder(workspace: Workspace) -> Path:
    """Where copies of files are kept while commands run, one folder for each process."""
    return journal_path(workspace).parent / "snapshots"


# Paths share a fixed number of lock files: none has to be removed, and two unrelated paths rarely meet.

LOCK_FILES = 256


class HeldLocks:
    """Locks by name, kept as files in a folder and held until the end of a `with`.

    They are taken in one order, so that two writers cannot deadlock. Spellings that differ in case or Unicode form share a
    lock. `acquired` is false where one was taken and not waited for.
    """

    __slots__ = ("_fds", "acquired")

    def __init__(self, folder: Path, names: Iterable[str], *, wait: bool = True) -> None:
        self.acquired = True
        self._fds: list[int] = []
        try:
            for number in sorted({_lock_number(name) for name in names}):
                fd = open_lock_file(f"{folder}/{number:02x}")
                self._fds.append(fd)
                fcntl.flock(fd, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.acquired = False
            self._release()
        except BaseException:
            self._release()
            raise

    def __enter__(self) -> HeldLocks:
        return self

    def __exit__(self, *error: object) -> None:
        self._release()

    def _release(self) -> None:
        while self._fds:
            os.close(self._fds.pop())


def _lock_number(name: str) -> int:
    folded = unicodedata.normalize("NFC", name).casefold()
    return blake2b(os.fsencode(folded), digest_size=1).digest()[0] % LOCK_FILES


DAY = 86_400.0
STAMP_NAME = "swept"
# Entries go in steps of this fraction until a journal is small enough.
STEP = 0.1
# So much is stored before it is worth compressing it at once.
COMPRESS_BYTES = 8 << 20
# Copies of files around commands save time, nothing more.
COPIES_DAYS = 7


class Retention:
    """Sweeps the journals of all projects, and old sessions, at most once a day. Without `session_days` sessions stay."""

    def __init__(
        self,
        folder: Path,
        *,
        max_age_days: int = 30,
        max_bytes: int = 1 << 30,
        session_days: int | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._folder = folder
        self._session_days = session_days
        self._max_age = max_age_days * DAY
        self._max_bytes = max_bytes
        self._clock = clock
        self._next_check = 0.0

    def is_due(self) -> bool:
        """Whether no process has swept today. Marks it as done, so that no other process begins as well."""
        if self._clock() < self._next_check:
            return False
        stamp = self._folder / STAMP_NAME
        try:
            self._next_check = stamp.stat().st_mtime + DAY
            if self._clock() < self._next_check:
                return False
            os.utime(stamp, (self._clock(), self._clock()))
        except FileNotFoundError:
            if not self._folder.is_dir():
                return False
            with suppress(OSError):
                stamp.touch(mode=0o600)
        except OSError:
            return False  # a state folder that cannot be written needs no sweeping
        return True

    def sweep(self) -> None:
        """Drop what exceeds age or size in each project's journal, and give the space back. Remove old sessions."""
        if self._session_days is not None:
            remove_old_sessions(self._folder.parent / "sessions", self._clock() - self._session_days * DAY)
        with suppress(OSError):
            for folder in sorted(path for path in self._folder.iterdir() if path.is_dir()):
                self._remove_old_copies(folder)
                if (folder / DATABASE_NAME).exists():
                    store = JournalStore(folder / DATABASE_NAME, replace_unusable=False)
                    with closing(store), suppress(OSError):
                        self._sweep(store)

    def _sweep(self, store: JournalStore) -> None:
        deleted = store.delete_entries("time < ?", self._clock() - self._max_age)
        store.compress_contents()
        while store.used_bytes() > self._max_bytes:
            # The newest entry always stays.
            oldest = f"id <= (SELECT min(id) + (max(id) - min(id)) * {STEP} FROM entries) AND id < (SELECT max(id) FROM entries)"
            if not store.delete_entries(oldest):
                break
            deleted += 1
        if deleted:
            store.database.reclaim_space()

    def _remove_old_copies(self, folder: Path) -> None:
        """Remove copies of files that no process has used for days; one that works in the project makes them anew."""
        from wieldy.files.journal.snapshot_contents import LOCK_NAME, awaits_recovery, slots, try_lock

        for slot in slots(folder / "snapshots"):
            with suppress(OSError):
                if self._clock() - (slot / "copies").stat().st_mtime < COPIES_DAYS * DAY or awaits_recovery(slot):
                    continue
                if (lock := try_lock(slot)) is None:
                    continue
                try:
                    for path in slot.iterdir():
                        if path.name != LOCK_NAME:
                            path.unlink()
                finally:
                    os.close(lock)


def compress_contents(database: str) -> None:
    """Compress what a journal has stored since the last time."""
    with closing(JournalStore(Path(database), replace_unusable=False)) as store, suppress(OSError):
        store.compress_contents()


def recover_pending(store: JournalStore, locks: Path, writer: LocalWriter, notify: Callable[[str], None]) -> None:
    """Bring the files of each pending entry to all new or all old. Entries of living writers are left alone."""
    for entry in store.pending():
        try:
            outcome = _recover(entry, store, locks, writer)
        except OSError as error:
            outcome = f"could not be rolled back yet ({error})"
        if outcome:
            notify(f"an interrupted edit {outcome}: {_file_names(entry)}")


def _recover(entry: JournalEntry, store: JournalStore, locks: Path, writer: LocalWriter) -> str | None:
    with HeldLocks(locks, _lock_names(entry, writer), wait=False) as held:
        if not held.acquired or not store.is_pending(entry.id):
            return None  # its writer lives, or has just finished
        state: EntryState
        try:
            finished = writer.recover([store.file_write(file) for file in entry.files], entry.nodes)
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
    from wieldy.core.text import printable_path

    return ", ".join(printable_path(path) for path in entry.paths)


T = TypeVar("T")


class Journal:
    """The service `workspace.services.journal`. Files are written through it by `files/apply_edit.py` alone.

    Settings: `journal.enabled`, `journal.required`, `journal.maxAgeDays`, `journal.maxBytes`. The async methods run the
    blocking functions of `files/journal/undo.py` in a thread and emit the notices of recovery.
    """

    def __init__(self, workspace: Workspace, *, disk: Disk = LOCAL_DISK) -> None:
        home = workspace.state_dir
        self.workspace = workspace
        self.session = workspace.session_dir.name
        files = workspace.files
        self.writer = RemoteWriter(files, disk) if isinstance(files, RemoteFileSystem) else LocalWriter(disk)
        self.enabled: bool = workspace.setting("journal.enabled")
        self.required: bool = workspace.setting("journal.required")
        self.notices: deque[str] = deque(maxlen=100)
        self.store = JournalStore(journal_path(workspace), notify=self._notify)
        self.locks = home / "locks"
        self._snapshots = snapshot_folder(workspace)
        self.retention = Retention(
            home / "journal",
            max_age_days=workspace.setting("journal.maxAgeDays"),
            max_bytes=workspace.setting("journal.maxBytes"),
            session_days=workspace.setting("cleanupPeriodDays"),
        )

    async def start(self) -> None:
        """Recover from crashes, and sweep in the background. Cheap, and meant for every start of a program."""
        await self.run(self.recover)
        self.sweep_if_due()

    def recover(self) -> None:
        """Finish or roll back what dead writers left."""
        if self.enabled:
            with suppress(OSError):  # the next write reports it
                recover_pending(self.store, self.locks, self.writer, self._notify)
                if self.workspace.files.is_local and os.path.isdir(self._snapshots):
                    from wieldy.files.journal.command_snapshots import recover_interrupted

                    recover_interrupted(self._snapshots, self.store, self.workspace.env, self._notify)

    def has_pending(self) -> bool:
        """Whether an entry is unsettled, by a writer that is at work or has died."""
        try:
            return self.enabled and self.store.has_pending()
        except OSError:
            return False  # the next write reports it

    def sweep_if_due(self) -> None:
        """Compress contents and drop old entries in the background, when there is enough of them."""
        with suppress(RuntimeError):  # the system allows no more threads: another time
            if self.store.uncompressed_bytes > COMPRESS_BYTES:
                run_in_background(compress_contents, self.store.database.path)
                self.store.uncompressed_bytes = 0
            if self.retention.is_due():
                run_in_background(self.retention.sweep)

    def hold_locks(self, names: Iterable[str], path: str) -> HeldLocks:
        """Lock files for writing. Continues without locks where none can be taken and the journal is not required."""
        try:
            return HeldLocks(self.locks, names)
        except OSError as error:
            if self.enabled and self.required:
                raise self._cannot_record(path, error) from error
            return HeldLocks(self.locks, ())

    def begin(
        self, writes: Sequence[FileWrite], origin: ChangeOrigin, nodes: Sequence[NodeChange] = ()
    ) -> tuple[int | None, tuple[str, ...]]:
        """Record writes before they happen; returns the entry, or None and a note where none could or need be kept."""
        if not self.enabled:
            return None, ()
        path = writes[0].path if writes else "the file"
        try:
            return self.store.begin(writes, origin, nodes), ()
        except OSError as error:
            needed = sum(len(content or b"") for write in writes for content in (write.before, write.after))
            problem = self._cannot_record(path, error, needed)
            if self.required:
                raise problem from error
            return None, (
                f"This edit cannot be undone, because its undo copy could not be kept: {error.strerror or error}.",
            )

    def settle(self, entry_id: int | None, state: EntryState) -> None:
        """Write down how an entry ended. If that fails, the next recovery finds out by looking at the files."""
        if entry_id is not None:
            with suppress(OSError):
                self.store.settle(entry_id, state)

    def record(
        self, changes: Iterable[FileChange], origin: ChangeOrigin, nodes: Sequence[NodeChange] = ()
    ) -> int | None:
        """Record changes that have already happened, so that they can be undone, and what cannot be undone."""
        changes = [change for change in changes if change.before != change.after]
        if not self.enabled or not (changes or nodes or origin.uncovered):
            return None
        return self.store.record(changes, origin, nodes)

    async def plan_undo(self, selector: UndoSelector | None = None, *, merge: bool = False) -> UndoPlan:
        from wieldy.files.journal.undo import plan_undo

        return await self.run(plan_undo, self, selector, merge=merge)

    async def undo(self, selector: UndoSelector | None = None, *, merge: bool = False) -> UndoPlan:
        """Undo the last change, or those selected. Raises `CannotUndo` when a file has changed since."""
        from wieldy.files.journal.undo import undo

        return await self.run(undo, self, selector, merge=merge)

    async def redo(self, *, merge: bool = False, session: str | None = None) -> UndoPlan:
        """Reverse the last undo (of one session, or of any)."""
        from wieldy.files.journal.undo import redo

        return await self.run(redo, self, merge=merge, session=session)

    async def history(self, limit: int = 50) -> tuple[JournalEntry, ...]:
        """The latest changes, newest first."""
        from wieldy.files.journal.undo import history

        return await self.run(history, self, limit)

    async def run(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Run a blocking function to its end even when cancelled, and emit the notices it left."""
        try:
            return await in_thread_uncancellable(function, *args, **kwargs)
        finally:
            while self.notices:
                self.workspace.emit(Notice(text=self.notices.popleft()))

    async def aclose(self) -> None:
        self.store.close()

    def _notify(self, notice: str) -> None:
        if notice not in self.notices:
            self.notices.append(notice)

    def _cannot_record(self, path: str, error: OSError, needed: int = 0) -> WriteError:
        folder = os.path.dirname(self.store.database.path)
        reason = explain_os_error(error, folder, needed=needed, roots=self.workspace.roots)
        return WriteError(
            path,
            f"{path} was not written, because its undo copy could not be kept: {reason} "
            "WIELDY_HOME moves the folder; the setting journal.required=false allows edits that cannot be undone.",
            number=error.errno or 0,
        )
