"""One writer at a time for each file, among threads and processes alike. A lock goes when its holder dies."""

from __future__ import annotations

import fcntl
import os
import unicodedata
from collections.abc import Iterable
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path

# Paths share a fixed number of lock files: none has to be removed, and two unrelated paths rarely meet.
LOCK_FILES = 256
FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC


class Held:
    """Locks that are held until the end of a `with`: all that were wanted or, where one is taken and not waited for, none."""

    __slots__ = ("_fds", "all")

    def __init__(self, paths: Iterable[str] = (), *, wait: bool = True) -> None:
        self.all = True
        self._fds: list[int] = []
        try:
            for path in paths:
                fd = _opened(path)
                self._fds.append(fd)
                fcntl.flock(fd, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.all = False
            self._release()
        except BaseException:
            self._release()
            raise

    def __enter__(self) -> Held:
        return self

    def __exit__(self, *failure: object) -> None:
        self._release()

    def _release(self) -> None:
        while self._fds:
            os.close(self._fds.pop())


class Locks:
    """Locks by name, kept as files in a folder. Spellings that differ in case or Unicode form are one name."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)

    def hold(self, names: Iterable[str], *, wait: bool = True) -> Held:
        """Hold the locks of all these names at once."""
        numbers = sorted(set(map(_number, names)))
        return Held([f"{self._folder}/{number:02x}" for number in numbers], wait=wait)


def _opened(path: str) -> int:
    try:
        return os.open(path, FLAGS, 0o600)
    except FileNotFoundError:
        Path(path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return os.open(path, FLAGS, 0o600)


@lru_cache(maxsize=256)
def _number(name: str) -> int:
    plain = unicodedata.normalize("NFC", name).casefold()
    return blake2b(os.fsencode(plain), digest_size=1).digest()[0] % LOCK_FILES
