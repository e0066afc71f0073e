"""How long the journal remembers: whole files of it go when they are too old, or when all together are too large."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from wieldy.files.journal.store import Store

DAY = 86_400.0
STAMP = "swept"


class Retention:
    """Sweeps the journals of all projects, at most once a day."""

    def __init__(
        self, home: Path, *, max_age_days: int = 30, max_bytes: int = 1 << 30, clock: Callable[[], float] = time.time
    ) -> None:
        self._home = home
        self._max_age = max_age_days * DAY
        self._max_bytes = max_bytes
        self._clock = clock
        self._due = 0.0

    def daily(self) -> bool:
        """Sweep unless that was done today; whether it was done now."""
        if self._clock() < self._due:
            return False
        stamp = self._home / STAMP
        try:
            self._due = stamp.stat().st_mtime + DAY
            if self._clock() < self._due:
                return False
            os.utime(stamp, (self._clock(), self._clock()))
        except FileNotFoundError:
            if not self._home.is_dir():
                return False
            with suppress(OSError):
                stamp.touch(mode=0o600)
        except OSError:
            return False  # a state folder that cannot be written needs no sweeping
        self.sweep()
        return True

    def sweep(self) -> list[Path]:
        """Drop what exceeds age or size in each project's journal; the files dropped."""
        dropped: list[Path] = []
        with suppress(OSError):
            for folder in sorted(path for path in self._home.iterdir() if path.is_dir()):
                store = Store(folder)
                if excess := self._excess(store):
                    store.drop(excess)
                    dropped += excess
        return dropped

    def _excess(self, store: Store) -> list[Path]:
        files = store.sizes()
        excess = {path for path, _, changed in files if self._clock() - changed > self._max_age}
        total = 0
        for path, size, _ in reversed(files):
            total += size
            if total > self._max_bytes:
                excess.add(path)
        return sorted(excess)
