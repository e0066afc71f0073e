"""Brings an open file to disk in the background, in the threads that all sessions of a process share."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from wieldy.agent.payloads import fsync_folder
from wieldy.core.threads import run_in_background, timer

FSYNC_SECONDS = 0.1  # between two fsyncs that nobody waits for

_fdatasync = getattr(os, "fdatasync", os.fsync)


class BackgroundFsync:
    """Brings one file to disk: soon after a write, or at once where somebody waits; one fsync at a time.

    `before` runs before each fsync: payloads must be on disk before their record.
    """

    def __init__(self, file: int, folder: Path, before: Callable[[], None]) -> None:
        self._file = file
        self._new_folder: Path | None = folder
        self._before = before
        self._lock = threading.Lock()
        self._written = 0
        self._on_disk = 0
        self._is_due = False  # whether the timer is set
        self._is_working = False
        self._is_closed = False
        self._error: OSError | None = None
        self._waiters: list[tuple[int, asyncio.AbstractEventLoop, asyncio.Future[None]]] = []

    def note_write(self) -> int:
        """Count a write, to be brought to disk soon; returns the count."""
        self._written += 1
        if not self._is_due and not self._is_working:
            with self._lock:
                self._set_timer()
        return self._written

    async def wait(self, count: int | None = None) -> None:
        """Wait until all writes, or so many of them, are on disk. Raises `OSError`."""
        loop = asyncio.get_running_loop()
        with self._lock:
            needed = self._written if count is None else count
            if self._error is None and self._on_disk >= needed:
                return
            self._start()  # first: where no thread can be had, nobody waits
            future: asyncio.Future[None] = loop.create_future()
            self._waiters.append((needed, loop, future))
        await future

    def close_file(self) -> None:
        """Close the file; after the fsync, where one is at work."""
        with self._lock:
            self._is_closed = True
            if not self._is_working:
                os.close(self._file)

    def _set_timer(self) -> None:
        if self._is_due or self._is_closed:
            return
        with suppress(RuntimeError):  # no thread can be had: `wait` says so
            timer.call_later(FSYNC_SECONDS, self._on_time)
            self._is_due = True

    def _on_time(self) -> None:
        with self._lock:
            self._is_due = False
            if self._on_disk < self._written and not self._is_closed:
                with suppress(OSError):
                    self._start()

    def _start(self) -> None:
        if self._is_working:
            return
        try:
            run_in_background(self._work)
        except RuntimeError as error:
            raise OSError(f"no thread can be started ({error})") from None
        self._is_working = True

    def _work(self) -> None:
        while True:
            count, error = self._written, None
            try:
                self._fsync()
            except OSError as failure:
                error = failure
            with self._lock:
                self._error = self._error or error
                self._on_disk = count
                due = [waiter for waiter in self._waiters if waiter[0] <= count]
                self._waiters = [waiter for waiter in self._waiters if waiter[0] > count]
                self._is_working = goes_on = bool(self._waiters)
                if not goes_on:
                    if self._is_closed:
                        os.close(self._file)
                    elif self._on_disk < self._written:
                        self._set_timer()
            for _, loop, future in due:
                with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                    loop.call_soon_threadsafe(_resolve, future, self._error)
            if not goes_on:
                return

    def _fsync(self) -> None:
        self._before()
        _fdatasync(self._file)
        if os.fstat(self._file).st_nlink == 0:
            raise FileNotFoundError(errno.ENOENT, "it was deleted while the session ran")
        if self._new_folder is not None:
            fsync_folder(self._new_folder)
            fsync_folder(self._new_folder.parent)
            self._new_folder = None


def _resolve(future: asyncio.Future[None], error: OSError | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
