"""Advisory locks: one writer at a time for each file, among threads and processes. A lock goes when its holder dies."""

from __future__ import annotations

import fcntl
import os
import unicodedata
from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path

# Paths share a fixed number of lock files: none has to be removed, and two unrelated paths rarely meet.
from wieldy.core.state_dirs import make_private_folder

LOCK_FILES = 256


class HeldLocks:
    """Locks held until the end of a `with`. `acquired` is false where one was taken and not waited for."""

    __slots__ = ("_fds", "acquired")

    def __init__(self, paths: Iterable[str] = (), *, wait: bool = True) -> None:
        self.acquired = True
        self._fds: list[int] = []
        try:
            for path in paths:
                fd = _open(path)
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


class FileLocks:
    """Locks by name, kept as files in a folder. Spellings that differ in case or Unicode form share a lock."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)

    def hold(self, names: Iterable[str], *, wait: bool = True) -> HeldLocks:
        """Hold the locks of all these names, taken in one order so that two writers cannot deadlock."""
        numbers = sorted({_lock_number(name) for name in names})
        return HeldLocks([f"{self._folder}/{number:02x}" for number in numbers], wait=wait)


def _open(path: str) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
    try:
        return os.open(path, flags, 0o600)
    except FileNotFoundError:
        make_private_folder(Path(path).parent)
        return os.open(path, flags, 0o600)


def _lock_number(name: str) -> int:
    folded = unicodedata.normalize("NFC", name).casefold()
    return blake2b(os.fsencode(folded), digest_size=1).digest()[0] % LOCK_FILES
