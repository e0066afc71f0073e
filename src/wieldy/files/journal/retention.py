"""How long wieldy remembers: journal entries go when they are too old or a journal is too large, sessions when they are old."""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

from wieldy.files.journal.file_copies import LOCK_NAME, awaits_recovery, slots, try_lock
from wieldy.files.journal.paths import DATABASE_NAME
from wieldy.files.journal.store import JournalStore

DAY = 86_400.0
STAMP_NAME = "swept"
TRANSCRIPT_NAME = "transcript.jsonl"
# Entries go in steps of this fraction until a journal is small enough.
STEP = 0.1
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
        """Whether nobody has swept today. Marks it as done, so that no other process begins as well."""
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
                self._remove_old_format(folder)
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

    def _remove_old_format(self, folder: Path) -> None:
        """Remove the journal files that versions before the database wrote."""
        for path in folder.glob("*.journal"):
            with suppress(OSError):
                if self._clock() - path.stat().st_mtime > self._max_age:
                    path.unlink()


def compress_contents(database: str, is_stopped: Callable[[], bool]) -> None:
    """Compress what a journal has stored since the last time, until that is done or stopped."""
    with closing(JournalStore(Path(database), replace_unusable=False)) as store, suppress(OSError):
        store.compress_contents(is_stopped)


def remove_old_sessions(folder: Path, before: float) -> None:
    """Remove the sessions below a folder that nobody has used since a time, and that are not open."""
    with suppress(OSError):
        for session in [path for path in folder.iterdir() if path.is_dir()]:
            with suppress(OSError):
                if _last_use(session) < before and not _is_open(session / TRANSCRIPT_NAME):
                    shutil.rmtree(session)


def _last_use(session: Path) -> float:
    return max(path.stat().st_mtime for path in (session, *session.iterdir()))


def _is_open(transcript: Path) -> bool:
    """Whether a process has the transcript locked."""
    try:
        descriptor = os.open(transcript, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
