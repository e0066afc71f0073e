"""A workspace's journal: records changes, recovers from crashes, and undoes."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, TypeVar

from wieldy.core.events import Notice
from wieldy.core.filesystem import RemoteFileSystem
from wieldy.core.threads import in_thread, in_thread_uncancellable, run_in_background
from wieldy.core.workspace import Workspace
from wieldy.files.journal.entries import ChangeOrigin, EntryState, FileChange, JournalEntry
from wieldy.files.journal.locks import FileLocks, HeldLocks
from wieldy.files.journal.paths import journal_path, snapshot_folder
from wieldy.files.journal.recovery import recover_pending
from wieldy.files.journal.retention import Retention, compress_contents
from wieldy.files.journal.store import JournalStore
from wieldy.files.writing.disk import LOCAL_DISK, Disk
from wieldy.files.writing.errors import WriteError, explain_os_error
from wieldy.files.writing.nodes import NodeChange
from wieldy.files.writing.target import FileWrite
from wieldy.files.writing.writers import LocalWriter, RemoteWriter

if TYPE_CHECKING:
    from wieldy.files.journal.undo import UndoPlan, UndoSelector

T = TypeVar("T")

# So much is stored before it is worth a background thread to compress it.
COMPRESS_BYTES = 8 << 20


class Journal:
    """The service `workspace.services.journal`. Files are written through it by `files/apply_edit.py` alone.

    Settings: `journal.enabled`, `journal.required`, `journal.maxAgeDays`, `journal.maxBytes`. The async methods run the
    blocking functions of `files/journal/undo.py` in a thread and emit what recovery had to say.
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
        self.locks = FileLocks(home / "locks")
        self._snapshots = snapshot_folder(workspace)
        self._compression: Thread | None = None
        self._is_closing = Event()
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
            with suppress(OSError):  # whoever writes next is told
                recover_pending(self.store, self.locks, self.writer, self._notify)
                if self.workspace.backend is None and os.path.isdir(self._snapshots):
                    from wieldy.files.journal.interrupted_commands import recover_interrupted

                    recover_interrupted(self._snapshots, self.store, self.workspace.env, self._notify)

    def has_pending(self) -> bool:
        """Whether an entry is unsettled, by a writer that is at work or has died."""
        try:
            return self.enabled and self.store.has_pending()
        except OSError:
            return False  # whoever writes next is told

    def sweep_if_due(self) -> None:
        """Compress contents and drop old entries in the background, when enough has come together."""
        is_compressing = self._compression is not None and self._compression.is_alive()
        with suppress(RuntimeError):  # the system allows no more threads: another time
            if self.store.uncompressed_bytes > COMPRESS_BYTES and not is_compressing:
                arguments = (self.store.database.path, self._is_closing.is_set)
                thread = Thread(target=compress_contents, args=arguments, daemon=True)
                thread.start()
                self._compression, self.store.uncompressed_bytes = thread, 0
            if self.retention.is_due():
                run_in_background(self.retention.sweep)

    def hold_locks(self, names: Iterable[str], path: str) -> HeldLocks:
        """Lock files for writing. Where no lock can be had, goes on without if the journal is not required."""
        try:
            return self.locks.hold(names)
        except OSError as error:
            if self.enabled and self.required:
                raise self._cannot_record(path, error) from error
            return HeldLocks()

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
        self._is_closing.set()  # the daily sweep compresses the rest
        if self._compression is not None:
            await in_thread(self._compression.join)
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
