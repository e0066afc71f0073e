"""How long the journal remembers: the oldest entries go when they are too old, or when a journal is too large."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from wieldy.files.journal.paths import DATABASE_NAME
from wieldy.files.journal.store import JournalStore

DAY = 86_400.0
STAMP_NAME = "swept"
# Entries go in steps of this fraction until a journal is small enough.
STEP = 0.1


class Retention:
    """Sweeps the journals of all projects, at most once a day."""

    def __init__(
        self, folder: Path, *, max_age_days: int = 30, max_bytes: int = 1 << 30, clock: Callable[[], float] = time.time
    ) -> None:
        self._folder = folder
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
        """Drop what exceeds age or size in each project's journal, and give the space back."""
        with suppress(OSError):
            for folder in sorted(path for path in self._folder.iterdir() if path.is_dir()):
                self._remove_old_format(folder)
                if (folder / DATABASE_NAME).exists():
                    store = JournalStore(folder / DATABASE_NAME, replace_unusable=False)
                    with suppress(OSError):
                        self._sweep(store)
                    store.close()

    def _sweep(self, store: JournalStore) -> None:
        deleted = store.delete_entries("time < ?", self._clock() - self._max_age)
        if not store.find(active_only=False, limit=1) or store.used_bytes() > self._max_bytes:
            store.forget_snapshots()
            deleted += 1
        while store.used_bytes() > self._max_bytes:
            # The newest entry always stays.
            oldest = f"id <= (SELECT min(id) + (max(id) - min(id)) * {STEP} FROM entries) AND id < (SELECT max(id) FROM entries)"
            if not store.delete_entries(oldest):
                break
            deleted += 1
        if deleted:
            store.database.reclaim_space()

    def _remove_old_format(self, folder: Path) -> None:
        """Remove the journal files that versions before the database wrote."""
        for path in folder.glob("*.journal"):
            with suppress(OSError):
                if self._clock() - path.stat().st_mtime > self._max_age:
                    path.unlink()
