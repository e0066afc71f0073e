"""Brings a log to disk from a thread of its own: many records, one wait."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from pathlib import Path

PAUSE = (
    0.1  # seconds between two waits for the disk, unless somebody asks: a file is not written while it is being synced
)

_sync = getattr(os, "fdatasync", os.fsync)


class Syncer:
    """Waits for the disk where others may not. `first` is done before every wait: what the log speaks of must be there."""

    def __init__(self, file: int, folder: Path, first: Callable[[], None]) -> None:
        self._file = file
        self._folder: Path | None = folder
        self._first = first
        self._wake = threading.Condition()
        self._written = 0
        self._on_disk = 0
        self._stopped = False
        self._error: OSError | None = None
        self._waiters: list[tuple[int, asyncio.AbstractEventLoop, asyncio.Future[None]]] = []
        self._thread: threading.Thread | None = None

    def wanted(self) -> int:
        """Something was written. Returns how often that was said by now."""
        self._written += 1
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="wieldy-transcript", daemon=True)
            self._thread.start()
        elif self._written - self._on_disk == 1:
            with self._wake:
                self._wake.notify()
        return self._written

    async def synced(self, upto: int | None = None) -> None:
        """Wait until everything written before now is on disk, or so much of it. Raises `OSError`."""
        loop = asyncio.get_running_loop()
        with self._wake:
            wanted = self._written if upto is None else upto
            if self._error is None and self._on_disk >= wanted:
                return
            done: asyncio.Future[None] = loop.create_future()
            self._waiters.append((wanted, loop, done))
            self._wake.notify()
        await done

    def stop(self) -> None:
        """End the thread."""
        with self._wake:
            self._stopped = True
            self._wake.notify()
        if self._thread is not None:
            self._thread.join()

    def _work(self) -> None:
        while True:
            with self._wake:
                while self._on_disk >= self._written and not self._waiters and not self._stopped:
                    self._wake.wait()
                self._wake.wait_for(lambda: self._waiters or self._stopped, PAUSE)
                if self._stopped:
                    return
                upto = self._written
            try:
                self._bring_to_disk()
            except OSError as error:
                self._error = error
            with self._wake:
                self._on_disk = upto
                due = [waiter for waiter in self._waiters if waiter[0] <= upto]
                self._waiters = [waiter for waiter in self._waiters if waiter[0] > upto]
            for _, loop, done in due:
                loop.call_soon_threadsafe(_settle, done, self._error)

    def _bring_to_disk(self) -> None:
        self._first()
        _sync(self._file)
        if self._folder is not None:  # a file that is on disk and in no folder is lost all the same
            sync_folder(self._folder)
            sync_folder(self._folder.parent)
            self._folder = None


def sync_folder(folder: Path) -> None:
    """Bring the names in a folder to disk, where a folder can be opened for that."""
    try:
        opened = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(opened)
    except OSError:
        return
    finally:
        os.close(opened)


def _settle(done: asyncio.Future[None], error: OSError | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)
